//! Examines crash states: recovery by Cairn, by e2fsck and by the kernel, each judged by e2fsck and
//! compared with the promises.

use std::path::Path;
use std::sync::Arc;

use cairn_base::runtime::simulated::Simulated;
use cairn_block::memory::MemoryDevice;
use cairn_testkit::crash::{Cut, Recording, Volatile, read_image, write_image};
use cairn_testkit::foreign::is_clean_after_preen;
use cairn_testkit::judge::{KernelMount, e2fsck_check, e2fsck_preen};
use cairn_testkit::workload::read_all;
use cairn_vfs::FileSystem;

use crate::run::{Run, Workload, open, run};

/// Examined states.
#[derive(Default, Debug)]
pub struct Seen {
    pub states: usize,
    pub by_e2fsck: usize,
    pub by_kernel: usize,
    pub recoveries: usize,
    pub promises: usize,
}

/// Factor for the number of states; higher with `CAIRN_DEEP=1`.
pub fn depth() -> usize {
    if cairn_testkit::deep() { 20 } else { 1 }
}

/// The cuts of a run: two at every flush, and seeded subsets between flushes.
fn cuts(run: &Run, random: usize, seed: u64) -> Vec<Cut> {
    let mut cuts: Vec<Cut> = run.crash.barrier_cuts();
    cuts.retain(|cut| cut.moment >= run.from);
    if depth() == 1 {
        // Two of the four states around a barrier: all unflushed writes lost just before it, all
        // kept just after it.
        let barriers = run.crash.barriers();
        let end = run.crash.log().end;
        cuts.retain(|cut| {
            let before = barriers.contains(&(cut.moment + 1));
            if cut.volatile == Volatile::Kept { !before } else { before || cut.moment == end }
        });
    }
    let mut more = run.crash.random_cuts(random * 4, seed);
    more.retain(|cut| cut.moment >= run.from);
    more.truncate(random);
    cuts.extend(more);
    cuts
}

/// Runs a workload and examines its crash states. The error is the first wrong state.
pub fn search(workload: &Workload, random: usize) -> Result<Seen, String> {
    let dir = crate::run::shm();
    let run = run(workload, dir.path(), |device| device);
    let mut seen = Seen::default();
    for (number, cut) in cuts(&run, random, workload.seed).into_iter().enumerate() {
        let named =
            |error: String| format!("seed {} ({workload:?}), {cut}: {error}", workload.seed);
        seen.promises += judge_cairn(&run, cut, dir.path()).map_err(named)?;
        seen.states += 1;
        // All flush boundaries, every fourth of the rest.
        if !matches!(cut.volatile, Volatile::Random(_)) || number % 4 == 0 {
            judge_e2fsck(&run, cut, dir.path()).map_err(named)?;
            seen.by_e2fsck += 1;
        }
        if number % 24 == 7 {
            judge_recovery(&run, cut, dir.path()).map_err(named)?;
            seen.recoveries += 1;
        }
        if number % 24 == 12 {
            judge_kernel(&run, cut, dir.path()).map_err(named)?;
            seen.by_kernel += 1;
        }
    }
    Ok(seen)
}

/// Checks the promises from before the cut.
fn keep_promises(run: &Run, cut: Cut, fs: &dyn FileSystem) -> Result<usize, String> {
    let found = read_all(fs)?;
    let mut kept = 0;
    for promises in &run.promises {
        for (path, expect) in promises.at(cut.moment) {
            expect.check(found.get(path)).map_err(|error| format!("/{path}: {error}"))?;
            kept += 1;
        }
    }
    Ok(kept)
}

/// The power fails again during Cairn's recovery, at every flush and between flushes. The next
/// recovery must succeed.
fn judge_recovery(run: &Run, cut: Cut, dir: &Path) -> Result<(), String> {
    let recording = Recording::start(run.crash.device(cut));
    let fs = open(recording.device(), Simulated::new(1), "")?;
    fs.shutdown(false).map_err(|error| error.to_string())?;
    drop(fs);
    let recovery = recording.finish();
    let mut cuts = recovery.barrier_cuts();
    cuts.retain(|again| again.volatile == Volatile::Lost);
    for again in cuts.into_iter().chain(recovery.random_cuts(2, cut.moment)) {
        judge_device(run, cut, recovery.device(again), dir)
            .map_err(|error| format!("{again} of the recovery: {error}"))?;
    }
    Ok(())
}

