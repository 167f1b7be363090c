//! Operations of several atomic steps: if a later step fails, the earlier steps are complete
//! changes, and the volume continues, as in Linux.

use std::sync::Arc;

use cairn_base::Ino;
use cairn_base::runtime::simulated::Simulated;
use cairn_block::memory::MemoryDevice;
use cairn_block::wrap::{Fault, Operation};
use cairn_ext4::Ext4;
use cairn_testkit::crash::{read_image, write_image};
use cairn_testkit::judge::{KernelMount, assert_clean};
use cairn_vfs::acl::{ACCESS, Acl, Entry, Tag};
use cairn_vfs::{
    AllocateMode, Caller, Error, FileSystem, IoFlags, NewInode, SetAttributes, XattrMode,
};

use crate::run::{format, open, shm};

const MEGABYTES: u64 = 16;

fn create(fs: &Ext4, name: &[u8], len: usize) -> Ino {
    let ino = fs.create(fs.root(), name, NewInode::Regular, 0o644, &Caller::ROOT).unwrap().ino;
    fs.write(ino, 0, &vec![1; len], IoFlags::empty()).unwrap();
    ino
}

fn resize(fs: &Ext4, ino: Ino, size: u64) {
    fs.setattr(ino, &SetAttributes { size: Some(size), ..Default::default() }).unwrap();
}

/// A volume that `prepare` has filled.
fn prepared(kind: &'static [&'static str], prepare: impl Fn(&Ext4)) -> Arc<MemoryDevice> {
    let device = Arc::new(format(shm().path(), kind, MEGABYTES));
    let fs = open(device.clone(), Simulated::new(1), "").unwrap();
    prepare(&fs);
    fs.unmount().unwrap();
    device
}

/// Opens the volume. `warm` reads what the operation needs. Then all reads fail while `work` runs:
/// it fails, and the volume continues.
fn fails_and_goes_on(
    device: &Arc<MemoryDevice>,
    warm: impl Fn(&Ext4),
    work: impl Fn(&Ext4) -> Result<(), Error>,
    check: impl Fn(&Ext4),
) {
    let fault = Arc::new(Fault::new(device.clone()));
    // A write to a part of a block reads the whole block.
    let fs = open(fault.clone(), Simulated::new(1), "nobuffered_iomap").unwrap();
    warm(&fs);
    fault.fail_range(Operation::Read, 0..MEGABYTES << 20);
    let told = work(&fs).expect_err("a step cannot read what it needs");
    assert!(matches!(told, Error::Io(_)), "told as {told}");
    fault.clear();
    assert_eq!(fs.read_only_reason(), None, "nothing was left half done");
    check(&fs);
    fs.unmount().unwrap();
    drop(fs);
    judge(device);
}

fn judge(device: &MemoryDevice) {
    let dir = shm();
    let image = dir.path().join("left");
    write_image(device, &image).unwrap();
    assert_clean(&image);
}

fn find(fs: &Ext4, name: &[u8]) -> Ino {
    fs.lookup(fs.root(), name).unwrap().ino
}

/// An inline file moves to a block. The block cannot be read for the part that is not written.
#[test]
fn an_inline_file_that_has_moved_to_a_block_is_whole() {
    const INLINE: &[&str] = &["-t", "ext4", "-b", "4096", "-J", "size=4", "-O", "inline_data"];
    let dir = shm();
    let image = dir.path().join("image");
    write_image(&format(dir.path(), INLINE, MEGABYTES), &image).unwrap();
    let mount = KernelMount::new(&image, "");
    for name in ["file", "other"] {
        std::fs::write(mount.path().join(name), [7; 40]).unwrap();
    }
    mount.unmount();
    let device = Arc::new(read_image(&image).unwrap());
    // Another file moves first, so that bitmaps and tables are in memory.
    let warm = |fs: &Ext4| {
        find(fs, b"file");
        fs.write(find(fs, b"other"), 5, b"part", IoFlags::empty()).unwrap();
    };
    let check = |fs: &Ext4| {
        let mut bytes = [9; 100];
        assert_eq!(fs.read(find(fs, b"file"), 0, &mut bytes, IoFlags::empty()).unwrap(), 40);
        assert_eq!(bytes[..40], [7; 40]);
    };
    let work = |fs: &Ext4| fs.write(find(fs, b"file"), 5, b"part", IoFlags::empty()).map(drop);
    fails_and_goes_on(&device, warm, work, check);
}

/// `O_TRUNC` and new permissions in one call: the file is truncated, and then its access list
/// cannot be read.
#[test]
fn a_file_that_was_cut_before_its_access_list_could_not_be_read_is_whole() {
    // The inode has no room for attributes.
    const SMALL: &[&str] = &["-t", "ext4", "-b", "4096", "-J", "size=4", "-I", "128"];
    let list = || {
        let entry = |tag| Entry { tag, permissions: 0o6 };
        let tags = [Tag::UserObj, Tag::User(1000), Tag::GroupObj, Tag::Mask, Tag::Other];
        Acl::new(tags.map(entry).to_vec()).unwrap().to_xattr()
    };
    let prepare = |fs: &Ext4| {
        fs.setxattr(create(fs, b"file", 5000), ACCESS, &list(), XattrMode::Set).unwrap();
        create(fs, b"other", 5000);
    };
    let warm = |fs: &Ext4| {
        find(fs, b"file");
        resize(fs, find(fs, b"other"), 0);
    };
    let work = |fs: &Ext4| {
        let set = SetAttributes { size: Some(0), permissions: Some(0o600), ..Default::default() };
        fs.setattr(find(fs, b"file"), &set).map(drop)
    };
    let check = |fs: &Ext4| {
        let found = fs.getattr(find(fs, b"file")).unwrap();
        assert_eq!(
            (found.size, found.permissions & 0o777),
            (0, 0o666),
            "it was cut, and that is all"
        );
    };
    fails_and_goes_on(&prepared(SMALL, prepare), warm, work, check);
}

/// The first hole has its blocks when the map behind it cannot be read.
#[test]
fn space_that_was_preallocated_before_the_map_could_not_be_read_stays() {
    const BLOCKS: &[&str] = &["-t", "ext4", "-b", "1024", "-J", "size=1"];
    const GAP: u64 = 8192;
    // Many extents: the map has leaves.
    let prepare = |fs: &Ext4| {
        let ino = create(fs, b"file", 0);
        for piece in 1..400 {
            fs.write(ino, piece * GAP, &[1; 1024], IoFlags::empty()).unwrap();
        }
        create(fs, b"other", 0);
    };
    // The first leaf and the bitmaps are in memory then.
    let warm = |fs: &Ext4| {
        let (file, other) = (find(fs, b"file"), find(fs, b"other"));
        fs.allocate(other, AllocateMode::KeepSize, 0, 1 << 16).unwrap();
        fs.allocate(file, AllocateMode::KeepSize, 0, 1024).unwrap();
    };
    let work = |fs: &Ext4| fs.allocate(find(fs, b"file"), AllocateMode::KeepSize, 0, 400 * GAP);
    let check = |fs: &Ext4| {
        let sectors = fs.getattr(find(fs, b"file")).unwrap().sectors;
        assert!(
            sectors > 2 * 450,
            "{sectors} sectors: the holes of the first leaf have been filled"
        );
    };
    fails_and_goes_on(&prepared(BLOCKS, prepare), warm, work, check);
}
