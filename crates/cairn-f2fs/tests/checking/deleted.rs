//! A deletion frees what is the file's own, whatever its damaged fields name.

use std::sync::Arc;

use cairn_base::Ino;
use cairn_block::{BlockDevice, BlockDeviceExt};
use cairn_check::repair::Scope;
use cairn_f2fs::F2fs;
use cairn_vfs::{Caller, FileSystem, IoFlags, NewInode, SetAttributes, XattrMode};

use crate::inject::Target;
use crate::readers::{View, repaired_view};
use crate::repair::{apply, plan};
use crate::stale::place_of;
use crate::volume::{MIB, open, volume};
use crate::{check, lines};

const XATTR_NID: std::ops::Range<usize> = 76..80;
/// In the footer of a node: its number, and that of its inode.
const NID: std::ops::Range<usize> = 4072..4076;
const INO: std::ops::Range<usize> = 4076..4080;

#[test]
fn the_node_of_another_file_is_not_freed_with_the_attributes() {
    let device = volume(64 * MIB, &[]);
    let fs = open(device.clone(), "");
    let create = |name: &[u8]| {
        fs.create(fs.root(), name, NewInode::Regular, 0o600, &Caller::ROOT).unwrap().ino
    };
    let (kept, gone) = (create(b"kept"), create(b"gone"));
    let contents: Vec<u8> = (0..6 * MIB).map(|at| (at / 4096) as u8 | 1).collect();
    fs.write(kept, 0, &contents, IoFlags::empty()).unwrap();
    fs.setxattr(gone, b"user.large", &[7; 2000], XattrMode::Set).unwrap();
    fs.unmount().unwrap();

    let number = |bytes: &[u8], at: std::ops::Range<usize>| {
        u64::from(u32::from_le_bytes(bytes[at].try_into().unwrap()))
    };
    let blocks: Vec<(u64, Vec<u8>)> = (0..64 * MIB)
        .step_by(4096)
        .map(|at| (at, device.read_at(at, 4096).unwrap().to_vec()))
        .filter(|(_, block)| block[4000..].iter().any(|byte| *byte != 0))
        .collect();
    let of = |ino: u64| blocks.iter().filter(move |(_, block)| number(block, INO) == ino);
    let other = of(kept.get()).map(|(_, block)| number(block, NID)).find(|nid| *nid != kept.get());
    let mut changed = 0;
    for (at, block) in of(gone.get()).filter(|(_, block)| number(block, NID) == gone.get()) {
        let mut block = block.clone();
        block[XATTR_NID].copy_from_slice(&(other.unwrap() as u32).to_le_bytes());
        device.load(*at, &block);
        changed += 1;
    }
    assert!(changed > 0);

    let fs = open(device.clone(), "");
    // The name goes; what the file has stays, because it may be anybody's.
    let _ = fs.unlink(fs.root(), b"gone");
    let _ = fs.unmount();
    let fs = open(Arc::new(device.fork()), "");
    let mut read = vec![0; contents.len()];
    let ino = fs.lookup(fs.root(), b"kept").unwrap().ino;
    assert_eq!(fs.read(ino, 0, &mut read, IoFlags::empty()).unwrap(), contents.len());
    assert!(read == contents);
}

/// Bytes of an inode's first pointer, where it has no extra attributes.
const POINTERS_AT: usize = 360;
const ERRORS: &[&str] = &["f2fs.superblock.errors", "f2fs.checkpoint.flags"];

fn pointer(bytes: &[u8], slot: usize) -> u32 {
    let at = POINTERS_AT + 4 * slot;
    u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap())
}

/// A file of ten blocks, of which one pointer leads to a block of another file, one to another of
/// its own, and one to a free block.
#[test]
fn the_block_of_another_file_is_not_freed_with_a_wrong_pointer() {
    let device = volume(64 * MIB, &[]);
    let fs = open(device.clone(), "");
    let contents: Vec<u8> = (0..40_960).map(|at| (at / 4096) as u8 | 0x40).collect();
    let [kept, gone] = [&b"kept"[..], b"gone"].map(|name| {
        let new = fs.create(fs.root(), name, NewInode::Regular, 0o600, &Caller::ROOT);
        let ino = new.unwrap().ino;
        fs.write(ino, 0, &contents, IoFlags::empty()).unwrap();
        ino
    });
    fs.unmount().unwrap();
    let target = Target::of(&device);
    let places = [kept, gone].map(|ino| place_of(&device, ino.get() as u32));
    let [other, mut bytes] = places.map(|at| target.read(at));
    let (free, _) = target.free_blocks()[0];
    for (slot, to) in [(3, pointer(&other, 5)), (4, pointer(&bytes, 2)), (6, free)] {
        let at = POINTERS_AT + 4 * slot;
        bytes[at..at + 4].copy_from_slice(&to.to_le_bytes());
    }
    type Act = fn(&F2fs, Ino);
    let acts: [(&str, &str, Act); 5] = [
        ("deleted", "", |fs, _| fs.unlink(fs.root(), b"gone").unwrap()),
        ("cut", "", |fs, ino| cut(fs, ino, 8192)),
        ("emptied", "", |fs, ino| cut(fs, ino, 0)),
        ("written", "", |fs, ino| overwrite(fs, ino)),
        ("written elsewhere", "mode=lfs", |fs, ino| overwrite(fs, ino)),
    ];
    for (what, options, act) in acts {
        let device = Arc::new(target.device.fork());
        device.load(places[1], &bytes);
        let fs = open(device.clone(), options);
        act(&fs, gone);
        fs.unmount().unwrap();
        let found = check(device.clone()).unwrap();
        let text = lines(&found);
        assert!(ERRORS.iter().any(|code| text.contains(code)), "{what}:\n{text}");
        let device: Arc<dyn BlockDevice> = device;
        assert!(View::of(&device).found[&b"/kept"[..]].bytes == contents, "{what}");
        let mended = plan(&device, Scope::Accounting).unwrap();
        assert!(mended.after.count() == 0, "{what}:\n{}", lines(&mended.after));
        apply(&mended, &device);
        let found = View::of(&device).found;
        assert!(found[&b"/kept"[..]].bytes == contents, "{what}");
        // What was cut off does not come back.
        let fs = open(device, "");
        let Ok(attr) = fs.lookup(fs.root(), b"gone") else { continue };
        if attr.size < 40_960 {
            cut(&fs, gone, 40_960);
            let mut read = vec![1; 32_768];
            fs.read(gone, 8192, &mut read, IoFlags::empty()).unwrap();
            assert!(read.iter().all(|byte| *byte == 0), "{what}");
        }
    }
}

