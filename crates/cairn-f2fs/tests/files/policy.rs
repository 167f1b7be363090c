//! What an error means for those who did not make the call: a bad sector concerns its file, and damage that somebody comes across
//! concerns whoever looked, unless `errors=` says more.

use std::sync::Arc;

use cairn_base::Ino;
use cairn_base::runtime::simulated::Simulated;
use cairn_block::memory::MemoryDevice;
use cairn_block::wrap::{Fault, Operation};
use cairn_block::{BlockDevice, BlockDeviceExt};
use cairn_f2fs::{F2fs, MountOptions};
use cairn_testkit::crash::write_image;
use cairn_testkit::judge::{dump_f2fs, fsck_f2fs_device};
use cairn_vfs::{Caller, Error, FileExtent, FileSystem, IoFlags, NewInode};

use crate::support::{FEATURES, judge, volume};

const OTHERS: u8 = 20;
const LEN: usize = 30_000;
/// `CP_FSCK_FLAG`.
const FSCK_FLAG: u64 = 0x10;

fn open(device: Arc<dyn BlockDevice>, options: &str) -> Arc<F2fs> {
    F2fs::open(device, Simulated::new(1), &MountOptions::parse(options).unwrap()).unwrap()
}

fn create(fs: &F2fs, name: &str) -> Ino {
    fs.create(fs.root(), name.as_bytes(), NewInode::Regular, 0o644, &Caller::ROOT).unwrap().ino
}

fn find(fs: &F2fs, name: &str) -> Ino {
    fs.lookup(fs.root(), name.as_bytes()).unwrap_or_else(|error| panic!("{name}: {error}")).ino
}

fn read(fs: &F2fs, name: &str) -> Vec<u8> {
    let mut buf = vec![0; LEN];
    let done = fs.read(find(fs, name), 0, &mut buf, IoFlags::empty()).unwrap_or_else(|error| panic!("{name}: {error}"));
    buf.truncate(done);
    buf
}

/// A volume with a synced file, and where that is on the device.
fn with_victim() -> (Arc<MemoryDevice>, u64) {
    let device = volume(64 << 20, FEATURES);
    let fs = open(device.clone(), "");
    let ino = create(&fs, "victim");
    fs.write(ino, 0, &[1; LEN], IoFlags::empty()).unwrap();
    fs.sync().unwrap();
    let mut place = 0;
    let mut first = |extent: FileExtent| {
        place = extent.physical;
        false
    };
    fs.extents(ino, 0, 4096, true, &mut first).unwrap();
    fs.unmount().unwrap();
    (device, place)
}

fn write_others(fs: &F2fs) {
    for number in 0..OTHERS {
        let ino = create(fs, &format!("other {number}"));
        fs.write(ino, 0, &[number; LEN], IoFlags::empty()).unwrap();
    }
}

/// All other files have what was written, on a copy of the device as it is now.
fn check_others(device: &MemoryDevice) {
    let fs = open(Arc::new(device.fork()), "");
    for number in 0..OTHERS {
        assert!(read(&fs, &format!("other {number}")) == vec![number; LEN], "other {number}");
    }
    fs.unmount().unwrap();
}

fn is_injected(error: &Error) -> bool {
    matches!(error, Error::Io(_)) && error.to_string().contains("injected fault")
}

/// One file of 21 has a sector that cannot be written. `sync` writes the other twenty and says so of that one; whoever unmounts
/// hears of it, and the volume is clean.
#[test]
fn a_sector_that_cannot_be_written_concerns_its_file() {
    let (device, place) = with_victim();
    let fault = Arc::new(Fault::new(device.clone()));
    let fs = open(fault.clone(), "");
    fault.fail_range(Operation::Write, place..place + 512);
    fs.write(find(&fs, "victim"), 0, &[9; 100], IoFlags::empty()).unwrap();
    write_others(&fs);
    let told = fs.sync().expect_err("one file is not on the device");
    assert!(is_injected(&told), "told as {told}");
    assert_eq!(fs.read_only_reason(), None);
    check_others(&device);
    let later = create(&fs, "later");
    fs.write(later, 0, &[7; LEN], IoFlags::empty()).unwrap();
    fs.fsync(later, 0, false).unwrap();
    let told = fs.unmount().expect_err("whoever unmounts hears of it");
    assert!(is_injected(&told), "told as {told}");
    drop(fs);
    check_others(&device);
    judge(&device);
}

