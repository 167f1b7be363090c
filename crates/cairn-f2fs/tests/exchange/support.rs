//! Kinds of volumes; functions that open and judge them.

use std::path::Path;
use std::sync::Arc;

use cairn_base::runtime::threads::Threads;
use cairn_block::BlockDevice;
use cairn_block::memory::MemoryDevice;
use cairn_f2fs::{F2fs, MountOptions};
use cairn_testkit::judge::{f2fs_in_memory, mkfs_f2fs};
use cairn_testkit::tree::{LOOSE, Snapshot, SnapshotOptions, UNTIMED, digest_volume};
use cairn_testkit::vm::Job;
use cairn_vfs::FileSystem;

#[path = "../common/judge.rs"]
mod judges;

pub use judges::{check, judge};

/// A kind of volume, and how each side mounts it.
#[derive(Clone, Copy, Debug)]
pub struct Kind {
    pub name: &'static str,
    pub mebibytes: u64,
    /// Arguments of mkfs.f2fs.
    pub args: &'static [&'static str],
    /// Mount options of Linux.
    pub linux: &'static str,
    /// Our mount options.
    pub ours: &'static str,
}

impl Kind {
    pub const fn new(name: &'static str, mebibytes: u64, args: &'static [&'static str]) -> Self {
        Self { name, mebibytes, args, linux: "rw", ours: "" }
    }

    /// Makes a volume of this kind.
    pub fn make(&self, image: &Path) {
        mkfs_f2fs(image, self.mebibytes << 20, self.args);
    }

    /// Makes one in memory.
    pub fn in_memory(&self) -> MemoryDevice {
        f2fs_in_memory(self.mebibytes << 20, self.args)
    }

    /// Opens one for writing.
    pub fn open(&self, device: Arc<dyn BlockDevice>) -> Arc<F2fs> {
        open(device, self.ours)
    }
}

/// Opens a volume, which must be writable.
pub fn open(device: Arc<dyn BlockDevice>, options: &str) -> Arc<F2fs> {
    let fs = F2fs::open(device, Threads::new(), &MountOptions::parse(options).unwrap());
    let fs = fs.unwrap_or_else(|error| panic!("the volume opens ({options}): {error}"));
    assert!(
        options.contains("ro") || fs.read_only_reason().is_none(),
        "{:?}",
        fs.read_only_reason()
    );
    fs
}

/// The tree of a volume, with holes.
pub fn snapshot(fs: &dyn FileSystem) -> Snapshot {
    digest_volume(fs, SnapshotOptions { sectors: true, ..SnapshotOptions::default() }).unwrap()
}

/// The part of the current tree that a power cut must leave.
pub fn promise(fs: &dyn FileSystem) -> Snapshot {
    promised(digest_volume(fs, SnapshotOptions::default()).unwrap())
}

/// [`promise`] of a snapshot.
pub fn promised(snapshot: Snapshot) -> Snapshot {
    snapshot.without(LOOSE).without_times_of_directories_and(UNTIMED)
}

/// The line of a script that does a job.
pub fn line(job: &Job) -> String {
    job.line("in_the_machine")
}

/// The name of a machine's disk.
pub fn disk(index: usize) -> String {
    format!("/dev/vd{}", char::from(b'a' + u8::try_from(index).unwrap()))
}