fn cut(fs: &F2fs, ino: Ino, size: u64) {
    let size = SetAttributes { size: Some(size), ..SetAttributes::default() };
    fs.setattr(ino, &size).unwrap();
}

fn overwrite(fs: &F2fs, ino: Ino) {
    fs.write(ino, 2 * 4096, &[9; 6 * 4096], IoFlags::empty()).unwrap();
    fs.fsync(ino, 0, false).unwrap();
}

/// A node of a file that the NAT calls free: the file can be neither deleted nor cut, and nothing
/// else is stopped. The next mount leaves what is to be deleted to a repair.
#[test]
fn a_node_that_cannot_be_found_stops_nothing_else() {
    const ENTRY: usize = 9;
    let device = volume(64 * MIB, &[]);
    let fs = open(device.clone(), "");
    let create = |fs: &F2fs, name: &str| {
        let made = fs.create(fs.root(), name.as_bytes(), NewInode::Regular, 0o600, &Caller::ROOT);
        let ino = made.unwrap().ino;
        fs.write(ino, 0, name.as_bytes(), IoFlags::empty()).unwrap();
        ino
    };
    let gone = create(&fs, "gone");
    fs.write(gone, 0, &vec![7; 12 << 20], IoFlags::empty()).unwrap();
    fs.setxattr(gone, b"user.large", &[7; 2000], XattrMode::Set).unwrap();
    create(&fs, "kept");
    // More than the journal of the NAT holds.
    for number in 0..60 {
        create(&fs, &number.to_string());
    }
    fs.unmount().unwrap();
    let target = Target::of(&device);
    let number = |bytes: &[u8], at: std::ops::Range<usize>| {
        u32::from_le_bytes(bytes[at].try_into().unwrap())
    };
    let gone = gone.get() as u32;
    let nids: Vec<u32> = target
        .nodes()
        .iter()
        .map(|at| target.read(*at))
        .filter(|block| number(block, INO) == gone)
        .map(|block| number(&block, NID))
        .collect();
    assert!(nids.len() > 3, "{nids:?}");
    type Act = fn(&F2fs, Ino) -> bool;
    let acts: [(&str, Act); 3] = [
        ("deleted", |fs, _| fs.unlink(fs.root(), b"gone").is_ok()),
        ("emptied", |fs, ino| set_size(fs, ino, 0)),
        ("cut", |fs, ino| set_size(fs, ino, 8192)),
    ];
    for (nid, (what, act)) in nids.iter().flat_map(|nid| acts.map(|act| (*nid, act))) {
        let what = format!("{what} without the node {nid}");
        let device = Arc::new(target.device.fork());
        for block in target.nat_blocks() {
            let mut bytes = target.read(block);
            let at = nid as usize * ENTRY;
            bytes[at..at + ENTRY].fill(0);
            device.load(block, &bytes);
        }
        let fs = open(device.clone(), "");
        create(&fs, "before");
        act(&fs, Ino(gone.into()));
        create(&fs, "after");
        close(&fs, &what);
        for again in ["", "once more"] {
            let text = lines(&check(device.clone()).unwrap());
            assert!(ERRORS.iter().any(|code| text.contains(code)), "{what}:\n{text}");
            let fs = open(device.clone(), "");
            for name in ["kept", "before", "after"] {
                assert_eq!(contents(&fs, name), name.as_bytes(), "{what} {again}");
            }
            close(&fs, &what);
        }
        let device: Arc<dyn BlockDevice> = device;
        let view = repaired_view(&device, &what);
        assert!(
            ["/kept", "/before", "/after"]
                .iter()
                .all(|name| { view.found[name.as_bytes()].bytes == name.as_bytes()[1..] }),
            "{what}"
        );
    }
}

fn set_size(fs: &F2fs, ino: Ino, size: u64) -> bool {
    fs.setattr(ino, &SetAttributes { size: Some(size), ..SetAttributes::default() }).is_ok()
}

/// An unmount tells what it could not delete.
fn close(fs: &F2fs, what: &str) {
    if let Err(error) = fs.unmount() {
        let error = error.to_string();
        assert!(error.contains("a pointer names a node that does not exist"), "{what}: {error}");
    }
}

fn contents(fs: &F2fs, name: &str) -> Vec<u8> {
    let mut read = vec![0; 16];
    let ino = fs.lookup(fs.root(), name.as_bytes()).unwrap().ino;
    let len = fs.read(ino, 0, &mut read, IoFlags::empty()).unwrap();
    read.truncate(len);
    read
}
