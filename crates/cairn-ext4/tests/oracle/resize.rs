//! Volumes grow in steps: their files stay, resize2fs comes to the same counts, e2fsck finds
//! nothing, the kernel mounts them, and a power cut leaves the old size or the new one.

use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use cairn_base::runtime::threads::Threads;
use cairn_block::memory::MemoryDevice;
use cairn_block::wrap::{Fault, Lasting, Operation};
use cairn_block::{BlockDevice, BlockDeviceExt};
use cairn_check::repair::Scope;
use cairn_check::repair::undo::file_size;
use cairn_ext4::resize;
use cairn_ext4::tune::{TuneOptions, tune};
use cairn_testkit::crash::{Recording, read_image, write_image};
use cairn_testkit::judge::{self, KernelMount};
use cairn_testkit::tree::{
    PathTarget, Snapshot, SnapshotOptions, TreeSpec, VolumeTarget, build, digest_path,
    digest_volume, plan,
};
use cairn_vfs::FileSystem;

use crate::checked::assert_clean;
use crate::support::{self, open, volume};

pub const MIB: u64 = 1 << 20;

/// Shapes, the size that they begin with, and the sizes to which they grow, in MiB.
const SHAPES: &[(&[&str], u64, &[u64])] = &[
    (&["-t", "ext4", "-b", "4096"], 20, &[29, 130, 300, 2100]),
    (&["-t", "ext4", "-b", "1024"], 10, &[11, 17, 90, 400]),
    (&["-t", "ext4", "-b", "1024", "-O", "meta_bg,^resize_inode"], 20, &[50, 300]),
    (&["-t", "ext4", "-b", "1024", "-O", "^flex_bg,^orphan_file"], 30, &[37, 120]),
    (&["-t", "ext4", "-b", "1024", "-O", "sparse_super2"], 30, &[70]),
    (&["-t", "ext4", "-b", "1024", "-O", "^metadata_csum,^64bit,uninit_bg"], 12, &[70]),
    (&["-t", "ext4", "-b", "4096", "-O", "^resize_inode"], 40, &[600]),
    (&["-t", "ext3", "-b", "1024"], 12, &[40, 41]),
    (&["-t", "ext2", "-b", "1024"], 9, &[30, 100]),
];

pub fn digest(device: &Arc<MemoryDevice>) -> Snapshot {
    let volume = open(device, "");
    let digest = digest_volume(&*volume, SnapshotOptions::default()).unwrap();
    volume.unmount().unwrap();
    digest
}

/// A volume with a tree.
pub fn filled(size: u64, shape: &[&str], seed: u64) -> Arc<MemoryDevice> {
    let device = volume(size, shape);
    let volume = open(&device, "");
    let spec = TreeSpec { size_max: 60_000, ..TreeSpec::small(seed) };
    build(&VolumeTarget::new(&*volume), &plan(&spec));
    volume.unmount().unwrap();
    device
}

/// The image on a device of another size.
pub fn on_larger(image: &MemoryDevice, size: u64) -> MemoryDevice {
    let device = MemoryDevice::new(size);
    let mut pieces = Vec::new();
    let keep = |offset, bytes: &[u8]| -> Result<(), ()> {
        pieces.push((offset, bytes.to_vec()));
        Ok(())
    };
    image.for_each_piece(keep).unwrap();
    pieces.iter().for_each(|(offset, bytes)| device.load(*offset, bytes));
    device
}

pub fn resized(device: &Arc<MemoryDevice>, size: u64) -> cairn_ext4::Result<resize::Resized> {
    resize::resize(device.clone(), Arc::new(Threads::new()), size)
}

pub fn size_of(device: &Arc<MemoryDevice>) -> u64 {
    resize::size(device.clone(), Arc::new(Threads::new())).unwrap()
}

fn counts(image: &Path) -> Vec<String> {
    const LINES: [&str; 6] = [
        "Inode count:",
        "Block count:",
        "Free inodes:",
        "Reserved GDT blocks:",
        "Inodes per group:",
        "Group descriptor size:",
    ];
    let text = judge::run("dumpe2fs", ["-h".as_ref(), image.as_os_str()]);
    let lines = text.lines().filter(|line| LINES.iter().any(|start| line.starts_with(start)));
    lines.map(str::to_owned).collect()
}

