//! Failing devices: each error is reported with its reason, nothing hangs or panics, and the volume
//! can be recovered.

use std::sync::Arc;
use std::time::Duration;

use cairn_base::Ino;
use cairn_base::runtime::simulated::Simulated;
use cairn_block::BlockDevice;
use cairn_block::memory::MemoryDevice;
use cairn_block::wrap::Fault;
use cairn_block::wrap::{Lasting, Operation};
use cairn_ext4::Ext4;
use cairn_testkit::crash::{read_image, write_image};
use cairn_testkit::judge::e2fsck_preen;
use cairn_vfs::{
    Caller, Error, FileExtent, FileSystem, IoFlags, NewInode, OpenMode, RenameMode, Result,
    SetAttributes,
};

use crate::expect::read_all;
use crate::pattern;
use crate::run::{format, open, shm};
use crate::search::clean;

/// Contents that were synced before the fault.
const KEPT: &str = "kept";
const LEN: u64 = 20_480;
/// A file that is made and synced after the fault.
const LATER: &str = "later";

fn create(fs: &Ext4, name: &str) -> Result<Ino> {
    Ok(fs.create(fs.root(), name.as_bytes(), NewInode::Regular, 0o644, &Caller::ROOT)?.ino)
}

fn write(fs: &Ext4, ino: Ino, id: u16, offset: u64, len: u64) -> Result<()> {
    let data = pattern::fill(id, 1, offset, len);
    let done = fs.write(ino, offset, &data, IoFlags::empty())?;
    assert_eq!(done, data.len(), "a short write without a reason");
    Ok(())
}

/// A short run that touches every kind of write: log, commit record, data, checkpoint, orphans,
/// superblock.
fn workload(fs: &Ext4, simulated: &Simulated) -> Result<()> {
    for round in 0..3_u16 {
        let name = format!("file{round}");
        let ino = create(fs, &name)?;
        write(fs, ino, 10 + round, 0, 16_384)?;
        fs.fsync(ino, 0, false)?;
        fs.setattr(ino, &SetAttributes { size: Some(4096), ..SetAttributes::default() })?;
        let dir = fs.create(
            fs.root(),
            format!("dir{round}").as_bytes(),
            NewInode::Directory,
            0o755,
            &Caller::ROOT,
        )?;
        fs.rename(fs.root(), name.as_bytes(), dir.ino, b"moved", RenameMode::Replace)?;
        fs.sync()?;
        simulated.run_until_idle();
        fs.unlink(dir.ino, b"moved")?;
        fs.forget(ino, 1);
        fs.rmdir(fs.root(), format!("dir{round}").as_bytes())?;
        fs.forget(dir.ino, 1);
    }
    fs.sync()
}

/// A volume with one synced file.
fn prepared(args: &[&str], megabytes: u64) -> MemoryDevice {
    let dir = shm();
    let device = format(dir.path(), args, megabytes);
    let fs = open(Arc::new(device.fork()), Simulated::new(1), "").expect("it opens");
    drop(fs);
    let shared = Arc::new(device);
    let fs = open(shared.clone(), Simulated::new(1), "").expect("it opens");
    let ino = create(&fs, KEPT).expect("the device works");
    write(&fs, ino, 1, 0, LEN).expect("the device works");
    fs.unmount().expect("the device works");
    drop(fs);
    shared.fork()
}

fn is_told(error: &Error) -> bool {
    matches!(error, Error::Io(_) | Error::ReadOnly(_))
}

/// After a fault of one file or one call, all other calls succeed, and data that is synced then is
/// durable.
fn check_going_on(fs: &Ext4, kept: Ino, named: &str) {
    let ino = create(fs, LATER).unwrap_or_else(|error| panic!("{named}: another file: {error}"));
    write(fs, ino, 2, 0, LEN).unwrap_or_else(|error| panic!("{named}: another file: {error}"));
    fs.fsync(ino, 0, false).unwrap_or_else(|error| panic!("{named}: another file: {error}"));
    let mut buf = vec![0; usize::try_from(LEN).expect("small")];
    assert_eq!(
        fs.read(kept, 0, &mut buf, IoFlags::empty()).expect("others can be read"),
        buf.len(),
        "{named}"
    );
    // Failed writes are retried.
    fs.sync().unwrap_or_else(|error| panic!("{named}: the fault is over: {error}"));
    fs.unmount().unwrap_or_else(|error| panic!("{named}: the fault is over: {error}"));
}

/// After a failed change the volume gives the reason in each refusal, and cached data can still be
/// read.
fn check_stopped(fs: &Ext4, kept: Ino, named: &str) {
    let reason = fs.read_only_reason().map(|reason| reason.to_string());
    let error = create(fs, LATER).expect_err("a stopped volume takes no change");
    let text = error.to_string();
    assert!(is_told(&error), "{named}: a later change failed with {text} ({:?})", error.errno());
    assert!(
        text.contains("injected fault"),
        "{named}: the reason is not told: {text} (stopped: {reason:?})"
    );
    let mut buf = vec![0; usize::try_from(LEN).expect("small")];
    assert_eq!(
        fs.read(kept, 0, &mut buf, IoFlags::empty()).expect("cached data can be read"),
        buf.len(),
        "{named}"
    );
    pattern::check(1, &buf, 0).unwrap_or_else(|error| panic!("{named}: {error}"));
}

