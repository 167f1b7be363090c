//! Finds who holds an image, for the error that refuses it. The answer may be outdated or unknown.
//!
//! Nothing here opens the paths that it finds: they are compared as text. A path may lead to a
//! filesystem that hangs.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use cairn_base::shell::quoted;
use rustix::fs::{major, minor};

use crate::error::{Error, ErrorKind, Result};

/// The error for an image that another process has locked.
pub(super) fn in_use(operation: &str, path: &Path, metadata: &Metadata) -> Error {
    let detail = match by_flock(metadata).or_else(|| by_descriptor(path)) {
        Some(holder) => holder.detail(path),
        None => "in use by another program; if it is mounted unmount it, else \
                 wait until that program has ended"
            .to_owned(),
    };
    Error::new(ErrorKind::InUse, operation, detail)
}

/// How often the list of locks is read, at most. The system gives it in pieces, between which
/// others take locks and give them back, so that one may be missing.
const READS_OF_LOCKS: u32 = 5;

/// A process that has an image open.
pub(super) struct Holder {
    pid: String,
    /// Its name, by the system.
    name: String,
}

impl Holder {
    fn of(pid: &str) -> Option<Self> {
        let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).ok()?;
        Some(Self { pid: pid.to_owned(), name: name.trim().to_owned() })
    }

    /// The process that has mounted the image.
    pub(super) fn mount_of(path: &Path) -> Option<Self> {
        let mounts =
            |found: &Self| found.name == "cairn" && found.subcommand().as_deref() == Some("mount");
        with_descriptor(path)?.find(mounts)
    }

    /// What a refusal says, and what to do.
    pub(super) fn detail(&self, path: &Path) -> String {
        let Self { pid, name } = self;
        if *pid == std::process::id().to_string() {
            return "in use: this process has opened it already; close it there first".to_owned();
        }
        match (name.as_str(), self.subcommand().as_deref()) {
            ("cairn", Some("mount")) => match fuse_mountpoint(path, |_| true) {
                Some(point) => {
                    let word = quoted(&point);
                    format!("in use: mounted on {point} (process {pid}): `umount {word}`")
                }
                None if self.shares_mounts() => format!(
                    "in use by process {pid} ({name} mount): unmount what it has mounted; if that \
                     is detached (umount --lazy), wait until the last program that uses it has \
                     ended, or end that one"
                ),
                None => format!(
                    "in use by process {pid} ({name} mount), in another mount namespace: unmount \
                     it there, with `nsenter --target {pid} --mount umount MOUNTPOINT`"
                ),
            },
            ("cairn", Some(command)) => {
                format!("in use by process {pid} (cairn {command}): wait until it has ended")
            }
            _ => format!(
                "in use by process {pid} ({name}); if it is mounted unmount it, else wait until \
                 that program has ended"
            ),
        }
    }

    /// True if it is in the mount namespace of this process.
    fn shares_mounts(&self) -> bool {
        let namespace = |pid: &str| std::fs::read_link(format!("/proc/{pid}/ns/mnt")).ok();
        namespace(&self.pid).is_some_and(|found| Some(found) == namespace("self"))
    }

    /// The first argument, if it is the name of a command.
    fn subcommand(&self) -> Option<String> {
        let line = std::fs::read(format!("/proc/{}/cmdline", self.pid)).ok()?;
        let word = std::str::from_utf8(line.split(|byte| *byte == 0).nth(1)?).ok()?.to_owned();
        let is_command =
            !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'-');
        is_command.then_some(word)
    }
}

/// Refuses a file that another FUSE filesystem (such as fuse2fs) has mounted: it takes no lock. A
/// mount whose daemon died does not count, so a process must have the file open.
pub(super) fn refuse_fuse(operation: &str, path: &Path) -> Result<()> {
    let foreign = |kind: &str| !kind.ends_with(".cairn");
    match fuse_mountpoint(path, foreign).and_then(|point| Some((point, by_descriptor(path)?))) {
        Some((point, Holder { pid, name })) => {
            let word = quoted(&point);
            let detail = format!(
                "in use: mounted on {point} by process {pid} ({name}): `umount {word}` first"
            );
            Err(Error::new(ErrorKind::InUse, operation, detail))
        }
        None => Ok(()),
    }
}

