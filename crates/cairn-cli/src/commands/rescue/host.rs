//! The directory of the host that rescued files go to.
//!
//! Invariant: nothing is made outside the directory, and nothing in it is replaced. Every name is
//! opened below its directory without following links, and files are made with "create new" calls.
//! Owner and mode are set through what was opened, because another user may exchange a name
//! meanwhile.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::fs::{AtFlags, FileType, Gid, Mode, OFlags, Timespec, Timestamps, Uid};
use rustix::io::Errno;

/// Names that are tried for a file whose name is taken.
const TRIES: u32 = 1000;
/// The bits of a mode with which a program runs as its owner or group.
const SET_ID: u32 = 0o6000;

/// The directory.
pub(super) struct Host {
    root: OwnedFd,
}

/// A place for a new file: its directory, and its name there.
pub(super) struct Place {
    pub(super) directory: OwnedFd,
    pub(super) name: Vec<u8>,
}

const DIRECTORY: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

impl Host {
    /// Opens the directory, or makes it.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        match std::fs::create_dir(path) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(Self { root: rustix::fs::open(path, flags, Mode::empty())? })
    }

    /// The directory of a path, which is made with those above it, and the path's last name.
    pub(super) fn place(&self, path: &[u8]) -> io::Result<Place> {
        let mut names: Vec<&[u8]> = path.split(|byte| *byte == b'/').collect();
        let last = names.pop().unwrap_or_default();
        let mut directory = self.root.try_clone()?;
        for name in names {
            check(name)?;
            directory = enter(&directory, name)?;
        }
        check(last)?;
        Ok(Place { directory, name: last.to_vec() })
    }

    /// Opens a directory that was made.
    pub(super) fn directory(&self, path: &[u8]) -> io::Result<OwnedFd> {
        let place = self.place(path)?;
        Ok(rustix::fs::openat(&place.directory, name(&place.name), DIRECTORY, Mode::empty())?)
    }
}

fn name(bytes: &[u8]) -> &OsStr {
    OsStr::from_bytes(bytes)
}

/// The names come from the image.
fn check(name: &[u8]) -> io::Result<()> {
    match name {
        b"" | b"." | b".." => Err(io::ErrorKind::InvalidInput.into()),
        name if name.contains(&0) => Err(io::ErrorKind::InvalidInput.into()),
        _ => Ok(()),
    }
}

/// Makes a directory unless it exists, and opens it.
fn enter(directory: &OwnedFd, within: &[u8]) -> io::Result<OwnedFd> {
    match rustix::fs::mkdirat(directory, name(within), Mode::RWXU) {
        Ok(()) | Err(Errno::EXIST) => {}
        Err(error) => return Err(error.into()),
    }
    Ok(rustix::fs::openat(directory, name(within), DIRECTORY, Mode::empty())?)
}

impl Place {
    /// Makes something under the name; if that is taken, under the name with a number.
    pub(super) fn make<T>(
        &mut self,
        ino: u64,
        make: impl Fn(&OwnedFd, &OsStr) -> Result<T, Errno>,
    ) -> io::Result<T> {
        let wanted = self.name.clone();
        for number in 0..TRIES {
            match make(&self.directory, name(&self.name)) {
                Err(Errno::EXIST) => {}
                done => return Ok(done?),
            }
            let suffix = match number {
                0 => format!("~{ino}"),
                number => format!("~{ino}~{number}"),
            };
            let kept = wanted.len().min(255_usize.saturating_sub(suffix.len()));
            self.name = [&wanted[..kept], suffix.as_bytes()].concat();
        }
        Err(io::ErrorKind::AlreadyExists.into())
    }

    /// Makes a new file.
    pub(super) fn file(&mut self, ino: u64) -> io::Result<File> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW;
        let flags = flags | OFlags::CLOEXEC;
        let mode = Mode::RUSR | Mode::WUSR;
        Ok(File::from(self.make(ino, |at, name| rustix::fs::openat(at, name, flags, mode))?))
    }

    /// Makes a directory, or uses the one that exists.
    pub(super) fn directory(&self) -> io::Result<()> {
        enter(&self.directory, &self.name).map(drop)
    }

    /// Makes a symbolic link.
    pub(super) fn symlink(&mut self, ino: u64, target: &[u8]) -> io::Result<()> {
        self.make(ino, |at, place| rustix::fs::symlinkat(name(target), at, place))
    }

    /// Makes a device, a FIFO or a socket.
    pub(super) fn node(&mut self, ino: u64, kind: FileType, device: (u32, u32)) -> io::Result<()> {
        let number = rustix::fs::makedev(device.0, device.1);
        let mode = Mode::RUSR | Mode::WUSR;
        self.make(ino, |at, name| rustix::fs::mknodat(at, name, kind, mode, number))
    }

    /// Gives a file one more name.
    pub(super) fn link(&mut self, ino: u64, of: &Self) -> io::Result<()> {
        self.make(ino, |at, place| {
            rustix::fs::linkat(&of.directory, name(&of.name), at, place, AtFlags::empty())
        })
    }

    /// Sets the owner and the times of a link or a node; the mode of a node.
    pub(super) fn set(&self, owner: Option<(u32, u32)>, mode: Option<u32>, times: [(i64, u32); 2]) {
        let (at, name) = (self.directory.as_fd(), name(&self.name));
        if let Some((uid, gid)) = owner {
            let (uid, gid) = (Uid::from_raw(uid), Gid::from_raw(gid));
            let _ = rustix::fs::chownat(at, name, Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW);
        }
        if let Some(mode) = mode {
            let _ = self.set_mode_of_node(mode & !SET_ID);
        }
        let _ = rustix::fs::utimensat(at, name, &stamps(times), AtFlags::SYMLINK_NOFOLLOW);
    }

    /// A node cannot be opened without an effect, and there is no call that sets the mode by name
    /// and follows no link.
    fn set_mode_of_node(&self, mode: u32) -> io::Result<()> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let node = rustix::fs::openat(&self.directory, name(&self.name), flags, Mode::empty())?;
        let kind = FileType::from_raw_mode(rustix::fs::fstat(&node)?.st_mode);
        if !matches!(kind, FileType::RegularFile | FileType::Directory | FileType::Symlink) {
            let path = format!("/proc/self/fd/{}", node.as_raw_fd());
            rustix::fs::chmod(path, Mode::from_raw_mode(mode))?;
        }
        Ok(())
    }
}

/// Sets owner, mode and times of an open file or directory. What the host does not store is left
/// out, as `get` does. A program that runs as its owner keeps that right only with its owner.
pub(super) fn set_open(
    file: impl AsFd,
    owner: Option<(u32, u32)>,
    mode: u32,
    times: [(i64, u32); 2],
) {
    let file = file.as_fd();
    let is_owned = owner.is_some_and(|(uid, gid)| {
        rustix::fs::fchown(file, Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid))).is_ok()
    });
    let mode = if is_owned { mode } else { mode & !SET_ID };
    let _ = rustix::fs::fchmod(file, Mode::from_raw_mode(mode));
    let _ = rustix::fs::futimens(file, &stamps(times));
}

fn stamps(times: [(i64, u32); 2]) -> Timestamps {
    let stamp = |(seconds, nanoseconds): (i64, u32)| Timespec {
        tv_sec: seconds,
        tv_nsec: nanoseconds.into(),
    };
    let [accessed, modified] = times.map(stamp);
    Timestamps { last_access: accessed, last_modification: modified }
}
