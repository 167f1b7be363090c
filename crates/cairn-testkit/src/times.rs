//! Checks how reading changes access times.

use cairn_base::Ino;
use cairn_vfs::{Caller, FileSystem, IoFlags, NewInode, SetAttributes, SetTime, Timestamp};

/// The inodes whose times are read: a file, its link and their directory.
const KINDS: [&str; 3] = ["file", "link", "directory"];

/// Makes the three in the root.
///
/// # Panics
/// The filesystem refuses.
pub fn make(fs: &dyn FileSystem) {
    let new = |name: &str, kind| {
        fs.create(fs.root(), name.as_bytes(), kind, 0o755, &Caller::ROOT).unwrap().ino
    };
    let file = new("file", NewInode::Regular);
    fs.write(file, 0, &[7; 10_000], IoFlags::empty()).unwrap();
    new("link", NewInode::Symlink(b"file"));
    new("directory", NewInode::Directory);
}

fn find(fs: &dyn FileSystem, name: &str) -> Ino {
    fs.lookup(fs.root(), name.as_bytes()).unwrap().ino
}

/// The access time, in seconds, of each of them after it was set to `seconds` and then read.
///
/// # Panics
/// The filesystem refuses.
pub fn after_reading(fs: &dyn FileSystem, seconds: i64) -> Vec<i64> {
    KINDS
        .into_iter()
        .map(|name| {
            let ino = find(fs, name);
            let old = Timestamp { seconds, nanoseconds: 0 };
            let times = SetAttributes { atime: Some(SetTime::To(old)), ..SetAttributes::default() };
            fs.setattr(ino, &times).unwrap();
            match name {
                "file" => drop(fs.read(ino, 0, &mut [0; 100], IoFlags::empty()).unwrap()),
                "link" => drop(fs.readlink(ino).unwrap()),
                _ => fs.readdir(ino, 0, &mut |_| true).unwrap(),
            }
            seconds_of(fs, name)
        })
        .collect()
}

/// The access time of one of them, in seconds.
fn seconds_of(fs: &dyn FileSystem, name: &str) -> i64 {
    fs.getattr(find(fs, name)).unwrap().atime.seconds
}

/// The access times of all of them, in seconds.
#[must_use]
pub fn kept(fs: &dyn FileSystem) -> Vec<i64> {
    KINDS.into_iter().map(|name| seconds_of(fs, name)).collect()
}

/// True if these are current times, not those that the test set.
#[must_use]
pub fn are_new(seconds: &[i64]) -> bool {
    // 2020. Tests set older times.
    seconds.iter().all(|seconds| *seconds > 1_577_836_800)
}
