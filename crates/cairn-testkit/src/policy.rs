//! How errors and requested shutdowns affect later calls: the same checks for every format.
//!
//! A bad sector is an error of its file. Damage is an error of the call that finds it, unless
//! `errors=` demands more. Orphans that cannot be read do not prevent a mount. The formats supply a
//! [`Subject`]: how to make and open a volume, where records are, and foreign judges.

use std::sync::Arc;

use cairn_base::Ino;
use cairn_block::memory::MemoryDevice;
use cairn_block::wrap::{Fault, Lasting, Operation};
use cairn_block::{BlockDevice, BlockDeviceExt};
use cairn_vfs::{Caller, Error, FileExtent, FileSystem, IoFlags, NewInode, OpenMode};

use crate::damage::flip;

const OTHERS: u8 = 20;
const LEN: usize = 30_000;
const SECTOR: u64 = 512;

/// The place of an inode's record on the device.
#[derive(Clone, Copy, Debug)]
pub struct Record {
    /// Its first byte.
    pub at: u64,
    /// A byte of the access time. Only the record's checksum detects a change of it.
    pub checked: u64,
}

/// A kind of volume.
pub trait Subject {
    /// The name in failures.
    fn name(&self) -> String;

    /// A fresh volume.
    fn fresh(&self) -> Arc<MemoryDevice>;

    /// Opens a volume that must open.
    fn open(&self, device: Arc<dyn BlockDevice>, options: &str) -> Arc<dyn FileSystem>;

    /// The address of an inode's record, on a volume that is not open.
    fn record(&self, device: &MemoryDevice, ino: Ino) -> Record;

    /// Fails unless a foreign judge finds nothing.
    fn judge(&self, device: &MemoryDevice);

    /// True if the volume asks for a full check by the format's tool.
    fn asks_for_check(&self, device: &MemoryDevice) -> bool;

    /// Fails unless a volume records the error that has stopped it (`damage`: damage that a call
    /// met, else a failed write), and asks for a full check after recovery by any implementation.
    fn check_record_of_stop(&self, device: &MemoryDevice, damage: bool);

    /// True if the byte belongs to a superblock, in which an error is recorded.
    fn is_in_superblock(&self, at: u64) -> bool;
}

fn create(fs: &dyn FileSystem, name: &str) -> Ino {
    fs.create(fs.root(), name.as_bytes(), NewInode::Regular, 0o644, &Caller::ROOT).unwrap().ino
}

fn find(fs: &dyn FileSystem, name: &str) -> Ino {
    fs.lookup(fs.root(), name.as_bytes()).unwrap_or_else(|error| panic!("{name}: {error}")).ino
}

fn write(fs: &dyn FileSystem, name: &str, byte: u8) -> Ino {
    let ino = create(fs, name);
    assert_eq!(fs.write(ino, 0, &[byte; LEN], IoFlags::empty()).unwrap(), LEN);
    ino
}

fn read(fs: &dyn FileSystem, name: &str) -> Vec<u8> {
    let mut buf = vec![0; LEN];
    let done = fs
        .read(find(fs, name), 0, &mut buf, IoFlags::empty())
        .unwrap_or_else(|error| panic!("{name}: {error}"));
    buf.truncate(done);
    buf
}