fn free_blocks(image: &Path) -> i64 {
    let text = judge::run("dumpe2fs", ["-h".as_ref(), image.as_os_str()]);
    let line = text.lines().find_map(|line| line.strip_prefix("Free blocks:"));
    line.unwrap().trim().parse().unwrap()
}

#[test]
fn a_grown_volume_keeps_its_files_and_has_what_resize2fs_gives() {
    for (number, (shape, start, steps)) in (0..).zip(SHAPES) {
        let dir = tempfile::tempdir().unwrap();
        let (image, theirs) = (dir.path().join("image"), dir.path().join("theirs"));
        let mut device = filled(start * MIB, shape, number);
        let expected = digest(&device);
        for size in *steps {
            println!("{shape:?} to {size} MiB");
            write_image(&device, &theirs).unwrap();
            judge::run("truncate", ["-s", &format!("{size}M"), theirs.to_str().unwrap()]);
            judge::run("e2fsck", ["-fy", theirs.to_str().unwrap()]);
            judge::run("resize2fs", [theirs.as_os_str()]);
            device = Arc::new(on_larger(&device, size * MIB));
            let done = resized(&device, size * MIB).unwrap();
            assert!(done.after > done.before && done.after <= size * MIB, "{done:?}");
            write_image(&device, &image).unwrap();
            assert_clean(&image);
            assert_eq!(counts(&image), counts(&theirs), "{shape:?}");
            let (ours, others) = (free_blocks(&image), free_blocks(&theirs));
            assert!((ours - others).abs() <= others / 200 + 8, "{ours} blocks free, not {others}");
            digest(&device).assert_same(&expected);
        }
        write_image(&device, &image).unwrap();
        let kernel = KernelMount::new(&image, "");
        // Into groups that are new.
        let large: Vec<u8> = (0..16 * MIB).map(|at| (at / 512) as u8).collect();
        std::fs::write(kernel.path().join("large"), &large).unwrap();
        let seen = digest_path(kernel.path(), SnapshotOptions::default()).unwrap();
        let times = |snapshot: Snapshot| snapshot.without_fact("mtime", |path, _| path.is_empty());
        times(seen.clone().without(b"large")).assert_same(&times(expected));
        kernel.unmount();
        assert_clean(&image);
        digest(&Arc::new(read_image(&image).unwrap())).assert_same(&seen);
    }
}

/// A repair of what a power cut has left: it is recovered, nothing is lost, and its size is one of
/// the two.
pub fn assert_repaired(state: &MemoryDevice, expected: &Snapshot) {
    let device = Arc::new(state.fork());
    let whole: Arc<dyn BlockDevice> = device.clone();
    let plan = cairn_ext4::check::repair::plan(&whole, Threads::new(), Arc::new(()), Scope::All);
    let plan = plan.unwrap();
    let steps = plan.steps.kept();
    assert!(plan.after.count() == 0 && plan.steps.losing().count() == 0, "{steps:?}");
    plan.apply(&*whole, &MemoryDevice::new(file_size(&plan.changes))).unwrap();
    support::judge(&device);
    digest(&device).assert_same(expected);
}

