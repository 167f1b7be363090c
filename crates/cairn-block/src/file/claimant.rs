//! Finds who has claimed a block device, for the error that refuses it. The answer may be outdated
//! or unknown.
//!
//! A claim on a partition is one on its disk, and the other way round: all of them are looked at.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use cairn_base::shell::quoted;

use super::holder::{self, Holder};
use crate::error::{Error, ErrorKind};

/// The error for a block device that could not be opened exclusively.
pub(super) fn claimed(operation: &str, path: &Path) -> Error {
    // The system lists such a mount among its own.
    if let Some(said) = mounted_by_cairn(path) {
        return Error::new(ErrorKind::InUse, operation, said);
    }
    let nodes = Node::related(path);
    for node in &nodes {
        if let Some(mountpoint) = holder::mountpoint(&node.number) {
            return mounted(operation, &node.path().display().to_string(), &mountpoint);
        }
    }
    let by_system = nodes.iter().find_map(|node| node.above().or_else(|| node.swap()));
    let detail = by_system
        .or_else(|| {
            let mut paths = nodes.iter().map(Node::path);
            paths.find_map(|node| Some(holder::by_descriptor(&node)?.detail(&node)))
        })
        .unwrap_or_else(|| {
            "the system or another program has claimed the block device; unmount it, or stop the \
             RAID, device-mapper or swap use of it first"
                .to_owned()
        });
    Error::new(ErrorKind::InUse, operation, detail)
}

/// What to say of a block device that a process of this program has mounted, or its disk, or a
/// partition of it.
pub(super) fn mounted_by_cairn(path: &Path) -> Option<String> {
    let mut nodes = Node::related(path).into_iter().map(|node| node.path());
    nodes.find_map(|node| Some(Holder::mount_of(&node)?.detail(&node)))
}

/// The error for a device that the kernel has mounted.
pub(super) fn mounted(operation: &str, device: &str, mountpoint: &str) -> Error {
    let word = quoted(mountpoint);
    let detail = format!("the system has {device} mounted on {mountpoint}; `umount {word}` first");
    Error::new(ErrorKind::InUse, operation, detail)
}

/// A block device, as the system describes it.
struct Node {
    /// Its directory in `/sys`.
    directory: PathBuf,
    name: String,
    /// `MAJ:MIN`.
    number: String,
}

impl Node {
    fn at(directory: PathBuf) -> Option<Self> {
        let name = directory.file_name()?.to_str()?.to_owned();
        let number = std::fs::read_to_string(directory.join("dev")).ok()?.trim().to_owned();
        Some(Self { directory, name, number })
    }

    /// A device, its partitions, and the disk that it is a partition of.
    fn related(path: &Path) -> Vec<Self> {
        let number = std::fs::metadata(path).map(|metadata| holder::number(metadata.rdev()));
        let directory =
            number.and_then(|number| Path::new("/sys/dev/block").join(number).canonicalize());
        let Ok(directory) = directory else { return Vec::new() };
        let disk = directory.parent().filter(|_| directory.join("partition").exists());
        let disk = disk.and_then(|disk| Self::at(disk.into()));
        Self::with_partitions(&directory).into_iter().chain(disk).collect()
    }

    /// A device and its partitions, by its directory.
    fn with_partitions(directory: &Path) -> Vec<Self> {
        let name = directory.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let below = std::fs::read_dir(directory).into_iter().flatten().flatten();
        let below = below.filter(|entry| entry.file_name().to_string_lossy().starts_with(&name));
        let all = std::iter::once(PathBuf::from(directory)).chain(below.map(|entry| entry.path()));
        all.filter_map(Self::at).collect()
    }

    fn path(&self) -> PathBuf {
        Path::new("/dev").join(&self.name)
    }

    /// A device of the system that is made of this one.
    fn above(&self) -> Option<String> {
        let mut holders = std::fs::read_dir(self.directory.join("holders")).ok()?.flatten();
        let holder = holders.next()?;
        let name = std::fs::read_to_string(holder.path().join("dm/name"));
        let name = name.map(|name| format!(" ({})", name.trim())).unwrap_or_default();
        let (own, holder) = (self.path(), holder.file_name());
        let (own, holder) = (own.display(), holder.display());
        Some(format!("{own} is a part of /dev/{holder}{name}: stop that device first"))
    }

    /// The system swaps to it.
    fn swap(&self) -> Option<String> {
        let areas = std::fs::read_to_string("/proc/swaps").ok()?;
        let own = self.path();
        let is_area = |line: &str| line.split_whitespace().next().map(Path::new) == Some(&own);
        let own = own.display();
        areas
            .lines()
            .any(is_area)
            .then(|| format!("the system swaps to {own}: `swapoff {own}` first"))
    }
}

/// The numbers of a device and its partitions, as `MAJ:MIN`, by its directory in `/sys`.
pub(super) fn numbers(directory: &Path) -> Vec<String> {
    Node::with_partitions(directory).into_iter().map(|node| node.number).collect()
}
