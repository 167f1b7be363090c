//! Failing devices: each error is reported with its reason, nothing hangs or panics, reads
//! continue, and the contents of the last checkpoint and of later fsyncs can be recovered.

use std::sync::Arc;

use cairn_base::Ino;
use cairn_base::runtime::simulated::Simulated;
use cairn_block::memory::MemoryDevice;
use cairn_block::wrap::{Fault, Lasting, Operation};
use cairn_block::{BlockDevice, BlockDeviceExt};
use cairn_f2fs::{F2fs, MountOptions};
use cairn_testkit::crash::write_image;
use cairn_testkit::deep;
use cairn_testkit::judge::fsck_f2fs;
use cairn_testkit::modes::MODES;
use cairn_vfs::{
    AllocateMode, Caller, Error, FileSystem, IoFlags, NewInode, OpenMode, RenameMode, Result,
    SetAttributes,
};

use crate::support::{judge, volume, with_zones};
use crate::worn::Worn;

const KEPT: &[u8] = b"kept";
const LEN: usize = 20_480;

fn open(device: Arc<dyn BlockDevice>, options: &str) -> (Arc<F2fs>, Arc<Simulated>) {
    let simulated = Simulated::new(1);
    let options = MountOptions::parse(options).unwrap();
    (F2fs::open(with_zones(device), simulated.clone(), &options).unwrap(), simulated)
}

fn create(fs: &F2fs, name: &str) -> Result<Ino> {
    Ok(fs.create(fs.root(), name.as_bytes(), NewInode::Regular, 0o644, &Caller::ROOT)?.ino)
}

fn kept() -> Vec<u8> {
    (0..LEN).map(|at| (at / 7) as u8).collect()
}

/// A volume with one synced file.
fn prepared() -> Arc<MemoryDevice> {
    with_kept(volume(64 << 20, &[]))
}

fn with_kept(device: Arc<MemoryDevice>) -> Arc<MemoryDevice> {
    let (fs, _) = open(device.clone(), "");
    let ino = create(&fs, "kept").unwrap();
    assert_eq!(fs.write(ino, 0, &kept(), IoFlags::empty()).unwrap(), LEN);
    fs.unmount().unwrap();
    device
}

/// A short run that touches every kind of write: data, nodes for roll-forward, checkpoints,
/// directories, the superblock.
fn workload(fs: &F2fs, simulated: &Simulated) -> Result<()> {
    for round in 0..3_u8 {
        let ino = create(fs, &format!("file{round}"))?;
        fs.write(ino, 0, &[round + 1; 40_000], IoFlags::empty())?;
        fs.fsync(ino, 0, false)?;
        fs.write(ino, 5 << 20, &[round + 1; 5000], IoFlags::empty())?;
        fs.fsync(ino, 0, true)?;
        fs.setattr(ino, &SetAttributes { size: Some(30_000), ..SetAttributes::default() })?;
        fs.allocate(ino, AllocateMode::InsertRange, 4096, 8192)?;
        let dir = fs
            .create(fs.root(), &[b'd', b'0' + round], NewInode::Directory, 0o755, &Caller::ROOT)?
            .ino;
        for name in 0..30 {
            let made =
                fs.create(dir, &[b'n', b'A' + name], NewInode::Regular, 0o600, &Caller::ROOT)?;
            fs.forget(made.ino, 1);
        }
        fs.rename(
            fs.root(),
            format!("file{round}").as_bytes(),
            dir,
            b"moved",
            RenameMode::Replace,
        )?;
        fs.sync()?;
        simulated.run_until_idle();
        fs.unlink(dir, b"moved")?;
        fs.forget(ino, 1);
        fs.forget(dir, 1);
    }
    fs.set_label(b"another")?;
    fs.sync()
}

fn is_told(error: &Error) -> bool {
    matches!(error, Error::Io(_) | Error::ReadOnly(_))
}

/// After a fault of one file or one call, all other calls succeed, and data that is synced then is
/// durable.
fn check_going_on(fs: &F2fs, named: &str) {
    let go_on = || {
        let ino = create(fs, "later")?;
        fs.write(ino, 0, &kept(), IoFlags::empty())?;
        fs.fsync(ino, 0, false)?;
        check_kept(fs, named);
        // Failed writes are retried.
        fs.sync()?;
        fs.unmount()
    };
    go_on().unwrap_or_else(|error: Error| {
        panic!("{named}: the fault is over, and the volume not stopped: {error}")
    });
}

