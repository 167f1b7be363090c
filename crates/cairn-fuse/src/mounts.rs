//! The mount table, and the kernel's settings of our mount.
//!
//! Nothing here may touch the mounted directory itself: nobody answers there yet.

use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

/// A line of `/proc/self/mountinfo`, as far as we care.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Mount {
    /// `major:minor`.
    pub(crate) device: String,
    pub(crate) kind: String,
    pub(crate) source: String,
}

/// What is mounted on a path (the topmost), if anything.
pub(crate) fn mounted_on(path: &Path) -> Option<Mount> {
    find(&fs::read_to_string("/proc/self/mountinfo").ok()?, path)
}

fn find(table: &str, path: &Path) -> Option<Mount> {
    table.lines().rev().find_map(|line| {
        let (own, rest) = line.split_once(" - ")?;
        let mut own = own.split(' ');
        let (device, mount_point) = (own.nth(2)?, own.nth(1)?);
        let mut rest = rest.split(' ');
        let (kind, source) = (rest.next()?.to_owned(), unescape(rest.next()?).display().to_string());
        (unescape(mount_point) == path).then(|| Mount { device: device.to_owned(), kind, source })
    })
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

/// Lets the kernel read ahead 1 MiB. Needs root; without it, slower is all. How much it may hold: [`crate::guard`].
pub(crate) fn tune(mount: &Mount) {
    let path = format!("/sys/class/bdi/{}/read_ahead_kb", mount.device);
    if let Err(error) = fs::write(&path, "1024") {
        tracing::debug!("{path} stays as it is: {error}");
    }
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
        assert_eq!(found, Mount { device: "0:51".into(), kind: "fuse.cairn".into(), source: "my disk.img".into() });
        assert_eq!(find(table, Path::new("/mnt/a")), None);
    }
}
