//! What an error means for those who did not make the call: a bad sector concerns its file, and damage that somebody comes across
//! concerns whoever looked, unless `errors=` says more. Orphans that cannot be read keep nobody from mounting.

use std::sync::Arc;

use cairn_base::Ino;
use cairn_base::runtime::simulated::Simulated;
use cairn_block::memory::MemoryDevice;
use cairn_block::wrap::{Fault, Operation};
use cairn_block::{BlockDevice, BlockDeviceExt};
use cairn_ext4::Ext4;
use cairn_testkit::crash::{read_image, write_image};
use cairn_testkit::judge::{KernelMount, assert_clean, dumpe2fs, e2fsck_preen};
use cairn_vfs::{Caller, Error, FileExtent, FileSystem, IoFlags, NewInode};

use crate::run::{format, open, shm};

const KINDS: &[&[&str]] = &[
    &["-t", "ext4", "-b", "4096", "-J", "size=4"],
    &["-t", "ext4", "-b", "1024", "-J", "size=1", "-O", "^metadata_csum"],
    &["-t", "ext2", "-b", "1024"],
];
const OTHERS: u8 = 20;
const LEN: usize = 30_000;

fn create(fs: &Ext4, name: &str) -> Ino {
    fs.create(fs.root(), name.as_bytes(), NewInode::Regular, 0o644, &Caller::ROOT).unwrap().ino
}

fn find(fs: &Ext4, name: &str) -> Ino {
    fs.lookup(fs.root(), name.as_bytes()).unwrap_or_else(|error| panic!("{name}: {error}")).ino
}

fn read(fs: &Ext4, name: &str) -> Vec<u8> {
    let mut buf = vec![0; LEN];
    let done = fs.read(find(fs, name), 0, &mut buf, IoFlags::empty()).unwrap_or_else(|error| panic!("{name}: {error}"));
    buf.truncate(done);
    buf
}

/// A volume with a synced file, and where that is on the device.
fn with_victim(kind: &[&str]) -> (Arc<MemoryDevice>, u64) {
    let dir = shm();
    let device = Arc::new(format(dir.path(), kind, 16));
    let fs = open(device.clone(), Simulated::new(1), "").unwrap();
    let ino = create(&fs, "victim");
    fs.write(ino, 0, &[1; LEN], IoFlags::empty()).unwrap();
    let mut place = 0;
    let mut first = |extent: FileExtent| {
        place = extent.physical;
        false
    };
    fs.extents(ino, 0, 4096, true, &mut first).unwrap();
    fs.unmount().unwrap();
    (device, place)
}

fn write_others(fs: &Ext4) {
    for number in 0..OTHERS {
        let ino = create(fs, &format!("other {number}"));
        fs.write(ino, 0, &[number; LEN], IoFlags::empty()).unwrap();
    }
}

/// All other files have what was written, on a copy of the device as it is now.
fn check_others(device: &MemoryDevice, named: &str) {
    let fs = open(Arc::new(device.fork()), Simulated::new(2), "").unwrap_or_else(|error| panic!("{named}: {error}"));
    for number in 0..OTHERS {
        assert!(read(&fs, &format!("other {number}")) == vec![number; LEN], "{named}: other {number}");
    }
    fs.unmount().unwrap();
}

fn judge(device: &MemoryDevice) {
    let dir = shm();
    let image = dir.path().join("left");
    write_image(device, &image).unwrap();
    assert_clean(&image);
}

fn is_injected(error: &Error) -> bool {
    matches!(error, Error::Io(_)) && error.to_string().contains("injected fault")
}