#[test]
fn a_power_cut_leaves_the_old_size_or_the_new_one() {
    let random = if std::env::var_os("CAIRN_DEEP").is_some() { 200 } else { 4 };
    let shapes: [(&[&str], u64, u64); 3] = [
        (&["-t", "ext4", "-b", "1024", "-J", "size=4"], 20, 70),
        (&["-t", "ext4", "-b", "4096", "-J", "size=4"], 20, 150),
        (&["-t", "ext3", "-b", "1024", "-J", "size=1"], 10, 30),
    ];
    for (shape, start, size) in shapes {
        let image = tempfile::NamedTempFile::new().unwrap();
        let before = filled(start * MIB, shape, 5);
        let expected = digest(&before);
        let recording = Recording::start(on_larger(&before, size * MIB));
        let runtime = Arc::new(Threads::new());
        let done = resize::resize(recording.device(), runtime, size * MIB).unwrap();
        let log = recording.finish();
        let mut cuts = log.barrier_cuts();
        cuts.extend(log.random_cuts(random, 11));
        let (mut old, mut new) = (0, 0);
        for cut in cuts {
            let state = Arc::new(log.device(cut));
            assert_repaired(&state, &expected);
            write_image(&state, image.path()).unwrap();
            // What a boot does.
            let verdict = judge::e2fsck_preen(image.path());
            assert!(verdict.status <= 1, "{shape:?}, {cut}: {}", verdict.output);
            assert_clean(image.path());
            digest(&state).assert_same(&expected);
            match size_of(&state) {
                found if found == done.before => old += 1,
                found if found == done.after => new += 1,
                found => panic!("{shape:?}, {cut}: {found} bytes"),
            }
            support::judge(&state);
            // The next try completes it.
            resized(&state, size * MIB).unwrap();
            assert_eq!(size_of(&state), done.after);
            support::judge(&state);
        }
        println!("{shape:?}: {old} cuts left the old size, {new} the new one");
        assert!(old > 2 && new > 2, "{old} of the old size, {new} of the new one");
    }
}

#[test]
fn what_a_volume_cannot_become_is_refused_and_nothing_is_written() {
    let rows: [(&[&str], u64, u64, &str); 2] = [
        (&["-t", "ext4", "-b", "4096"], 64, 2, "or min"),
        (&["-t", "ext4", "-b", "4096", "-O", "bigalloc", "-C", "16384"], 64, 99, "bigalloc"),
    ];
    for (shape, start, size, said) in rows {
        let before = volume(start * MIB, shape);
        let recording = Recording::start(on_larger(&before, size.max(start) * MIB));
        let runtime = Arc::new(Threads::new());
        let refused = resize::resize(recording.device(), runtime, size * MIB);
        let error = refused.expect_err(said).to_string();
        assert!(error.contains(said), "{error}");
        assert_eq!(recording.finish().flushes(), 0, "{said}: something was written");
    }
}

/// Bytes of the volumes that become smaller.
pub const SPREAD: u64 = 48 * MIB;

/// Shapes of volumes that become smaller.
const SMALLER: &[&[&str]] = &[
    &["-t", "ext4", "-b", "1024", "-J", "size=4"],
    &["-t", "ext4", "-b", "1024", "-J", "size=4", "-O", "^flex_bg,^orphan_file", "-N", "4000"],
    &["-t", "ext4", "-b", "1024", "-J", "size=4", "-O", "^metadata_csum,^64bit,uninit_bg"],
    &["-t", "ext4", "-b", "4096", "-J", "size=8"],
    &["-t", "ext3", "-b", "1024", "-J", "size=4"],
    &["-t", "ext4", "-b", "1024", "-J", "size=4", "-O", "meta_bg,^resize_inode", "-g", "1024"],
    &["-t", "ext4", "-b", "1024", "-J", "size=4", "-O", "sparse_super2"],
    &["-t", "ext2", "-b", "1024"],
    &["-t", "ext4", "-b", "4096", "-O", "^has_journal"],
];
/// Those of which every default run cuts the change.
const CUT: [usize; 4] = [0, 5, 6, 7];

fn has_journal(shape: &[&str]) -> bool {
    !shape.iter().any(|word| ["ext2", "^has_journal"].contains(word))
}

/// Does the superblock say that the volume was unmounted?
pub fn is_marked_clean(device: &MemoryDevice) -> bool {
    const STATE: usize = 58;
    device.read_at(1024, 1024).unwrap()[STATE] & 1 != 0
}