/// A sector that cannot be read is an answer to whoever reads it, or changes a part of it. Nobody else notices.
#[test]
fn a_sector_that_cannot_be_read_is_an_answer() {
    let (device, place) = with_victim();
    let fault = Arc::new(Fault::new(device.clone()));
    let fs = open(fault.clone(), "");
    fault.fail_range(Operation::Read, place..place + 512);
    write_others(&fs);
    let victim = find(&fs, "victim");
    let told = fs.read(victim, 0, &mut [0; 100], IoFlags::empty()).expect_err("it cannot be read");
    assert!(is_injected(&told), "told as {told}");
    let told = fs.write(victim, 10, b"part", IoFlags::empty()).expect_err("its block cannot be read");
    assert!(is_injected(&told), "told as {told}");
    assert_eq!(fs.read_only_reason(), None);
    fs.sync().unwrap();
    fs.unmount().unwrap();
    drop(fs);
    check_others(&device);
    judge(&device);
}

/// A volume in which one inode is damaged, mounted, with three new files that are not synced.
fn with_damaged_inode(options: &str) -> (Arc<MemoryDevice>, Arc<F2fs>) {
    let (device, _) = with_victim();
    let fs = open(device.clone(), "ro");
    let nid = cairn_f2fs::format::Nid::of(find(&fs, "victim")).unwrap();
    let at = fs.disk().nat.lookup(nid).unwrap().block_addr.bytes();
    drop(fs);
    // The access time: only the checksum can tell.
    let mut block = device.read_at(at, 4096).unwrap();
    block[32] ^= 0x55;
    device.write_at(at, block).unwrap();
    let fs = open(device.clone(), options);
    for number in 0..3_u8 {
        let ino = create(&fs, &format!("new {number}"));
        fs.write(ino, 0, &[number; LEN], IoFlags::empty()).unwrap();
    }
    (device, fs)
}

fn look_at_victim(fs: &F2fs) {
    let told = fs.lookup(fs.root(), b"victim").expect_err("the inode is damaged");
    assert!(matches!(told, Error::Corrupt(_)), "told as {told}");
}

fn new_files(device: &MemoryDevice) -> usize {
    let fs = open(Arc::new(device.fork()), "ro");
    let whole = |number: &u8| {
        let name = format!("new {number}");
        fs.lookup(fs.root(), name.as_bytes()).is_ok() && read(&fs, &name) == vec![*number; LEN]
    };
    (0..3_u8).filter(whole).count()
}

fn checkpoint_flags(device: &MemoryDevice) -> u64 {
    let image = tempfile::NamedTempFile::new_in("/dev/shm").unwrap();
    write_image(device, image.path()).unwrap();
    dump_f2fs(image.path())["ckpt_flags"]
}

/// The caller is told, the next checkpoint asks for fsck.f2fs, everybody goes on.
#[test]
fn a_damaged_inode_is_noted_and_loses_nothing_of_others() {
    let (device, fs) = with_damaged_inode("");
    look_at_victim(&fs);
    assert_eq!(fs.read_only_reason(), None);
    fs.sync().unwrap();
    fs.unmount().unwrap();
    drop(fs);
    assert_eq!(new_files(&device), 3);
    assert!(checkpoint_flags(&device) & FSCK_FLAG != 0);
    // It finds the inode, and nothing else.
    let found = fsck_f2fs_device(&device).output;
    let asserts: Vec<&str> = found.lines().filter(|line| line.contains("[ASSERT]")).collect();
    assert!(asserts.len() == 1 && asserts[0].contains("chksum"), "{found}");
}