/// One file of 21 has a sector that cannot be written. `sync` writes the other twenty and says so of that one; whoever unmounts
/// hears of it, and the volume is clean.
#[test]
fn a_sector_that_cannot_be_written_concerns_its_file() {
    for kind in KINDS {
        let named = format!("{kind:?}");
        let (device, place) = with_victim(kind);
        let fault = Arc::new(Fault::new(device.clone()));
        let fs = open(fault.clone(), Simulated::new(1), "").unwrap();
        fault.fail_range(Operation::Write, place..place + 512);
        fs.write(find(&fs, "victim"), 0, &[9; 100], IoFlags::empty()).unwrap();
        write_others(&fs);
        let told = fs.sync().expect_err("one file is not on the device");
        assert!(is_injected(&told), "{named}: told as {told}");
        assert_eq!(fs.read_only_reason(), None, "{named}");
        check_others(&device, &named);
        let later = create(&fs, "later");
        fs.write(later, 0, &[7; LEN], IoFlags::empty()).unwrap();
        fs.fsync(later, 0, false).unwrap_or_else(|error| panic!("{named}: another file: {error}"));
        let told = fs.unmount().expect_err("whoever unmounts hears of it");
        assert!(is_injected(&told), "{named}: told as {told}");
        drop(fs);
        check_others(&device, &named);
        judge(&device);
    }
}

/// A sector that cannot be read is an answer to whoever reads it, or changes a part of it. Nobody else notices.
#[test]
fn a_sector_that_cannot_be_read_is_an_answer() {
    for kind in KINDS {
        let named = format!("{kind:?}");
        let (device, place) = with_victim(kind);
        let fault = Arc::new(Fault::new(device.clone()));
        let fs = open(fault.clone(), Simulated::new(1), "").unwrap();
        fault.fail_range(Operation::Read, place..place + 512);
        write_others(&fs);
        let victim = find(&fs, "victim");
        let told = fs.read(victim, 0, &mut [0; 100], IoFlags::empty()).expect_err("it cannot be read");
        assert!(is_injected(&told), "{named}: told as {told}");
        let told = fs.write(victim, 10, b"part", IoFlags::empty()).expect_err("its block cannot be read");
        assert!(is_injected(&told), "{named}: told as {told}");
        assert_eq!(fs.read_only_reason(), None, "{named}");
        fs.sync().unwrap_or_else(|error| panic!("{named}: {error}"));
        fs.unmount().unwrap_or_else(|error| panic!("{named}: {error}"));
        drop(fs);
        check_others(&device, &named);
        judge(&device);
    }
}

/// A volume in which the record of one inode is damaged, mounted, with three new files that are not synced.
fn with_damaged_inode(args: &[&str], options: &str) -> (Arc<MemoryDevice>, Arc<Ext4>, Arc<Simulated>) {
    let kind = [&["-t", "ext4", "-b", "4096", "-J", "size=4"], args].concat();
    let (device, _) = with_victim(&kind);
    let fs = open(device.clone(), Simulated::new(1), "").unwrap();
    let location = fs.volume().locate(find(&fs, "victim")).unwrap();
    fs.unmount().unwrap();
    drop(fs);
    // The access time: only the checksum can tell.
    let at = location.block.get() * 4096;
    let mut block = device.read_at(at, 4096).unwrap();
    block[location.offset + 8] ^= 0x55;
    device.write_at(at, block).unwrap();
    let simulated = Simulated::new(1);
    let fs = open(device.clone(), simulated.clone(), options).unwrap();
    for number in 0..3_u8 {
        let ino = create(&fs, &format!("new {number}"));
        fs.write(ino, 0, &[number; LEN], IoFlags::empty()).unwrap();
    }
    (device, fs, simulated)
}

fn look_at_victim(fs: &Ext4) {
    let told = fs.lookup(fs.root(), b"victim").expect_err("the inode is damaged");
    assert!(matches!(told, Error::Corrupt(_)), "told as {told}");
}

fn new_files(device: &MemoryDevice) -> Vec<Vec<u8>> {
    let fs = open(Arc::new(device.fork()), Simulated::new(2), "").unwrap();
    let names = ["new 0", "new 1", "new 2"].into_iter();
    names.filter(|name| fs.lookup(fs.root(), name.as_bytes()).is_ok()).map(|name| read(&fs, name)).collect()
}

