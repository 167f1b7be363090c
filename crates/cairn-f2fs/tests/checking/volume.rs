//! Volumes of every kind, in memory.

use std::path::Path;
use std::sync::Arc;

use cairn_block::memory::MemoryDevice;
use cairn_f2fs::F2fs;
use cairn_testkit::crash::read_image;
use cairn_testkit::judge::{mkfs_f2fs, sload_f2fs};
use cairn_vfs::{Caller, FileSystem, IoFlags, NewInode, XattrMode};

#[path = "../common/volume.rs"]
mod fresh;
#[path = "../common/open.rs"]
mod opened;

pub use fresh::{FOLDED, ZONED, volume};
pub use opened::{open, with_zones};

pub const MIB: u64 = 1 << 20;

/// The arguments of mkfs.f2fs for each kind of volume that Cairn writes.
pub const KINDS: [&[&str]; 9] = [
    &[],
    &["-O", "extra_attr,inode_checksum,inode_crtime,compression"],
    &["-O", "extra_attr,inode_checksum,flexible_inline_xattr,inode_crtime,lost_found,sb_checksum"],
    &["-O", "extra_attr,project_quota,quota"],
    &["-i"],
    &["-s", "2"],
    &["-s", "4", "-z", "2"],
    &["-O", "extra_attr,inode_checksum,verity,encrypt,casefold", "-C", "utf8"],
    ZONED,
];

/// A tree with a directory of several levels, a large file, links of both kinds.
pub fn plant(root: &Path) {
    for name in ["d", "e", "e/below", "e/below/it"] {
        std::fs::create_dir(root.join(name)).unwrap();
    }
    for index in 0..400 {
        let name = root.join(format!("d/a rather long name of a file {index}"));
        std::fs::write(name, [index as u8; 10]).unwrap();
    }
    std::fs::write(root.join("e/large"), vec![7; 5 << 20]).unwrap();
    std::fs::write(root.join("e/small"), vec![7; 3000]).unwrap();
    std::fs::write(root.join("e/medium"), vec![7; 30_000]).unwrap();
    std::fs::hard_link(root.join("e/small"), root.join("e/linked")).unwrap();
    std::os::unix::fs::symlink("e/large", root.join("link")).unwrap();
}

/// A volume with a tree that sload.f2fs has copied in.
pub fn loaded(size: u64, arguments: &[&str]) -> MemoryDevice {
    let tree = tempfile::tempdir().unwrap();
    plant(tree.path());
    let image = tempfile::NamedTempFile::new().unwrap();
    mkfs_f2fs(image.path(), size, arguments);
    sload_f2fs(image.path(), tree.path());
    read_image(image.path()).unwrap()
}

/// How the last mount of a volume ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// By a power cut: some changes are in the checkpoint, with an orphan, and some in the chain.
    Cut,
    Closed,
}

/// Changes a volume: files of every shape, holes, attributes, directories, and removals.
pub fn work(fs: &F2fs, end: End) {
    let create = |parent, name: &str, new| {
        fs.create(parent, name.as_bytes(), new, 0o755, &Caller::ROOT).unwrap().ino
    };
    let directory = create(fs.root(), "worked", NewInode::Directory);
    for index in 0..60_u8 {
        let ino = create(directory, &format!("a rather new file {index}"), NewInode::Regular);
        let at = u64::from(index) * (MIB / 3);
        fs.write(ino, at, &[index; 9000], IoFlags::empty()).unwrap();
        if index % 3 == 0 {
            fs.setxattr(ino, b"user.name", &[index; 700], XattrMode::Set).unwrap();
        }
        if index % 7 == 0 {
            fs.setxattr(ino, b"user.small", b"value", XattrMode::Set).unwrap();
        }
        fs.forget(ino, 1);
    }
    let far = create(directory, "far out", NewInode::Regular);
    for block in [3000_u64, 2_100_000, 2_200_000] {
        fs.write(far, block << 12, b"far", IoFlags::empty()).unwrap();
    }
    fs.sync().unwrap();
    let below = create(directory, "below", NewInode::Directory);
    create(below, "pipe", NewInode::Fifo);
    create(below, "device", NewInode::CharDevice(0x0105));
    create(below, "link", NewInode::Symlink(b"../somewhere"));
    for index in (0..60).step_by(4) {
        fs.unlink(directory, format!("a rather new file {index}").as_bytes()).unwrap();
    }
    fs.sync().unwrap();
    match end {
        End::Closed => fs.unmount().unwrap(),
        End::Cut => {
            // Removed while they are open: a file, a directory with inline names, and one with
            // blocks.
            let orphan = create(directory, "orphan", NewInode::Regular);
            fs.write(orphan, 0, &[1; 20_000], IoFlags::empty()).unwrap();
            fs.unlink(directory, b"orphan").unwrap();
            for (name, files) in [("emptied", 0), ("once large", 400_u32)] {
                let orphan = create(directory, name, NewInode::Directory);
                let names = || (0..files).map(|number| format!("a name of some length {number}"));
                for name in names() {
                    let ino = create(orphan, &name, NewInode::Regular);
                    fs.forget(ino, 1);
                }
                for name in names() {
                    fs.unlink(orphan, name.as_bytes()).unwrap();
                }
                fs.rmdir(directory, name.as_bytes()).unwrap();
            }
            fs.sync().unwrap();
            for index in 0..8_u8 {
                let ino = create(directory, &format!("in the chain {index}"), NewInode::Regular);
                fs.write(ino, 0, &[index; 9000], IoFlags::empty()).unwrap();
                fs.fsync(ino, 0, false).unwrap();
            }
            fs.shutdown(false).unwrap();
        }
    }
}

/// A volume of mkfs.f2fs (or with zones) that Cairn has written.
pub fn worked(size: u64, arguments: &[&str], end: End) -> Arc<MemoryDevice> {
    let device = volume(size, arguments);
    work(&open(device.clone(), ""), end);
    Arc::new(device.fork())
}