/// e2fsck and Cairn each recover the volume after the fault, with everything that was synced
/// before.
fn check_again(device: &MemoryDevice, named: &str, later: bool) {
    let dir = shm();
    let image = dir.path().join("left");
    write_image(device, &image).expect("the image is written");
    let verdict = e2fsck_preen(&image);
    assert!(
        (0..=1).contains(&verdict.status),
        "{named}: e2fsck -p exits {}:\n{}",
        verdict.status,
        verdict.output
    );
    clean(&image, "after e2fsck -p").unwrap_or_else(|error| panic!("{named}: {error}"));
    let preened = Arc::new(read_image(&image).expect("the image is there"));
    for device in [preened, Arc::new(device.fork())] {
        let fs = open(device.clone(), Simulated::new(3), "")
            .unwrap_or_else(|error| panic!("{named}: {error}"));
        let found = read_all(&*fs).unwrap_or_else(|error| panic!("{named}: {error}"));
        let Some(crate::expect::Found::File { bytes, .. }) = found.get(KEPT) else {
            panic!("{named}: file lost")
        };
        assert_eq!(bytes[..], pattern::fill(1, 1, 0, LEN)[..], "{named}");
        assert!(
            !later || found.contains_key(LATER),
            "{named}: a file that was fsynced after the fault is lost"
        );
        fs.unmount().unwrap_or_else(|error| panic!("{named}: {error}"));
        drop(fs);
        write_image(&*device, &image).expect("the image is written");
        clean(&image, "after the fault").unwrap_or_else(|error| panic!("{named}: {error}"));
    }
}

/// One run with one fault. False if the run ended before the fault.
fn run_with(
    before: &MemoryDevice,
    options: &str,
    operation: Operation,
    nth: u64,
    lasting: Lasting,
) -> bool {
    let named = format!("{operation:?} number {nth} fails ({lasting:?}) with `{options}`");
    let memory = Arc::new(before.fork());
    let fault = Arc::new(Fault::new(memory.clone()));
    let device: Arc<dyn BlockDevice> = fault.clone();
    let simulated = Simulated::new(1);
    let fs = open(device, simulated.clone(), options).expect("it opens");
    let kept = fs.lookup(fs.root(), KEPT.as_bytes()).expect("it is there").ino;
    let mut buf = vec![0; usize::try_from(LEN).expect("small")];
    fs.read(kept, 0, &mut buf, IoFlags::empty()).expect("it is read into the cache");
    let first = fault.count(operation);
    fault.fail(operation, first + nth, lasting);
    let outcome = workload(&fs, &simulated);
    let mut went_on = false;
    let came = fault.count(operation) >= first + nth;
    match outcome {
        Err(error) => {
            assert!(came, "{named}: the workload failed without a fault: {error}");
            assert!(is_told(&error), "{named}: told as {error}");
            if fs.read_only_reason().is_none() && lasting == Lasting::Once {
                check_going_on(&fs, kept, &named);
                went_on = true;
            } else if operation != Operation::Read {
                // A device that refuses all writes also refuses commits.
                assert!(fs.sync().is_err(), "{named}: a volume is durable that cannot be");
                check_stopped(&fs, kept, &named);
            }
        }
        // No call waits for some writes, but the unmount must report the error.
        Ok(()) if came && operation != Operation::Read => {
            let end = fs.unmount();
            assert!(end.is_err() || fs.read_only_reason().is_some(), "{named}: nobody was told");
        }
        Ok(()) => {}
    }
    // Closing after an error must not hang or panic; it may fail again.
    let _ = fs.unmount();
    drop(fs);
    fault.clear();
    if came {
        check_again(&memory, &named, went_on);
    }
    came
}

/// Each n-th request of a short run fails, once and from then on.
pub fn every_fault(
    args: &[&str],
    megabytes: u64,
    operation: Operation,
    step: u64,
    options: &str,
) -> u64 {
    let before = prepared(args, megabytes);
    let mut nth = 1;
    let mut runs = 0;
    while run_with(&before, options, operation, nth, Lasting::Once) {
        run_with(&before, options, operation, nth, Lasting::Forever);
        nth += step;
        runs += 2;
    }
    runs
}

/// A failed write in the background: each open handle gets the error once, and the data is kept and
/// written by the next write-back.
#[test]
fn each_handle_hears_of_a_failed_write_once() {
    let fault = Arc::new(Fault::new(Arc::new(prepared(&["-t", "ext4"], 16))));
    let simulated = Simulated::new(1);
    let fs = open(fault.clone(), simulated.clone(), "").unwrap();
    let ino = fs.lookup(fs.root(), KEPT.as_bytes()).unwrap().ino;
    let mode = OpenMode { write: true, ..OpenMode::default() };
    let handles = [fs.open(ino, mode).unwrap(), fs.open(ino, mode).unwrap(), 0];
    let mut place = 0;
    let mut first = |extent: FileExtent| {
        place = extent.physical;
        false
    };
    fs.extents(ino, 0, 4096, true, &mut first).unwrap();
    fs.write(ino, 0, &[1; 4096], IoFlags::empty()).unwrap();
    fault.fail_range(Operation::Write, place..place + 4096);
    // Until write-back finds it old enough.
    simulated.advance(Duration::from_secs(60));
    fault.clear();
    for handle in handles {
        let told = fs.fsync(ino, handle, false).expect_err("this handle has not heard of it");
        assert!(
            matches!(told, Error::Io(_)) && told.to_string().contains("injected fault"),
            "told as {told}"
        );
        fs.fsync(ino, handle, false).expect("this handle has heard of it");
    }
    let late = fs.open(ino, mode).unwrap();
    fs.fsync(ino, late, false).expect("others have heard of it");
    let mut buf = [0; 4096];
    fs.read(ino, 0, &mut buf, IoFlags::DIRECT).unwrap();
    assert_eq!(buf, [1; 4096]);
    [handles[0], handles[1], late].into_iter().for_each(|handle| fs.release(ino, handle));
    fs.unmount().unwrap();
}