/// A volume with an unlinked file that is still open, as a power cut would leave it: on the disk, with an empty journal.
fn with_orphan(features: &str) -> (Arc<MemoryDevice>, u64) {
    let (device, _) = with_victim(&["-t", "ext4", "-b", "4096", "-J", "size=4", "-O", features]);
    let fs = open(device.clone(), Simulated::new(1), "").unwrap();
    // Far from the root's inode.
    write_others(&fs);
    let name = format!("other {}", OTHERS - 1);
    let ino = find(&fs, &name);
    fs.unlink(fs.root(), name.as_bytes()).unwrap();
    fs.freeze().unwrap();
    let location = fs.volume().locate(ino).unwrap();
    let left = Arc::new(device.fork());
    fs.unmount().unwrap();
    (left, location.block.get() * 4096 + location.offset as u64)
}

/// Mounts, works, unmounts; Linux must be able to mount it, too.
fn check_mounts(device: Arc<dyn BlockDevice>, memory: &MemoryDevice, named: &str) {
    let dir = shm();
    let image = dir.path().join("before");
    write_image(memory, &image).unwrap();
    KernelMount::new(&image, "").unmount();
    let simulated = Simulated::new(1);
    let fs = open(device, simulated.clone(), "").unwrap_or_else(|error| panic!("{named}: {error}"));
    simulated.run_until_idle();
    assert_eq!(fs.read_only_reason(), None, "{named}");
    create(&fs, "later");
    fs.unmount().unwrap_or_else(|error| panic!("{named}: {error}"));
    drop(fs);
    let (head, status, output) = seen(memory);
    assert!(head.contains("clean with errors") && !head.contains("First orphan"), "{named}: {head}");
    let forced = output.contains("file system with errors, check forced");
    assert!((0..=1).contains(&status) && forced, "{named}: {status}: {output}");
}

/// An orphan whose record is damaged, or cannot be read, is left to e2fsck: nobody is kept from mounting for it.
#[test]
fn an_orphan_that_cannot_be_read_keeps_nobody_from_mounting() {
    for features in ["^orphan_file", "orphan_file"] {
        let (device, at) = with_orphan(features);
        let mut block = device.read_at(at / 4096 * 4096, 4096).unwrap();
        block[(at % 4096) as usize + 8] ^= 0x55;
        device.write_at(at / 4096 * 4096, block).unwrap();
        check_mounts(device.clone(), &device, features);
    }
}

/// The same where the device cannot read it. What e2fsck finds then is the orphan, and nothing else.
#[test]
fn an_orphan_on_a_bad_sector_keeps_nobody_from_mounting() {
    for features in ["^orphan_file", "orphan_file"] {
        let (memory, at) = with_orphan(features);
        let fault = Arc::new(Fault::new(memory.clone()));
        fault.fail_range(Operation::Read, at..at + 256);
        let simulated = Simulated::new(1);
        let fs = open(fault, simulated.clone(), "").unwrap_or_else(|error| panic!("{features}: {error}"));
        simulated.run_until_idle();
        assert_eq!(fs.read_only_reason(), None, "{features}");
        // New inodes may lie beside it.
        fs.write(find(&fs, "other 0"), 0, b"later", IoFlags::empty()).unwrap();
        fs.sync().unwrap_or_else(|error| panic!("{features}: {error}"));
        fs.unmount().unwrap_or_else(|error| panic!("{features}: {error}"));
        drop(fs);
        let (_, status, output) = seen(&memory);
        assert!((0..=1).contains(&status), "{features}: {status}: {output}");
        let again = open(memory, Simulated::new(1), "").unwrap();
        assert_eq!(read(&again, "other 0")[..5], *b"later", "{features}");
        again.unmount().unwrap();
    }
}

/// So it is where the list in the superblock leads nowhere.
#[test]
fn a_bad_head_of_the_orphan_list_keeps_nobody_from_mounting() {
    let (device, _) = with_victim(&["-t", "ext4", "-b", "4096", "-J", "size=4"]);
    let dir = shm();
    let image = dir.path().join("bad head");
    write_image(&device, &image).unwrap();
    cairn_testkit::judge::run("debugfs", ["-w", "-R", "set_super_value last_orphan 99999", image.to_str().unwrap()]);
    let device = Arc::new(read_image(&image).unwrap());
    check_mounts(device.clone(), &device, "bad head");
}

