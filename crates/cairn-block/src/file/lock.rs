//! Who may have an image: advisory locks (`flock`), and what the system itself has mounted.
//!
//! The lock belongs to the open file: two opens in one process exclude each other like two processes. Who holds an
//! image is looked up only after the lock was refused, for the message; that may be outdated or unknown.

use std::fs::{File, Metadata, TryLockError};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{major, minor};

use crate::error::{Error, ErrorKind, Result};

/// Takes the lock for a writer or reader. A writer is also refused a file that is mounted through a loop device.
pub(super) fn acquire(operation: &str, path: &Path, file: &File, metadata: &Metadata, write: bool) -> Result<()> {
    let locked = if write { file.try_lock() } else { file.try_lock_shared() };
    match locked {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            let holder = holder(metadata).unwrap_or_else(|| "another program".to_owned());
            let detail = format!(
                "in use by {holder}; if it is mounted unmount it (`cairn umount MOUNTPOINT`), else wait until that \
                 program has ended"
            );
            return Err(Error::new(ErrorKind::InUse, operation, detail));
        }
        Err(TryLockError::Error(error)) => return Err(Error::from_io(operation, error)),
    }
    match loop_mount(path).filter(|_| write) {
        Some((device, mountpoint)) => Err(mounted(operation, &device, &mountpoint)),
        None => Ok(()),
    }
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

fn mounted(operation: &str, device: &str, mountpoint: &str) -> Error {
    let detail = format!("the system has {device} mounted on {mountpoint}; `umount {mountpoint}` first");
    Error::new(ErrorKind::InUse, operation, detail)
}

/// The process that holds a `flock` on the file, by `/proc/locks`: `N: FLOCK ADVISORY WRITE PID MAJ:MIN:INODE START END`.
fn holder(metadata: &Metadata) -> Option<String> {
    let wanted = format!("{:02x}:{:02x}:{}", major(metadata.dev()), minor(metadata.dev()), metadata.ino());
    let locks = std::fs::read_to_string("/proc/locks").ok()?;
    let pid = locks.lines().find_map(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        match fields.as_slice() {
            [_, "FLOCK", _, _, pid, file, ..] if *file == wanted => Some((*pid).to_owned()),
            _ => None,
        }
    })?;
    // A lock handed on to a child keeps the number of the process that took it, which may have ended.
    let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).ok()?;
    Some(format!("process {pid} ({})", name.trim()))
}

/// Loop device and mount point through which the system has the file mounted.
fn loop_mount(path: &Path) -> Option<(String, String)> {
    let path = path.canonicalize().ok()?;
    let devices = std::fs::read_dir("/sys/block").ok()?;
    devices.flatten().find_map(|device| {
        let backing = std::fs::read_to_string(device.path().join("loop/backing_file")).ok()?;
        if Path::new(backing.trim_end_matches('\n')) != path {
            return None;
        }
        let name = device.file_name().into_string().ok()?;
        let mountpoint = block_numbers(&device.path(), &name).iter().find_map(|number| mountpoint(number))?;
        Some((format!("/dev/{name}"), mountpoint))
    })
}

/// The numbers of a device and its partitions, as `MAJ:MIN`.
fn block_numbers(device: &Path, name: &str) -> Vec<String> {
    let partitions = std::fs::read_dir(device).into_iter().flatten().flatten();
    let partitions = partitions.filter(|entry| entry.file_name().to_string_lossy().starts_with(name));
    let directories = std::iter::once(PathBuf::from(device)).chain(partitions.map(|entry| entry.path()));
    directories.filter_map(|at| std::fs::read_to_string(at.join("dev")).ok()).map(|dev| dev.trim().to_owned()).collect()
}

fn number(device: u64) -> String {
    format!("{}:{}", major(device), minor(device))
}

/// Where a block device is mounted, by `/proc/self/mountinfo`: `ID PARENT MAJ:MIN ROOT MOUNTPOINT …`.
fn mountpoint(number: &str) -> Option<String> {
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").ok()?;
    mounts.lines().find_map(|line| {
        let mut fields = line.split(' ').skip(2);
        let device = fields.next()?;
        let mountpoint = fields.nth(1)?;
        (device == number).then(|| mountpoint.to_owned())
    })
}
