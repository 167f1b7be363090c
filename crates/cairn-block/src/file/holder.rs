//! Finds who holds an image, for the error that refuses it. The answer may be outdated or unknown.
//!
//! Nothing here opens the paths that it finds: they are compared as text. A path may lead to a
//! filesystem that hangs.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::fs::{major, minor};

use crate::error::{Error, ErrorKind};

/// The error for an image that another process has locked.
pub(super) fn in_use(operation: &str, path: &Path, metadata: &Metadata) -> Error {
    let holder = by_flock(metadata)
        .or_else(|| by_descriptor(path))
        .unwrap_or_else(|| "another program".to_owned());
    let detail = format!(
        "in use by {holder}; if it is mounted unmount it (`cairn umount MOUNTPOINT`), else wait until that program has ended"
    );
    Error::new(ErrorKind::InUse, operation, detail)
}

/// The error for a block device that could not be opened exclusively.
pub(super) fn claimed(operation: &str, path: &Path) -> Error {
    let number = std::fs::metadata(path).map(|metadata| number(metadata.rdev()));
    match number.ok().and_then(|number| mountpoint(&number)) {
        Some(mountpoint) => mounted(operation, &path.display().to_string(), &mountpoint),
        None => {
            let detail = "the system or another program has claimed the block device; unmount it, or stop the RAID, \
                          device-mapper or swap use of it first";
            Error::new(ErrorKind::InUse, operation, detail)
        }
    }
}

/// The error for a device that the kernel has mounted.
pub(super) fn mounted(operation: &str, device: &str, mountpoint: &str) -> Error {
    let detail =
        format!("the system has {device} mounted on {mountpoint}; `umount {mountpoint}` first");
    Error::new(ErrorKind::InUse, operation, detail)
}

/// Does any process hold a lock on this file, by the system's list? For files that cannot be
/// opened.
pub(super) fn is_locked(device: u64, inode: u64) -> bool {
    locks(device, inode).is_some_and(|mut found| found.next().is_some())
}

/// Owners of the locks on a file, by `/proc/locks`:
/// `N: FLOCK ADVISORY WRITE PID MAJ:MIN:INODE START END`.
fn locks(device: u64, inode: u64) -> Option<impl Iterator<Item = (String, String)>> {
    let wanted = format!("{:02x}:{:02x}:{inode}", major(device), minor(device));
    let locks = std::fs::read_to_string("/proc/locks").ok()?;
    let lines: Vec<String> = locks.lines().map(str::to_owned).collect();
    Some(lines.into_iter().filter_map(move |line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        match fields.as_slice() {
            [_, kind, _, _, pid, file, ..] if *file == wanted => {
                Some(((*kind).to_owned(), (*pid).to_owned()))
            }
            _ => None,
        }
    }))
}

/// The process that holds a `flock` on the file.
fn by_flock(metadata: &Metadata) -> Option<String> {
    let (_, pid) = locks(metadata.dev(), metadata.ino())?.find(|(kind, _)| kind == "FLOCK")?;
    // A lock that a child inherited keeps the id of the process that took it, which may have ended.
    named(&pid)
}

/// A process that has the file open: locks of bytes are listed without their owner.
fn by_descriptor(path: &Path) -> Option<String> {
    let path = path.canonicalize().ok()?;
    let own = std::process::id().to_string();
    let processes = std::fs::read_dir("/proc")
        .ok()?
        .flatten()
        .filter_map(|entry| entry.file_name().into_string().ok());
    processes
        .filter(|name| name.bytes().all(|byte| byte.is_ascii_digit()) && *name != own)
        .find_map(|pid| {
            let mut open = std::fs::read_dir(format!("/proc/{pid}/fd")).ok()?.flatten();
            open.any(|entry| std::fs::read_link(entry.path()).is_ok_and(|target| target == path))
                .then(|| named(&pid))?
        })
}

fn named(pid: &str) -> Option<String> {
    let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).ok()?;
    Some(format!("process {pid} ({})", name.trim()))
}

/// `MAJ:MIN`.
pub(super) fn number(device: u64) -> String {
    format!("{}:{}", major(device), minor(device))
}

/// Where a block device is mounted, by `/proc/self/mountinfo`:
/// `ID PARENT MAJ:MIN ROOT MOUNTPOINT …`.
pub(super) fn mountpoint(number: &str) -> Option<String> {
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").ok()?;
    mounts.lines().find_map(|line| {
        let mut fields = line.split(' ').skip(2);
        let device = fields.next()?;
        let mountpoint = fields.nth(1)?;
        (device == number).then(|| mountpoint.to_owned())
    })
}