/// What `dumpe2fs -h` and `e2fsck -p` say of the volume.
fn seen(device: &MemoryDevice) -> (String, i32, String) {
    let dir = shm();
    let image = dir.path().join("left");
    write_image(device, &image).unwrap();
    let head = dumpe2fs(&image);
    let verdict = e2fsck_preen(&image);
    assert_clean(&image);
    (head, verdict.status, verdict.output)
}

/// Linux: the caller is told, the superblock remembers, everybody goes on; `e2fsck -p` then checks everything.
#[test]
fn a_damaged_inode_is_noted_and_loses_nothing_of_others() {
    let (device, fs, simulated) = with_damaged_inode(&[], "");
    look_at_victim(&fs);
    look_at_victim(&fs);
    simulated.run_until_idle();
    assert_eq!(fs.read_only_reason(), None);
    fs.sync().unwrap();
    fs.unmount().unwrap();
    drop(fs);
    assert_eq!(new_files(&device), [vec![0; LEN], vec![1; LEN], vec![2; LEN]]);
    let (head, status, output) = seen(&device);
    for line in ["clean with errors", "FS Error count:           2", "First error inode #:      12", "EFSBADCRC"] {
        assert!(head.contains(line), "no {line} in\n{head}");
    }
    assert!(status == 1 && output.contains("file system with errors, check forced"), "{status}: {output}");
}

/// `errors=remount-ro`, from the command line or of `tune2fs -e`: the first damage that anybody meets stops the volume, and the
/// journal tells e2fsck.
#[test]
fn the_first_damage_stops_a_volume_that_asks_for_it() {
    for (args, options) in
        [(&[][..], "errors=remount-ro"), (&["-e", "remount-ro"][..], ""), (&["-e", "panic"][..], "errors=remount-ro")]
    {
        let (device, fs, _) = with_damaged_inode(args, options);
        look_at_victim(&fs);
        let told = fs.create(fs.root(), b"later", NewInode::Regular, 0o644, &Caller::ROOT).map(drop);
        assert!(matches!(told, Err(Error::ReadOnly(_))), "{options}: {told:?}");
        assert!(matches!(fs.sync(), Err(Error::Io(_))), "{options}");
        let mut buf = [0; 100];
        assert_eq!(fs.read(find(&fs, "new 1"), 0, &mut buf, IoFlags::empty()).unwrap(), 100, "{options}");
        assert!(matches!(fs.unmount(), Err(Error::Io(_))), "{options}: whoever unmounts hears of it");
        drop(fs);
        let (_, status, output) = seen(&device);
        assert!(status == 1 && output.contains("file system with errors, check forced"), "{status}: {output}");
    }
    let (_, fs, _) = with_damaged_inode(&["-e", "remount-ro"], "errors=continue");
    look_at_victim(&fs);
    assert_eq!(fs.read_only_reason(), None, "the option counts more than the superblock");
    fs.unmount().unwrap();
}

/// `errors=panic`: as if power failed at that moment.
#[test]
fn the_first_damage_cuts_a_volume_that_asks_for_it() {
    for (args, options) in [(&[][..], "errors=panic"), (&["-e", "panic"][..], "")] {
        let (device, fs, _) = with_damaged_inode(args, options);
        fs.sync().unwrap();
        let ino = create(&fs, "too late");
        let before = device.fork();
        fs.write(ino, 0, &[3; LEN], IoFlags::empty()).unwrap();
        look_at_victim(&fs);
        assert!(matches!(fs.fsync(ino, 0, false), Err(Error::Io(_))), "{options}");
        assert!(matches!(fs.unmount(), Err(Error::Io(_))), "{options}");
        drop(fs);
        let whole = |device: &MemoryDevice| device.read_at(0, 16 << 20).unwrap().to_vec();
        assert!(whole(&before) == whole(&device), "{options}: something was written after the power cut");
        assert_eq!(new_files(&device).len(), 3, "{options}");
    }
}

#[test]
fn an_fsync_after_a_shutdown_fails() {
    for kind in KINDS {
        cairn_testkit::policy::an_fsync_after_a_shutdown_fails(&|| {
            open(Arc::new(format(shm().path(), kind, 16)), Simulated::new(1), "").unwrap()
        });
    }
}