/// A stopped volume gives the reason in each refusal, and can still be read.
fn check_stopped(fs: &F2fs, named: &str) {
    let Err(error) = create(fs, "later") else {
        panic!("{named}: a stopped volume takes a change")
    };
    assert!(matches!(error, Error::ReadOnly(_)), "{named}: a later change failed with {error:?}");
    assert!(
        error.to_string().contains("injected fault"),
        "{named}: the reason is not told: {error}"
    );
    let reason = format!("{:?}", fs.report().get("state.read_only_reason"));
    assert!(reason.contains("injected fault"), "{named}: stats say {reason}");
    check_kept(fs, named);
}

fn check_kept(fs: &F2fs, named: &str) {
    let found = fs.lookup(fs.root(), KEPT).unwrap_or_else(|error| panic!("{named}: {error}"));
    let mut buf = vec![0; LEN];
    assert_eq!(fs.read(found.ino, 0, &mut buf, IoFlags::empty()).unwrap(), LEN, "{named}");
    assert!(buf == kept(), "{named}: other contents");
}

/// fsck.f2fs finds nothing on the medium, before and after Cairn has recovered it.
fn check_again(memory: &Arc<MemoryDevice>, named: &str, later: bool) {
    let image = tempfile::NamedTempFile::new_in("/dev/shm").unwrap();
    write_image(&**memory, image.path()).unwrap();
    let output = fsck_f2fs(image.path()).output;
    // A pack that was not written completely is no error if the other one is valid.
    let faults = ["[ASSERT]", "[FIX]", "[Fail]", "Corrupted"];
    assert!(!faults.iter().any(|fault| output.contains(fault)), "{named}:\n{output}");
    let (fs, _) = open(memory.clone(), "");
    check_kept(&fs, named);
    let found = fs.lookup(fs.root(), b"later").is_ok();
    assert!(!later || found, "{named}: a file that was fsynced after the fault is lost");
    fs.unmount().unwrap_or_else(|error| panic!("{named}: {error}"));
    drop(fs);
    judge(memory);
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
    let (fs, simulated) = open(fault.clone(), options);
    check_kept(&fs, &named);
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
                check_going_on(&fs, &named);
                went_on = true;
            } else if operation != Operation::Read {
                // A device that refuses all writes also refuses checkpoints.
                assert!(fs.sync().is_err(), "{named}: a volume is durable that cannot be");
                check_stopped(&fs, &named);
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

fn every_fault(before: &MemoryDevice, operation: Operation, step: u64, options: &str) -> u64 {
    let (mut nth, mut runs) = (1, 0);
    while run_with(before, options, operation, nth, Lasting::Once) {
        run_with(before, options, operation, nth, Lasting::Forever);
        nth += step;
        runs += 2;
    }
    runs
}

#[test]
fn every_write_and_flush_of_a_run_may_fail() {
    let step = if deep() { 1 } else { 8 };
    let before = prepared();
    assert!(every_fault(&before, Operation::Write, step, "") > 10);
    assert!(every_fault(&before, Operation::Flush, step.min(2), "") > 4);
    assert!(every_fault(&before, Operation::Write, step + 2, "mode=lfs,cache=1M") > 8);
    every_fault(&before, Operation::Read, step.min(3), "cache=1M");
}

/// On a volume whose sections are cleaned during the run.
#[test]
fn every_mode_tells_of_what_fails() {
    let step = if deep() { 1 } else { 23 };
    for mode in &MODES {
        let before = with_kept(Worn::new(mode, 64 << 20).make());
        let options = ["cache=1M", mode.options].join(",");
        let options = options.trim_end_matches(',');
        let (fs, simulated) = open(Arc::new(before.fork()), options);
        workload(&fs, &simulated).unwrap();
        let cleaned = fs.gc_stats().data_sections.get();
        assert!(cleaned > 0 || !mode.is_lfs(), "{mode:?}: nothing was cleaned");
        fs.unmount().unwrap();
        drop(fs);
        assert!(every_fault(&before, Operation::Write, step, options) > 4, "{mode:?}");
        assert!(every_fault(&before, Operation::Flush, step.div_ceil(3), options) > 2, "{mode:?}");
        every_fault(&before, Operation::Read, step.div_ceil(2), options);
    }
}

/// A truncation or a move writes a part of the file first: if this fails, so does the call, and the
/// next attempt succeeds.
#[test]
fn a_change_that_cannot_write_is_told_and_can_be_tried_again() {
    let before = prepared();
    let cut = |fs: &F2fs, ino| {
        let set = SetAttributes { size: Some(30_001), ..SetAttributes::default() };
        fs.setattr(ino, &set).map(drop)
    };
    let shift = |fs: &F2fs, ino| fs.allocate(ino, AllocateMode::InsertRange, 4096, 8192);
    type Change<'a> = &'a dyn Fn(&F2fs, Ino) -> Result<()>;
    let changes: [(&str, Change<'_>); 2] = [("cut", &cut), ("shift", &shift)];
    for (named, change) in changes {
        let memory = Arc::new(before.fork());
        let fault = Arc::new(Fault::new(memory.clone()));
        let (fs, _) = open(fault.clone(), "");
        let ino = create(&fs, "file").unwrap();
        fs.write(ino, 0, &[1; 40_960], IoFlags::empty()).unwrap();
        fs.fsync(ino, 0, false).unwrap();
        fault.fail(Operation::Write, fault.count(Operation::Write) + 1, Lasting::Once);
        let error = change(&fs, ino).expect_err("the device takes nothing");
        assert!(is_told(&error), "{named}: told as {error}");
        change(&fs, ino).unwrap_or_else(|error| panic!("{named}: the fault is over: {error}"));
        check_going_on(&fs, named);
        drop(fs);
        check_again(&memory, named, true);
    }
}

/// A failed write in the background: each open handle gets the error once, and the data is kept and
/// written by the next write-back.
#[test]
fn each_handle_hears_of_a_failed_write_once() {
    let memory = prepared();
    let fault = Arc::new(Fault::new(memory.clone()));
    let (fs, _) = open(fault.clone(), "");
    let ino = fs.lookup(fs.root(), KEPT).unwrap().ino;
    let mode = OpenMode { write: true, ..OpenMode::default() };
    let handles = [fs.open(ino, mode).unwrap(), fs.open(ino, mode).unwrap()];
    fs.write(ino, 0, &[1; 4096], IoFlags::empty()).unwrap();
    fault.fail(Operation::Write, fault.count(Operation::Write) + 1, Lasting::Once);
    assert!(fs.sync().is_err());
    let inode = fs.inodes().inode(ino).unwrap();
    for handle in handles {
        let missed = inode.cache.errors().check_and_advance(handle);
        assert!(missed.is_some_and(|error| error.to_string().contains("injected fault")));
        assert!(inode.cache.errors().check_and_advance(handle).is_none());
        fs.fsync(ino, handle, false).expect("this handle has heard of it");
        fs.release(ino, handle);
    }
    fs.unmount().unwrap();
    drop(fs);
    let block = memory.read_at(1024, 4).unwrap();
    assert_eq!(&block[..], &0xF2F5_2010_u32.to_le_bytes());
    let (fs, _) = open(Arc::new(memory.fork()), "ro");
    let mut buf = [0; 4096];
    fs.read(ino, 0, &mut buf, IoFlags::empty()).unwrap();
    assert_eq!(buf, [1; 4096]);
    judge(&memory);
}

#[test]
fn a_label_is_set_in_both_superblocks() {
    let device = prepared();
    let (fs, _) = open(device.clone(), "");
    fs.set_label("κάιρν".as_bytes()).unwrap();
    assert_eq!(fs.label().unwrap(), "κάιρν".as_bytes());
    assert!(matches!(fs.set_label(&[b'x'; 512]), Err(Error::Invalid(_))));
    assert!(matches!(fs.set_label(&[0xff]), Err(Error::Invalid(_))));
    fs.unmount().unwrap();
    drop(fs);
    let copy = |block: u64| device.read_at(block * 4096 + 1024, 3072).unwrap().to_vec();
    assert_eq!(copy(0), copy(1));
    judge(&device);
    let (fs, _) = open(device, "ro");
    assert_eq!(fs.label().unwrap(), "κάιρν".as_bytes());
    assert!(matches!(fs.set_label(b"no"), Err(Error::ReadOnly(_))));
}