/// A volume with the synced file `victim`, and where its data is on the device.
fn with_victim(kind: &dyn Subject) -> (Arc<MemoryDevice>, u64) {
    let device = kind.fresh();
    let fs = kind.open(device.clone(), "");
    let ino = write(&*fs, "victim", 1);
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

fn write_others(fs: &dyn FileSystem) {
    for number in 0..OTHERS {
        write(fs, &format!("other {number}"), number);
    }
}

/// Asserts that all other files have their written contents, on a copy of the current device.
fn check_others(kind: &dyn Subject, device: &MemoryDevice) {
    let fs = kind.open(Arc::new(device.fork()), "");
    for number in 0..OTHERS {
        assert!(
            read(&*fs, &format!("other {number}")) == vec![number; LEN],
            "{}: other {number}",
            kind.name()
        );
    }
    fs.unmount().unwrap();
}

fn is_injected(error: &Error) -> bool {
    matches!(error, Error::Io(_)) && error.to_string().contains("injected fault")
}

fn assert_writable(kind: &dyn Subject, fs: &dyn FileSystem) {
    let made = fs.create(fs.root(), b"still writable", NewInode::Regular, 0o644, &Caller::ROOT);
    made.unwrap_or_else(|error| panic!("{}: {error}", kind.name()));
    fs.unlink(fs.root(), b"still writable").unwrap();
}

/// One file of 21 has a sector that cannot be written. `sync` writes the other twenty and reports
/// the error; so does unmount, and the volume is clean.
///
/// # Panics
/// The volume behaves otherwise. This is so for all functions of this module.
pub fn a_sector_that_cannot_be_written_concerns_its_file(kind: &dyn Subject) {
    let named = kind.name();
    let (device, place) = with_victim(kind);
    let fault = Arc::new(Fault::new(device.clone()));
    let fs = kind.open(fault.clone(), "");
    fault.fail_range(Operation::Write, place..place + SECTOR);
    fs.write(find(&*fs, "victim"), 0, &[9; 100], IoFlags::empty()).unwrap();
    write_others(&*fs);
    let told = fs.sync().expect_err("one file is not on the device");
    assert!(is_injected(&told), "{named}: told as {told}");
    assert_writable(kind, &*fs);
    check_others(kind, &device);
    let later = write(&*fs, "later", 7);
    fs.fsync(later, 0, false).unwrap_or_else(|error| panic!("{named}: another file: {error}"));
    let told = fs.unmount().expect_err("whoever unmounts hears of it");
    assert!(is_injected(&told), "{named}: told as {told}");
    drop(fs);
    check_others(kind, &device);
    kind.judge(&device);
}

/// A sector that cannot be read fails the calls that read it or change a part of it. Other calls do
/// not notice.
///
/// # Panics
/// The volume behaves otherwise.
pub fn a_sector_that_cannot_be_read_is_an_answer(kind: &dyn Subject) {
    let named = kind.name();
    let (device, place) = with_victim(kind);
    let fault = Arc::new(Fault::new(device.clone()));
    let fs = kind.open(fault.clone(), "");
    fault.fail_range(Operation::Read, place..place + SECTOR);
    write_others(&*fs);
    let victim = find(&*fs, "victim");
    let told = fs.read(victim, 0, &mut [0; 100], IoFlags::empty()).expect_err("it cannot be read");
    assert!(is_injected(&told), "{named}: told as {told}");
    let told =
        fs.write(victim, 10, b"part", IoFlags::empty()).expect_err("its block cannot be read");
    assert!(is_injected(&told), "{named}: told as {told}");
    assert_writable(kind, &*fs);
    fs.sync().unwrap_or_else(|error| panic!("{named}: {error}"));
    fs.unmount().unwrap_or_else(|error| panic!("{named}: {error}"));
    drop(fs);
    check_others(kind, &device);
    kind.judge(&device);
}

/// A volume in which the record of `victim` is damaged.
#[must_use]
pub fn with_damaged_inode(kind: &dyn Subject) -> Arc<MemoryDevice> {
    let (device, _) = with_victim(kind);
    let fs = kind.open(Arc::new(device.fork()), "ro");
    let ino = find(&*fs, "victim");
    drop(fs);
    flip(&device, kind.record(&device, ino).checked);
    device
}

/// Opens the volume and creates three files without a sync.
fn with_new_files(
    kind: &dyn Subject,
    device: &Arc<MemoryDevice>,
    options: &str,
) -> Arc<dyn FileSystem> {
    let fs = kind.open(device.clone(), options);
    for number in 0..3_u8 {
        write(&*fs, &format!("new {number}"), number);
    }
    fs
}

/// Finds the damage.
///
/// # Panics
/// It is not found.
pub fn look_at_victim(fs: &dyn FileSystem) {
    let told = fs.lookup(fs.root(), b"victim").expect_err("the inode is damaged");
    assert!(matches!(told, Error::Corrupt(_)), "told as {told}");
}

/// The number of new files that are complete.
fn new_files(kind: &dyn Subject, device: &MemoryDevice) -> usize {
    let fs = kind.open(Arc::new(device.fork()), "");
    let whole = |number: &u8| {
        let name = format!("new {number}");
        fs.lookup(fs.root(), name.as_bytes()).is_ok() && read(&*fs, &name) == vec![*number; LEN]
    };
    (0..3_u8).filter(whole).count()
}

/// The caller gets an error, the volume asks for fsck, and other calls work. Returns the closed
/// volume.
///
/// # Panics
/// The volume behaves otherwise.
#[must_use]
pub fn a_damaged_inode_is_noted_and_loses_nothing_of_others(
    kind: &dyn Subject,
) -> Arc<MemoryDevice> {
    let device = with_damaged_inode(kind);
    let fs = with_new_files(kind, &device, "");
    look_at_victim(&*fs);
    look_at_victim(&*fs);
    assert_writable(kind, &*fs);
    fs.sync().unwrap();
    fs.unmount().unwrap();
    drop(fs);
    assert_eq!(new_files(kind, &device), 3, "{}", kind.name());
    assert!(kind.asks_for_check(&device), "{}", kind.name());
    device
}

/// The volume asks for fsck even if nothing else was changed.
///
/// # Panics
/// The volume behaves otherwise.
pub fn damage_that_was_only_looked_at_is_noted(kind: &dyn Subject) {
    let device = with_damaged_inode(kind);
    kind.open(device.clone(), "noatime").unmount().unwrap();
    assert!(!kind.asks_for_check(&device), "{}: nobody looked", kind.name());
    let fs = kind.open(device.clone(), "noatime");
    look_at_victim(&*fs);
    fs.unmount().unwrap();
    assert!(kind.asks_for_check(&device), "{}", kind.name());
}

/// `errors=remount-ro` and `errors=panic`, from the mount or a remount: the first damage that a
/// call finds stops the volume, which records it. After `errors=panic` only that record reaches the
/// device.
///
/// # Panics
/// The volume behaves otherwise.
pub fn the_first_damage_stops_a_volume_that_asks_for_it(kind: &dyn Subject) {
    for (options, remounted) in
        [("errors=remount-ro", None), ("errors=panic", None), ("", Some("errors=remount-ro"))]
    {
        let device = with_damaged_inode(kind);
        let fs = with_new_files(kind, &device, options);
        if let Some(options) = remounted {
            fs.remount(options).unwrap();
        }
        fs.sync().unwrap();
        let ino = write(&*fs, "too late", 3);
        let before = device.fork();
        look_at_victim(&*fs);
        let named = format!("{}, {options}, {remounted:?}", kind.name());
        let told =
            fs.create(fs.root(), b"later", NewInode::Regular, 0o644, &Caller::ROOT).map(drop);
        assert!(matches!(told, Err(Error::ReadOnly(_))), "{named}: {told:?}");
        assert!(matches!(fs.fsync(ino, 0, false), Err(Error::Io(_))), "{named}");
        assert!(matches!(fs.sync(), Err(Error::Io(_))), "{named}");
        assert_eq!(read(&*fs, "new 1"), vec![1; LEN], "{named}: reading goes on");
        assert!(matches!(fs.unmount(), Err(Error::Io(_))), "{named}: whoever unmounts hears of it");
        drop(fs);
        if options == "errors=panic" {
            let same = same_but_for(&before, &device, |at| kind.is_in_superblock(at));
            assert!(same, "{named}: something was written after the power cut");
        }
        assert_eq!(new_files(kind, &device), 3, "{named}");
        kind.check_record_of_stop(&device, true);
    }
}

fn same_but_for(one: &MemoryDevice, other: &MemoryDevice, may: impl Fn(u64) -> bool) -> bool {
    const CHUNK: u64 = 1 << 20;
    let size = one.geometry().size;
    let part = |device: &MemoryDevice, at: u64| {
        let len = usize::try_from(CHUNK.min(size - at)).expect("a chunk");
        device.read_at(at, len).expect("memory does not fail")
    };
    (0..size).step_by(1 << 20).all(|at| {
        let (one, other) = (part(one, at), part(other, at));
        let mut bytes = (at..).zip(one.iter().zip(other.iter()));
        one[..] == other[..] || bytes.all(|(at, (one, other))| one == other || may(at))
    })
}

/// One write of metadata fails, in `sync`, and the volume stops. The device works again, and the
/// volume records the error on it.
///
/// # Panics
/// The volume behaves otherwise.
pub fn a_failed_write_of_metadata_is_recorded(kind: &dyn Subject) {
    let named = kind.name();
    let (device, _) = with_victim(kind);
    let fault = Arc::new(Fault::new(device.clone()));
    let fs = kind.open(fault.clone(), "");
    fs.create(fs.root(), b"new", NewInode::Directory, 0o755, &Caller::ROOT).unwrap();
    fault.fail(Operation::Write, fault.count(Operation::Write) + 1, Lasting::Once);
    let told = fs.sync().expect_err("a write failed");
    assert!(is_injected(&told), "{named}: told as {told}");
    let told = fs.create(fs.root(), b"later", NewInode::Regular, 0o644, &Caller::ROOT).map(drop);
    assert!(matches!(told, Err(Error::ReadOnly(_))), "{named}: {told:?}");
    assert!(matches!(fs.unmount(), Err(Error::Io(_))), "{named}: whoever unmounts hears of it");
    drop(fs);
    kind.check_record_of_stop(&device, false);
    let fs = kind.open(Arc::new(device.fork()), "");
    find(&*fs, "victim");
    fs.unmount().unwrap_or_else(|error| panic!("{named}: {error}"));
}

/// A volume with an unlinked file that is still open, as a power cut would leave it, and where the
/// file's record is.
#[must_use]
pub fn with_orphan(kind: &dyn Subject) -> (Arc<MemoryDevice>, Record) {
    let (device, _) = with_victim(kind);
    let fs = kind.open(device.clone(), "");
    // The inode is far from the root's.
    write_others(&*fs);
    let name = format!("other {}", OTHERS - 1);
    let ino = find(&*fs, &name);
    fs.unlink(fs.root(), name.as_bytes()).unwrap();
    fs.freeze().unwrap();
    let left = Arc::new(device.fork());
    fs.unmount().unwrap();
    let record = kind.record(&left, ino);
    (left, record)
}

/// An orphan that the device cannot read does not prevent a mount. Returns the volume, closed by a
/// mount that could read it.
///
/// # Panics
/// The volume behaves otherwise.
#[must_use]
pub fn an_orphan_on_a_bad_sector_does_not_prevent_the_mount(
    kind: &dyn Subject,
) -> Arc<MemoryDevice> {
    let (left, record) = with_orphan(kind);
    let fault = Arc::new(Fault::new(left.clone()));
    fault.fail_range(Operation::Read, record.at..record.at + 256);
    let fs = kind.open(fault, "");
    // New inodes may lie beside it.
    fs.write(find(&*fs, "other 0"), 0, b"later", IoFlags::empty()).unwrap();
    fs.sync().unwrap_or_else(|error| panic!("{}: {error}", kind.name()));
    fs.unmount().unwrap_or_else(|error| panic!("{}: {error}", kind.name()));
    drop(fs);
    let again = kind.open(left.clone(), "");
    assert_eq!(read(&*again, "other 0")[..5], *b"later", "{}", kind.name());
    again.unmount().unwrap();
    left
}

/// A damaged orphan is left to the format's fsck, and does not prevent a mount. Returns the volume,
/// closed.
///
/// # Panics
/// The volume behaves otherwise.
#[must_use]
pub fn a_damaged_orphan_does_not_prevent_the_mount(kind: &dyn Subject) -> Arc<MemoryDevice> {
    let (left, record) = with_orphan(kind);
    flip(&left, record.checked);
    let fs = kind.open(left.clone(), "");
    assert_writable(kind, &*fs);
    create(&*fs, "later");
    fs.unmount().unwrap_or_else(|error| panic!("{}: {error}", kind.name()));
    drop(fs);
    assert!(kind.asks_for_check(&left), "{}", kind.name());
    let fs = kind.open(Arc::new(left.fork()), "");
    find(&*fs, "later");
    fs.unmount().unwrap();
    left
}

/// After a requested shutdown (EXT4_IOC_SHUTDOWN, F2FS_IOC_SHUTDOWN) no call reports durability:
/// fsync, fdatasync and sync fail with EIO, for a file with new data and for one that was durable
/// long before, as in Linux.
///
/// # Panics
/// The volume behaves otherwise.
pub fn an_fsync_after_a_shutdown_fails(kind: &dyn Subject) {
    for flush_log in [false, true] {
        let fs = kind.open(kind.fresh(), "");
        let [old, new] = [&b"old"[..], b"new"].map(|name| {
            let ino =
                fs.create(fs.root(), name, NewInode::Regular, 0o644, &Caller::ROOT).unwrap().ino;
            fs.write(ino, 0, name, IoFlags::empty()).unwrap();
            ino
        });
        let handle = fs.open(old, OpenMode { write: true, direct: false }).unwrap();
        fs.fsync(old, handle, false).unwrap();
        fs.shutdown(flush_log).unwrap();
        for (what, told) in [
            ("fsync of what was durable", fs.fsync(old, handle, false)),
            ("fsync of what was not", fs.fsync(new, 0, false)),
            ("fdatasync", fs.fsync(new, 0, true)),
            ("fsync of a directory", fs.fsync(fs.root(), 0, false)),
            ("sync", fs.sync()),
        ] {
            assert!(matches!(told, Err(Error::Io(_))), "{what}, flush_log {flush_log}: {told:?}");
        }
        fs.release(old, handle);
    }
}