/// A volume with trees, and some of them removed: what is left is spread.
pub fn spread(size: u64, shape: &[&str], seed: u64) -> Arc<MemoryDevice> {
    let device = volume(size, shape);
    let image = tempfile::NamedTempFile::new().unwrap();
    write_image(&device, image.path()).unwrap();
    let kernel = KernelMount::new(image.path(), "");
    for part in 0..6 {
        let directory = kernel.path().join(format!("part{part}"));
        std::fs::create_dir(&directory).unwrap();
        let spec = TreeSpec { size_max: 200_000, ..TreeSpec::small(seed * 10 + part) };
        build(&PathTarget::new(&directory), &plan(&spec));
        // Fragments, and a map with more than a leaf.
        let pieces = std::fs::File::create(directory.join("pieces")).unwrap();
        for piece in 0..400 {
            pieces.write_all_at(&[7; 1024], piece * 8192 + part * 31).unwrap();
        }
    }
    for part in 0..3 {
        std::fs::remove_dir_all(kernel.path().join(format!("part{part}"))).unwrap();
    }
    kernel.unmount();
    Arc::new(read_image(image.path()).unwrap())
}

#[test]
fn a_volume_shrinks_and_grows_in_steps_and_keeps_its_files() {
    let seeds = if std::env::var_os("CAIRN_DEEP").is_some() { 0..40 } else { 0..1 };
    for (seed, shape) in seeds.flat_map(|seed| SMALLER.iter().map(move |shape| (seed, shape))) {
        let mut rng = fastrand::Rng::with_seed(seed);
        let mut device = spread(SPREAD, shape, seed);
        let expected = digest(&device);
        let image = tempfile::NamedTempFile::new().unwrap();
        let mut steps = vec![None];
        steps.extend((0..2).map(|_| Some(rng.u64(20..80))));
        steps.push(None);
        for step in steps {
            let least = least_of(&device);
            let size = step.map_or(least, |step| (step * MIB).max(least));
            println!("seed {seed}, {shape:?}: to {size}, at least {least}");
            device = Arc::new(on_larger(&device, size.max(size_of(&device))));
            let done = resized(&device, size).unwrap();
            assert!(done.after <= size && size_of(&device) == done.after, "{done:?}");
            device = Arc::new(shortened(&device, done.after));
            support::judge(&device);
            digest(&device).assert_same(&expected);
            support::judge(&device);
        }
        write_image(&device, image.path()).unwrap();
        let kernel = KernelMount::new(image.path(), "");
        let seen = digest_path(kernel.path(), SnapshotOptions::default()).unwrap();
        kernel.unmount();
        seen.assert_same(&expected);
        // What resize2fs finds least is not always enough for itself: then it fails.
        judge::run("e2fsck", ["-fy", image.path().to_str().unwrap()]);
        let mut theirs = judge::command("resize2fs");
        let status = theirs.args(["-M".as_ref(), image.path()]).output().unwrap().status;
        let theirs = std::fs::metadata(image.path()).unwrap().len();
        println!("{} bytes, {theirs} by resize2fs ({status})", size_of(&device));
    }
}

pub fn least_of(device: &Arc<MemoryDevice>) -> u64 {
    resize::least(device.clone(), Arc::new(Threads::new())).unwrap()
}

/// The first bytes of a device.
pub fn shortened(image: &MemoryDevice, size: u64) -> MemoryDevice {
    let file = tempfile::NamedTempFile::new().unwrap();
    write_image(image, file.path()).unwrap();
    file.as_file().set_len(size).unwrap();
    read_image(file.path()).unwrap()
}