/// A volume with an unlinked file that is still open, as a power cut would leave it, and where the file's node is.
fn with_orphan() -> (Arc<MemoryDevice>, u64) {
    let (device, _) = with_victim();
    let fs = open(device.clone(), "");
    let nid = cairn_f2fs::format::Nid::of(find(&fs, "victim")).unwrap();
    fs.unlink(fs.root(), b"victim").unwrap();
    fs.freeze().unwrap();
    let left = Arc::new(device.fork());
    let at = fs.disk().nat.lookup(nid).unwrap().block_addr.bytes();
    fs.unmount().unwrap();
    (left, at)
}

/// An orphan that the device cannot read stays recorded, and keeps nobody from mounting; once it can be read, it goes.
#[test]
fn an_orphan_on_a_bad_sector_keeps_nobody_from_mounting() {
    let (left, at) = with_orphan();
    let fault = Arc::new(Fault::new(left.clone()));
    fault.fail_range(Operation::Read, at..at + 512);
    let fs = open(fault, "");
    assert_eq!(fs.read_only_reason(), None);
    create(&fs, "later");
    fs.unmount().unwrap();
    drop(fs);
    let fs = open(left.clone(), "");
    find(&fs, "later");
    fs.unmount().unwrap();
    drop(fs);
    judge(&left);
}

/// An orphan that is damaged stays recorded, and keeps nobody from mounting.
#[test]
fn an_orphan_that_cannot_be_read_keeps_nobody_from_mounting() {
    let (left, at) = with_orphan();
    let mut block = left.read_at(at, 4096).unwrap();
    block[32] ^= 0x55;
    left.write_at(at, block).unwrap();
    let fs = open(left.clone(), "");
    assert_eq!(fs.read_only_reason(), None);
    create(&fs, "later");
    fs.unmount().unwrap();
    drop(fs);
    assert!(checkpoint_flags(&left) & FSCK_FLAG != 0);
    let fs = open(left, "");
    find(&fs, "later");
    fs.unmount().unwrap();
}

/// Also where nothing else was changed: the flag is worth a checkpoint.
#[test]
fn damage_that_was_only_looked_at_is_noted() {
    let (device, fs) = with_damaged_inode("");
    fs.unmount().unwrap();
    assert_eq!(checkpoint_flags(&device) & FSCK_FLAG, 0, "nobody looked");
    let fs = open(device.clone(), "noatime");
    look_at_victim(&fs);
    fs.unmount().unwrap();
    assert!(checkpoint_flags(&device) & FSCK_FLAG != 0);
}

/// `errors=remount-ro` and `errors=panic`, from the mount or a remount: the first damage that anybody meets stops the volume.
#[test]
fn the_first_damage_stops_a_volume_that_asks_for_it() {
    for (options, remounted) in [("errors=remount-ro", None), ("errors=panic", None), ("", Some("errors=remount-ro"))] {
        let (device, fs) = with_damaged_inode(options);
        if let Some(options) = remounted {
            fs.remount(options).unwrap();
        }
        fs.sync().unwrap();
        let ino = create(&fs, "too late");
        look_at_victim(&fs);
        let told = fs.create(fs.root(), b"later", NewInode::Regular, 0o644, &Caller::ROOT).map(drop);
        assert!(matches!(told, Err(Error::ReadOnly(_))), "{options}: {told:?}");
        assert!(matches!(fs.fsync(ino, 0, false), Err(Error::Io(_))), "{options}");
        assert!(matches!(fs.sync(), Err(Error::Io(_))), "{options}");
        assert_eq!(read(&fs, "new 1"), vec![1; LEN], "{options}: reading goes on");
        assert!(matches!(fs.unmount(), Err(Error::Io(_))), "{options}: whoever unmounts hears of it");
        drop(fs);
        assert_eq!(new_files(&device), 3, "{options}");
    }
}

#[test]
fn an_fsync_after_a_shutdown_fails() {
    cairn_testkit::policy::an_fsync_after_a_shutdown_fails(&|| open(volume(64 << 20, FEATURES), ""));
}