/// Blocks are torn at 512 bytes. A volume that Cairn accepts is consistent and keeps the promises.
/// False if Cairn reports damage.
pub fn judge_torn(run: &Run, cut: Cut, dir: &Path) -> Result<bool, String> {
    let device = run.crash.device(cut);
    match open(Arc::new(device.fork()), Simulated::new(1), "") {
        Ok(fs) if fs.read_only_reason().is_none() => drop(fs),
        Ok(_) | Err(_) => return Ok(false),
    }
    judge_device(run, cut, device, dir).map(|_| true)
}

/// Cairn recovers, reads everything and closes; e2fsck finds nothing.
pub fn judge_cairn(run: &Run, cut: Cut, dir: &Path) -> Result<usize, String> {
    judge_device(run, cut, run.crash.device(cut), dir)
}

fn judge_device(run: &Run, cut: Cut, device: MemoryDevice, dir: &Path) -> Result<usize, String> {
    let shared = Arc::new(device);
    let fs = open(shared.clone(), Simulated::new(1), "")?;
    let kept = keep_promises(run, cut, &*fs).map_err(|error| format!("after recovery: {error}"))?;
    fs.unmount().map_err(|error| format!("closing after recovery: {error}"))?;
    drop(fs);
    let image = dir.join("recovered");
    write_image(&shared, &image).map_err(|error| error.to_string())?;
    clean(&image, "after recovery by cairn")?;
    Ok(kept)
}

/// e2fsck recovers (as at boot) and finds nothing else, and Cairn finds the promises kept.
fn judge_e2fsck(run: &Run, cut: Cut, dir: &Path) -> Result<(), String> {
    let image = dir.join("preened");
    run.crash.write_image(cut, &image).map_err(|error| error.to_string())?;
    let verdict = e2fsck_preen(&image);
    if verdict.status > 1 || verdict.status < 0 {
        return Err(format!("e2fsck -p exits {}:\n{}", verdict.status, verdict.output));
    }
    clean_after_preen(&image)?;
    let device = Arc::new(read_image(&image).map_err(|error| error.to_string())?);
    let fs = open(device, Simulated::new(2), "ro")?;
    keep_promises(run, cut, &*fs).map_err(|error| format!("after e2fsck -p: {error}"))?;
    drop(fs);
    if !cut.moment.is_multiple_of(3) {
        return Ok(());
    }
    // The volume can be used again, whatever e2fsck left in the orphan file.
    let device = Arc::new(read_image(&image).map_err(|error| error.to_string())?);
    let fs = open(device.clone(), Simulated::new(3), "")
        .map_err(|error| format!("after e2fsck -p, rw: {error}"))?;
    fs.unmount().map_err(|error| format!("closing after e2fsck -p: {error}"))?;
    drop(fs);
    write_image(&device, &image).map_err(|error| error.to_string())?;
    clean(&image, "after e2fsck -p and another mount")?;
    Ok(())
}

/// The kernel recovers, e2fsck finds nothing, and Cairn finds the promises kept.
fn judge_kernel(run: &Run, cut: Cut, dir: &Path) -> Result<(), String> {
    let image = dir.join("mounted");
    run.crash.write_image(cut, &image).map_err(|error| error.to_string())?;
    KernelMount::new(&image, "").unmount();
    clean(&image, "after recovery by the kernel")?;
    let device = Arc::new(read_image(&image).map_err(|error| error.to_string())?);
    let fs = open(device, Simulated::new(4), "ro")?;
    keep_promises(run, cut, &*fs)
        .map_err(|error| format!("after recovery by the kernel: {error}"))?;
    Ok(())
}

fn clean_after_preen(image: &Path) -> Result<(), String> {
    if is_clean_after_preen(&e2fsck_check(image)) {
        return Ok(());
    }
    clean(image, "after e2fsck -p")
}

/// `e2fsck -fn` finds nothing.
pub fn clean(image: &Path, when: &str) -> Result<(), String> {
    let verdict = e2fsck_check(image);
    if verdict.is_clean() {
        return Ok(());
    }
    let kept = std::env::temp_dir().join("cairn-crash-failure.img");
    let _ = std::fs::copy(image, &kept);
    Err(format!(
        "{when}: e2fsck -fn exits {} (image kept in {}):\n{}",
        verdict.status,
        kept.display(),
        verdict.output
    ))
}
