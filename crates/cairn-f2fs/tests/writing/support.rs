//! Volumes in memory; functions that open and judge them.

use std::sync::Arc;

use cairn_base::Ino;
use cairn_block::memory::MemoryDevice;
use cairn_f2fs::F2fs;
use cairn_testkit::tree::{Snapshot, SnapshotOptions, digest_volume};
use cairn_vfs::{Attributes, Caller, FileSystem, NewInode, Result};

#[path = "../common/volume.rs"]
mod fresh;
#[path = "../common/judge.rs"]
mod judges;
#[path = "../common/open.rs"]
mod opened;

pub use fresh::{CASEFOLD, ZONED, set_bits, volume};
pub use judges::judge;

/// Features of inodes that are off by default.
pub const EXTRA: &str =
    "extra_attr,inode_checksum,sb_checksum,flexible_inline_xattr,inode_crtime,lost_found";

/// Arguments of mkfs for each kind of volume.
pub const KINDS: [&[&str]; 2] = [&[], &["-O", EXTRA]];

/// Opens a volume that must be writable.
#[track_caller]
pub fn open(device: &Arc<MemoryDevice>, options: &str) -> Arc<F2fs> {
    opened::open(device.clone(), options)
}

/// Unmounts, judges and opens the volume again, and compares the trees.
#[track_caller]
pub fn remount(device: &Arc<MemoryDevice>, fs: Arc<F2fs>) -> Arc<F2fs> {
    let before = snapshot(&fs);
    fs.unmount().unwrap();
    drop(fs);
    judge(device);
    let fs = open(device, "");
    before.assert_same(&snapshot(&fs));
    fs
}

/// The tree of the volume.
pub fn snapshot(fs: &F2fs) -> Snapshot {
    digest_volume(fs, SnapshotOptions::default()).unwrap()
}

/// Creates an inode and drops the reference at once.
pub fn make(fs: &F2fs, parent: Ino, name: &[u8], new: NewInode<'_>) -> Result<Attributes> {
    let made = fs.create(parent, name, new, 0o755, &Caller::ROOT)?;
    fs.forget(made.ino, 1);
    Ok(made)
}

/// Looks an inode up and drops the reference at once.
pub fn find(fs: &F2fs, parent: Ino, name: &[u8]) -> Result<Attributes> {
    let found = fs.lookup(parent, name)?;
    fs.forget(found.ino, 1);
    Ok(found)
}

/// All names of a directory.
pub fn names(fs: &F2fs, directory: Ino) -> Vec<Vec<u8>> {
    let mut names = Vec::new();
    let mut collect = |entry: cairn_vfs::DirEntry| {
        names.push(entry.name.into_bytes());
        true
    };
    fs.readdir(directory, 0, &mut collect).unwrap();
    names
}
