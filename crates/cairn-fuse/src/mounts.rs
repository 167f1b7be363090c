//! The mount table, and the kernel's settings of a mount.
//!
//! Nothing here may access the mounted directory: no thread serves it yet.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, ErrorKind, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::io::Errno;
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, UnmountFlags, fsconfig_create, fsmount, fsopen,
};

/// A line of `/proc/self/mountinfo`, with the fields used here.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Mount {
    /// `major:minor`.
    pub(crate) device: String,
    pub(crate) kind: String,
    pub(crate) source: String,
}

/// What is mounted on a path (the topmost), if anything.
pub(crate) fn mounted_on(path: &Path) -> Option<Mount> {
    look_up(path).ok()
}

/// What is mounted on a path, or why that cannot be told.
pub(crate) fn look_up(path: &Path) -> io::Result<Mount> {
    let table = fs::read_to_string("/proc/self/mountinfo")?;
    find(&table, path).ok_or_else(|| ErrorKind::NotFound.into())
}

fn find(table: &str, path: &Path) -> Option<Mount> {
    table.lines().rev().find_map(|line| {
        let (own, rest) = line.split_once(" - ")?;
        let mut own = own.split(' ');
        let (device, mount_point) = (own.nth(2)?, own.nth(1)?);
        let mut rest = rest.split(' ');
        let (kind, source) =
            (rest.next()?.to_owned(), unescape(rest.next()?).display().to_string());
        (unescape(mount_point) == path).then(|| Mount { device: device.to_owned(), kind, source })
    })
}

/// The device number of the mount that a `/dev/fuse` descriptor serves, from `/proc/self/fdinfo`
/// (Linux 6.18 shows it, older kernels do not). Unlike the mount table it is right also if
/// something else has been mounted on the same path meanwhile.
pub(crate) fn connection(device: &impl AsFd) -> Option<String> {
    let path = format!("/proc/self/fdinfo/{}", device.as_fd().as_raw_fd());
    let text = fs::read_to_string(path).ok()?;
    let number = text.lines().find_map(|line| line.strip_prefix("fuse_connection:"))?.trim();
    // The number of the connection is the device number in the kernel's own form: 20 bits of minor.
    let number: u32 = number.parse().ok()?;
    Some(format!("{}:{}", number >> 20, number & 0xF_FFFF))
}

/// Undoes the kernel's octal escapes of space, tab, newline and backslash.
fn unescape(text: &str) -> PathBuf {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, tail)) = rest.split_first() {
        let octal = tail.get(..3).and_then(|digits| std::str::from_utf8(digits).ok());
        match octal.and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(byte) if *first == b'\\' => {
                bytes.push(byte);
                rest = &tail[3..];
            }
            _ => {
                bytes.push(*first);
                rest = tail;
            }
        }
    }
    OsString::from_vec(bytes).into()
}

/// Raises the kernel's readahead to 1 MiB. Needs root; without it reads are slower.
/// [`crate::guard`] sets how much dirty data the kernel may hold.
pub(crate) fn tune(device: &str) {
    let path = settings(device).join("read_ahead_kb");
    if let Err(error) = fs::write(&path, "1024") {
        tracing::debug!("{} could not be changed: {error}", path.display());
    }
}

/// The kernel's settings of a mount's pages. A mount on a block device has the number of that, and
/// a name of its own beside the device's.
pub(crate) fn settings(device: &str) -> PathBuf {
    let all = Path::new("/sys/class/bdi");
    let block = all.join(format!("{device}-fuseblk"));
    if block.exists() { block } else { all.join(device) }
}

/// Unmounts the mount with this number (`major:minor`) from a path. Succeeds if it is not there.
pub(crate) fn unmount(path: &Path, device: &str) -> io::Result<()> {
    let table = fs::read_to_string("/proc/self/mountinfo")?;
    match find(&table, path) {
        Some(mount) if mount.device == device => {}
        _ if !table.lines().any(|line| is_at(line, path, device)) => return Ok(()),
        _ => {
            return Err(io::Error::new(
                ErrorKind::ResourceBusy,
                "something else is mounted over it",
            ));
        }
    }
    match rustix::mount::unmount(path, UnmountFlags::NOFOLLOW) {
        // Only the set-user-id helper may unmount it.
        Err(Errno::PERM) => unmount_as_user(path),
        done => Ok(done?),
    }
}

fn is_at(line: &str, path: &Path, device: &str) -> bool {
    let mut fields = line.split(' ').skip(2);
    fields.next() == Some(device) && fields.nth(1).is_some_and(|point| unescape(point) == path)
}

fn unmount_as_user(path: &Path) -> io::Result<()> {
    let mut command = Command::new("fusermount3");
    let output =
        command.env("LC_ALL", "C").args(["-u", "--"]).arg(path).stdin(Stdio::null()).output()?;
    let text = String::from_utf8_lossy(&output.stderr);
    match output.status.success() {
        true => Ok(()),
        false if text.contains("busy") => Err(ErrorKind::ResourceBusy.into()),
        false => Err(io::Error::other(text.trim().to_owned())),
    }
}

/// Aborts the connection of a mount (`major:minor`): every pending and later request fails.
pub(crate) fn abort(device: &str) -> io::Result<()> {
    let number = connection_number(device).ok_or(ErrorKind::NotFound)?;
    let directory = match control_files() {
        // Only root mounts. The files belong to the user who mounted the connection.
        Err(_) => openat(CWD, CONTROL_FILES, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()),
        own => own,
    }?;
    let flags = OFlags::WRONLY | OFlags::CLOEXEC;
    let file = openat(directory, format!("{number}/abort"), flags, Mode::empty())?;
    File::from(file).write_all(b"1")
}

/// The number of a connection, from that of its mount: 20 bits of minor.
fn connection_number(device: &str) -> Option<u32> {
    let (major, minor) = device.split_once(':')?;
    Some(major.parse::<u32>().ok()?.checked_shl(20)? | minor.parse::<u32>().ok()?)
}

/// Where most systems mount `fusectl`.
const CONTROL_FILES: &str = "/sys/fs/fuse/connections";

/// The control files of all connections, in a mount without a place: containers and small systems
/// do not mount `fusectl`.
fn control_files() -> rustix::io::Result<OwnedFd> {
    let context = fsopen("fusectl", FsOpenFlags::FSOPEN_CLOEXEC)?;
    fsconfig_create(&context)?;
    fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, MountAttrFlags::empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_topmost_mount_is_found_by_its_unescaped_path() {
        let table = "22 1 8:1 / / rw - ext4 /dev/sda1 rw\n\
            40 22 0:50 / /mnt/a\\040b rw shared:5 - fuse.cairn old.img rw\n\
            41 22 0:51 / /mnt/a\\040b rw,nosuid - fuse.cairn my\\040disk.img rw\n";
        let found = find(table, Path::new("/mnt/a b")).unwrap();
        assert_eq!(
            found,
            Mount {
                device: "0:51".into(),
                kind: "fuse.cairn".into(),
                source: "my disk.img".into()
            }
        );
        assert_eq!(find(table, Path::new("/mnt/a")), None);
    }
}