#[test]
fn a_power_cut_while_a_volume_shrinks_costs_no_file() {
    let deep = std::env::var_os("CAIRN_DEEP").is_some();
    for (_, shape) in (0..).zip(SMALLER).filter(|(number, _)| deep || CUT.contains(number)) {
        let before = spread(SPREAD, shape, 3);
        let expected = digest(&before);
        let least = least_of(&before);
        let recording = Recording::start(before.fork());
        let runtime = Arc::new(Threads::new());
        let done = resize::resize(recording.device(), runtime, least).unwrap();
        let log = recording.finish();
        let mut cuts = log.barrier_cuts();
        let every = if deep { 1 } else { cuts.len().div_ceil(6) };
        let last = cuts.last().copied();
        cuts = cuts.into_iter().step_by(every).chain(last).collect();
        let random = if has_journal(shape) { 2 } else { 12 };
        cuts.extend(log.random_cuts(if deep { 100 } else { random }, 17));
        let mut unfinished = 0;
        let image = tempfile::NamedTempFile::new().unwrap();
        let (mut old, mut between, mut new) = (0, 0, 0);
        for cut in cuts {
            let state = Arc::new(log.device(cut));
            assert_repaired(&state, &expected);
            let repaired = if has_journal(shape) {
                write_image(&state, image.path()).unwrap();
                let verdict = judge::e2fsck_preen(image.path());
                assert!(verdict.status <= 1, "{shape:?}, {cut}: {}", verdict.output);
                assert_clean(image.path());
                Arc::new(read_image(image.path()).unwrap())
            } else {
                unfinished += u32::from(!is_marked_clean(&state));
                // What is read only is the same as what the next change finishes.
                let read_only = open(&state, "ro");
                let seen = digest_volume(&*read_only, SnapshotOptions::default()).unwrap();
                seen.assert_same(&expected);
                size_of(&state);
                state
            };
            digest(&repaired).assert_same(&expected);
            support::judge(&repaired);
            match size_of(&repaired) {
                found if found == done.before => old += 1,
                found if found == done.after => new += 1,
                found if found < done.before && found > done.after => between += 1,
                found => panic!("{shape:?}, {cut}: {found} bytes"),
            }
            // e2fsck drops a journal that was moving.
            if has_journal(shape) {
                let journal =
                    TuneOptions { features: vec!["has_journal".into()], ..TuneOptions::default() };
                tune(repaired.clone(), Arc::new(Threads::new()), &journal).unwrap();
            }
            resized(&repaired, least_of(&repaired)).unwrap();
            support::judge(&repaired);
            digest(&repaired).assert_same(&expected);
        }
        println!("{shape:?}: {old} cuts left the old size, {new} the new one, {between} another");
        match has_journal(shape) {
            true => assert!(old > 1 && new > 0),
            false => assert!(old > 0 && new > 0 && unfinished > 1, "{unfinished} unfinished"),
        }
    }
}

/// Every write and every flush fails in turn, and all later ones.
#[test]
fn a_write_that_fails_costs_no_file() {
    let deep = std::env::var_os("CAIRN_DEEP").is_some();
    let grown =
        on_larger(&filled(20 * MIB, &["-t", "ext4", "-b", "1024", "-J", "size=4"], 5), 70 * MIB);
    let spread = spread(SPREAD, SMALLER[0], 3);
    let least = least_of(&spread);
    for (before, size) in [(Arc::new(grown), 70 * MIB), (spread, least)] {
        let expected = digest(&before);
        for operation in [Operation::Write, Operation::Flush] {
            let run =
                |fault: &Arc<Fault>| resize::resize(fault.clone(), Arc::new(Threads::new()), size);
            let counted = Arc::new(Fault::new(Arc::new(before.fork())));
            let done = run(&counted).unwrap();
            let count = counted.count(operation);
            let step = if deep { 1 } else { count.div_ceil(5) };
            for nth in (1..=count).step_by(usize::try_from(step).unwrap()) {
                let state = Arc::new(before.fork());
                let fault = Arc::new(Fault::new(state.clone()));
                fault.fail(operation, nth, Lasting::Forever);
                assert!(run(&fault).is_err(), "{size}: {operation:?} {nth} of {count}");
                let image = tempfile::NamedTempFile::new().unwrap();
                write_image(&state, image.path()).unwrap();
                let verdict = judge::e2fsck_preen(image.path());
                assert!(verdict.status <= 1, "{operation:?} {nth}: {}", verdict.output);
                judge::assert_clean(image.path());
                let repaired = Arc::new(read_image(image.path()).unwrap());
                digest(&repaired).assert_same(&expected);
                // A fault while the journal moves costs the journal.
                let journal =
                    TuneOptions { features: vec!["has_journal".into()], ..TuneOptions::default() };
                tune(repaired.clone(), Arc::new(Threads::new()), &journal).unwrap();
                resized(&repaired, done.after.max(least_of(&repaired))).unwrap();
                support::judge(&repaired);
                digest(&repaired).assert_same(&expected);
            }
        }
    }
}