/// Where a FUSE filesystem has this file mounted, by its source in `/proc/self/mountinfo`:
/// `… MOUNTPOINT OPTIONS … - TYPE SOURCE …`. Other programs show the name that they were given, in
/// whatever directory.
fn fuse_mountpoint(path: &Path, is_wanted: impl Fn(&str) -> bool) -> Option<String> {
    let whole = path.canonicalize().ok()?;
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").ok()?;
    mounts.lines().rev().find_map(|line| {
        let (own, rest) = line.split_once(" - ")?;
        let (kind, rest) = rest.split_once(' ')?;
        let is_fuse = matches!(kind.split('.').next(), Some("fuse" | "fuseblk"));
        if !is_fuse || !is_wanted(kind) || !is_source(&unescaped(rest.split(' ').next()?), &whole) {
            return None;
        }
        Some(unescaped(own.split(' ').nth(4)?))
    })
}

/// The file of a loop device, as the system names it; `None` if it is no loop device, or has none.
#[must_use]
pub fn backing_file(device: impl AsRef<Path>) -> Option<PathBuf> {
    backing_of(&Path::new("/sys/class/block").join(device.as_ref().file_name()?))
}

/// The same, by the directory of the device in `/sys`.
pub(super) fn backing_of(directory: &Path) -> Option<PathBuf> {
    let backing = std::fs::read_to_string(directory.join("loop/backing_file")).ok()?;
    Some(backing.trim_end_matches('\n').into())
}

/// Does the source name the image, or a part of it? A part and how it is opened follow a `#` or
/// `?`, of which there may be several, as in `/dev/sdb?io=direct#2`, and names may have them, too.
fn is_source(source: &str, image: &Path) -> bool {
    let is = |source: &Path| match source.is_absolute() {
        true => source == image || is_one_file(source, image) || shows(source, image),
        false => source.file_name().is_some() && source.file_name() == image.file_name(),
    };
    let marks = source.match_indices(['#', '?']).map(|(at, _)| at);
    marks.chain([source.len()]).any(|end| is(Path::new(&source[..end])))
}

/// Is it a loop device of the image, or a partition of one?
fn shows(source: &Path, image: &Path) -> bool {
    let Some(name) = source.file_name().filter(|_| source.starts_with("/dev")) else {
        return false;
    };
    let Ok(directory) = Path::new("/sys/class/block").join(name).canonicalize() else {
        return false;
    };
    directory.ancestors().take(2).any(|it| backing_of(it).as_deref() == Some(image))
}

/// True if both names lead to one file: an image may have several.
fn is_one_file(one: &Path, other: &Path) -> bool {
    let identity = |path: &Path| Some(std::fs::metadata(path).ok()?).map(|it| (it.dev(), it.ino()));
    one.is_absolute() && identity(one).is_some_and(|found| Some(found) == identity(other))
}

/// Decodes the table's `\040` and the like.
fn unescaped(field: &str) -> String {
    const ESCAPED: [char; 5] = [' ', '\t', '\n', '#', '\\'];
    ESCAPED.iter().fold(field.to_owned(), |text, letter| {
        text.replace(&format!("\\{:03o}", u32::from(*letter)), &letter.to_string())
    })
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
fn by_flock(metadata: &Metadata) -> Option<Holder> {
    let find = || locks(metadata.dev(), metadata.ino())?.find(|(kind, _)| kind == "FLOCK");
    let (_, pid) = (0..READS_OF_LOCKS).find_map(|_| find())?;
    // A lock that a child inherited keeps the id of the process that took it, which may have ended.
    Holder::of(&pid)
}

/// A process that has the file open: locks of bytes are listed without their owner.
pub(super) fn by_descriptor(path: &Path) -> Option<Holder> {
    with_descriptor(path)?.next()
}

/// The other processes that have the file open.
fn with_descriptor(path: &Path) -> Option<impl Iterator<Item = Holder>> {
    let path = path.canonicalize().ok()?;
    let own = std::process::id().to_string();
    let processes = std::fs::read_dir("/proc")
        .ok()?
        .flatten()
        .filter_map(|entry| entry.file_name().into_string().ok());
    let others = processes
        .filter(move |name| name.bytes().all(|byte| byte.is_ascii_digit()) && *name != own);
    Some(others.filter_map(move |pid| {
        let mut open = std::fs::read_dir(format!("/proc/{pid}/fd")).ok()?.flatten();
        open.any(|entry| std::fs::read_link(entry.path()).is_ok_and(|target| target == path))
            .then(|| Holder::of(&pid))?
    }))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_source_names_its_image_whatever_follows() {
        let image = Path::new("/images/disk#1");
        for selected in ["", "#2", "?io=direct", "?io=direct#2", "?offset=1M&key-file=/a/b#c"] {
            assert!(is_source(&format!("/images/disk#1{selected}"), image), "{selected}");
            assert!(is_source(&format!("disk#1{selected}"), image), "{selected}");
            assert!(!is_source(&format!("/images/disk#12{selected}"), image), "{selected}");
            assert!(!is_source(&format!("/other/disk#1{selected}"), image), "{selected}");
        }
    }
}
