//! Failing devices: `cairn_testkit::faults` with fsck.f2fs as the judge.

use std::sync::Arc;

use cairn_base::Ino;
use cairn_base::runtime::simulated::Simulated;
use cairn_block::memory::MemoryDevice;
use cairn_block::wrap::{Fault, Lasting, Operation};
use cairn_block::{BlockDevice, BlockDeviceExt};
use cairn_f2fs::{F2fs, MountOptions};
use cairn_testkit::crash::write_image;
use cairn_testkit::deep;
use cairn_testkit::faults::{
    FaultSubject, check_going_on, check_recovery, create, every_fault, is_told, kept, prepare,
    write,
};
use cairn_testkit::judge::fsck_f2fs;
use cairn_testkit::modes::MODES;
use cairn_vfs::{
    AllocateMode, Caller, Error, FileSystem, IoFlags, NewInode, OpenMode, RenameMode, Result,
    SetAttributes,
};

use crate::support::{FOLDED, judge, volume, with_zones};
use crate::worn::Worn;

fn open(device: Arc<dyn BlockDevice>, options: &str) -> (Arc<F2fs>, Arc<Simulated>) {
    let simulated = Simulated::new(1);
    (open_simulated(device, &simulated, options), simulated)
}

fn open_simulated(
    device: Arc<dyn BlockDevice>,
    simulated: &Arc<Simulated>,
    options: &str,
) -> Arc<F2fs> {
    let options = MountOptions::parse(options).unwrap();
    F2fs::open(with_zones(device), simulated.clone(), &options).unwrap()
}

/// A volume with one synced file.
fn prepared() -> Arc<MemoryDevice> {
    with_kept(volume(64 << 20, &[]))
}

fn with_kept(device: Arc<MemoryDevice>) -> Arc<MemoryDevice> {
    prepare(&Subject, &device);
    device
}

struct Subject;

impl FaultSubject for Subject {
    fn open(
        &self,
        device: Arc<dyn BlockDevice>,
        simulated: &Arc<Simulated>,
        options: &str,
    ) -> Arc<dyn FileSystem> {
        open_simulated(device, simulated, options)
    }

    fn workload(&self, fs: &dyn FileSystem, simulated: &Simulated) -> Result<()> {
        workload(fs, simulated)
    }

    fn left(&self, device: MemoryDevice, named: &str) -> Vec<Arc<MemoryDevice>> {
        let image = tempfile::NamedTempFile::new_in("/dev/shm").unwrap();
        write_image(&device, image.path()).unwrap();
        let output = fsck_f2fs(image.path()).output;
        // A pack that was not written completely is no error if the other one is valid.
        let damage = ["[ASSERT]", "[FIX]", "[Fail]", "Corrupted"];
        assert!(!damage.iter().any(|mark| output.contains(mark)), "{named}:\n{output}");
        vec![Arc::new(device)]
    }

    fn judge(&self, device: &MemoryDevice, _named: &str) {
        judge(device);
    }
}

/// It touches every kind of write: data, nodes for roll-forward, checkpoints, directories, the
/// superblock.
fn workload(fs: &dyn FileSystem, simulated: &Simulated) -> Result<()> {
    for round in 0..3_u8 {
        let ino = create(fs, &format!("file{round}"))?;
        write(fs, ino, 0, &[round + 1; 40_000])?;
        fs.fsync(ino, 0, false)?;
        write(fs, ino, 5 << 20, &[round + 1; 5000])?;
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

#[test]
fn every_write_and_flush_of_a_run_may_fail() {
    let step = if deep() { 1 } else { 8 };
    let before = prepared();
    assert!(every_fault(&Subject, &before, Operation::Write, step, "") > 10);
    assert!(every_fault(&Subject, &before, Operation::Flush, step.min(2), "") > 4);
    assert!(every_fault(&Subject, &before, Operation::Write, step + 2, "mode=lfs,cache=1M") > 8);
    every_fault(&Subject, &before, Operation::Read, step.min(3), "cache=1M");
    let folded = with_kept(volume(64 << 20, FOLDED));
    assert!(every_fault(&Subject, &folded, Operation::Write, step + 4, "") > 5);
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
        workload(&*fs, &simulated).unwrap();
        let cleaned = fs.gc_stats().data_sections.get();
        assert!(cleaned > 0 || !mode.is_lfs(), "{mode:?}: nothing was cleaned");
        fs.unmount().unwrap();
        drop(fs);
        assert!(every_fault(&Subject, &before, Operation::Write, step, options) > 4, "{mode:?}");
        assert!(
            every_fault(&Subject, &before, Operation::Flush, step.div_ceil(3), options) > 2,
            "{mode:?}"
        );
        every_fault(&Subject, &before, Operation::Read, step.div_ceil(2), options);
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
        let ino = create(&*fs, "file").unwrap();
        fs.write(ino, 0, &[1; 40_960], IoFlags::empty()).unwrap();
        fs.fsync(ino, 0, false).unwrap();
        fault.fail(Operation::Write, fault.count(Operation::Write) + 1, Lasting::Once);
        let error = change(&fs, ino).expect_err("the device takes nothing");
        assert!(is_told(&error), "{named}: told as {error}");
        change(&fs, ino).unwrap_or_else(|error| panic!("{named}: the fault is over: {error}"));
        check_going_on(&*fs, named);
        drop(fs);
        check_recovery(&Subject, &memory, named, true);
    }
}

/// A failed write in the background: each open handle gets the error once, and the data is kept and
/// written by the next write-back.
#[test]
fn each_handle_hears_of_a_failed_write_once() {
    let memory = prepared();
    let fault = Arc::new(Fault::new(memory.clone()));
    let (fs, _) = open(fault.clone(), "");
    let ino = kept(&*fs);
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
