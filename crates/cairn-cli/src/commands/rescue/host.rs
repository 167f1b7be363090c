//! The directory of the host that rescued files go to.
//!
//! Invariant: nothing is made outside the directory, and nothing in it is replaced. Every name is
//! opened below its directory without following links, and files are made with "create new" calls.
//! Owner and mode are set through what was opened, because another user may exchange a name
//! meanwhile.

use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::rc::Rc;

use cairn_check::salvage::Found;
use rustix::fs::{AtFlags, FileType, Gid, Mode, OFlags, Timespec, Timestamps, Uid};
use rustix::io::Errno;

use super::attributes::{self, Refused};
use crate::failure::plain;

/// Names that are tried for a file whose name is taken.
const TRIES: u32 = 1000;
/// The bits of a mode with which a program runs as its owner or group.
const SET_ID: u32 = 0o6000;

/// The directory.
pub(super) struct Host {
    root: Rc<OwnedFd>,
    /// Where the last file was made, and the last file that got another name.
    here: Cursor,
    there: Cursor,
    /// The names of directories whose own were taken, by their paths in the image.
    renamed: HashMap<Vec<u8>, Vec<u8>>,
    /// Directories that were made for what is in them, and are still to be found.
    implied: HashSet<Vec<u8>>,
}

/// A place for a new file: its directory, and its name there.
pub(super) struct Place {
    pub(super) directory: Rc<OwnedFd>,
    pub(super) name: Vec<u8>,
}

/// The directories on the way to a place. The last ones are kept open, so that a file costs the
/// same however deep it is.
#[derive(Default)]
struct Cursor {
    levels: Vec<Level>,
    #[cfg(test)]
    opened: u64,
}

struct Level {
    /// Its name in the image.
    name: Vec<u8>,
    open: Option<Rc<OwnedFd>>,
}

/// Most directories that a cursor keeps open.
const MOST_OPEN: usize = 64;

const DIRECTORY: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

impl Host {
    /// Opens the directory, or makes it.
    ///
    /// # Errors
    /// The host refuses, or a link at the end of the path is not followed
    /// ([`cairn::host::behind_links`]).
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        let path = cairn::host::behind_links(path)?;
        match std::fs::create_dir(&path) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(Self {
            root: Rc::new(rustix::fs::open(path, flags, Mode::empty())?),
            here: Cursor::default(),
            there: Cursor::default(),
            renamed: HashMap::new(),
            implied: HashSet::new(),
        })
    }

    /// The directory of a path, which is made with those above it, and the path's last name.
    pub(super) fn place(&mut self, path: &[u8]) -> io::Result<Place> {
        let mut here = std::mem::take(&mut self.here);
        let place = self.place_by(&mut here, path);
        self.here = here;
        place
    }

    /// The place of a file that was made, which gets another name.
    pub(super) fn first_place(&mut self, path: &[u8]) -> io::Result<Place> {
        let mut there = std::mem::take(&mut self.there);
        let place = self.place_by(&mut there, path);
        self.there = there;
        place
    }

    fn place_by(&mut self, cursor: &mut Cursor, path: &[u8]) -> io::Result<Place> {
        let mut names: Vec<&[u8]> = path.split(|byte| *byte == b'/').collect();
        let last = names.pop().unwrap_or_default();
        check(last)?;
        let directory = cursor.go(self, &names)?;
        Ok(Place { directory, name: last.to_vec() })
    }

    /// Makes a directory unless it exists. True if this rescue has made it.
    pub(super) fn make_directory(&mut self, path: &[u8], ino: u64) -> io::Result<bool> {
        let place = self.place(path)?;
        if self.implied.remove(path) {
            return Ok(true);
        }
        let (_, is_new) = self.enter(place, path, ino)?;
        Ok(is_new)
    }

    /// Opens a directory that was made.
    pub(super) fn directory(&mut self, path: &[u8]) -> io::Result<OwnedFd> {
        let place = self.place(path)?;
        let known = self.renamed.get(path).unwrap_or(&place.name);
        Ok(rustix::fs::openat(&place.directory, name(known), DIRECTORY, Mode::empty())?)
    }

    /// Opens a directory, and makes it if it does not exist: under another name if something else
    /// has its own. True if it is new.
    fn enter(&mut self, mut place: Place, path: &[u8], ino: u64) -> io::Result<(OwnedFd, bool)> {
        if let Some(known) = self.renamed.get(path) {
            place.name.clone_from(known);
        }
        match rustix::fs::openat(&place.directory, name(&place.name), DIRECTORY, Mode::empty()) {
            Ok(directory) => return Ok((directory, false)),
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => {}
            Err(error) => return Err(error.into()),
        }
        let wanted = place.name.clone();
        place.make(ino, |at, name| rustix::fs::mkdirat(at, name, Mode::RWXU))?;
        let directory =
            rustix::fs::openat(&place.directory, name(&place.name), DIRECTORY, Mode::empty())?;
        attributes::forget_lists(&directory);
        if place.name != wanted {
            self.renamed.insert(path.to_vec(), place.name);
        }
        Ok((directory, true))
    }
}

impl Cursor {
    /// Goes to the directory that these names lead to.
    fn go(&mut self, host: &mut Host, names: &[&[u8]]) -> io::Result<Rc<OwnedFd>> {
        let pairs = self.levels.iter().zip(names);
        let same = pairs.take_while(|(level, name)| level.name == **name).count();
        self.levels.truncate(same);
        let mut directory = host.root.clone();
        match self.levels.last().map(|level| level.open.clone()) {
            Some(Some(open)) => directory = open,
            Some(None) => self.levels.clear(),
            None => {}
        }
        for depth in self.levels.len()..names.len() {
            check(names[depth])?;
            let path = names[..=depth].join(&b'/');
            let place = Place { directory, name: names[depth].to_vec() };
            let (opened, is_new) = host.enter(place, &path, 0)?;
            if is_new {
                host.implied.insert(path);
            }
            directory = Rc::new(opened);
            self.levels.push(Level { name: names[depth].to_vec(), open: Some(directory.clone()) });
            if let Some(far) = self.levels.len().checked_sub(MOST_OPEN + 1) {
                self.levels[far].open = None;
            }
            #[cfg(test)]
            {
                self.opened += 1;
            }
        }
        Ok(directory)
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
        let file = self.make(ino, |at, name| rustix::fs::openat(at, name, flags, mode))?;
        attributes::forget_lists(&file);
        Ok(File::from(file))
    }

    /// Removes a file that the host does not store whole: its name must not say that it is there.
    /// Returns the error, which says so if the file cannot be removed.
    pub(super) fn withdraw(&self, file: &File, error: io::Error) -> io::Error {
        let (at, name) = (&self.directory, name(&self.name));
        let of_name = rustix::fs::statat(at, name, AtFlags::SYMLINK_NOFOLLOW);
        let is_it = of_name.and_then(|of_name| {
            let made = rustix::fs::fstat(file)?;
            Ok((of_name.st_dev, of_name.st_ino) == (made.st_dev, made.st_ino))
        });
        match is_it.and_then(|is_it| match is_it {
            true => rustix::fs::unlinkat(at, name, AtFlags::empty()),
            // Somebody has put another file there.
            false => Ok(()),
        }) {
            Ok(()) => error,
            Err(_) => {
                let what = format!("{}, and a part of it remains", plain(&error));
                io::Error::new(error.kind(), what)
            }
        }
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

    /// Sets the owner, the attributes and the times of a link or a node; the mode of a node.
    /// Returns the attributes that the host refuses.
    pub(super) fn set(
        &self,
        owner: Option<(u32, u32)>,
        mode: Option<u32>,
        found: &Found,
    ) -> Vec<Refused> {
        let times = [found.atime, found.mtime];
        let (at, name) = (self.directory.as_fd(), name(&self.name));
        if let Some((uid, gid)) = owner {
            let (uid, gid) = (Uid::from_raw(uid), Gid::from_raw(gid));
            let _ = rustix::fs::chownat(at, name, Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW);
        }
        let refused = attributes::set_by_name(at, name, &found.xattrs);
        if let Some(mode) = mode {
            let _ = self.set_mode_of_node(mode & !SET_ID);
        }
        let _ = rustix::fs::utimensat(at, name, &stamps(times), AtFlags::SYMLINK_NOFOLLOW);
        refused
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

/// Sets owner, attributes, mode and times of an open file or directory, and returns the attributes
/// that the host refuses. Other things that it does not store are left out, as `get` does. A
/// program that runs as its owner keeps that right only with its owner.
pub(super) fn set_open(file: impl AsFd, owner: Option<(u32, u32)>, found: &Found) -> Vec<Refused> {
    let file = file.as_fd();
    let is_owned = owner.is_some_and(|(uid, gid)| {
        rustix::fs::fchown(file, Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid))).is_ok()
    });
    let refused = attributes::set_open(file, &found.xattrs);
    let mode = found.mode & 0o7777;
    let mode = if is_owned { mode } else { mode & !SET_ID };
    let _ = rustix::fs::fchmod(file, Mode::from_raw_mode(mode));
    let _ = rustix::fs::futimens(file, &stamps([found.atime, found.mtime]));
    refused
}

fn stamps(times: [(i64, u32); 2]) -> Timestamps {
    let stamp = |(seconds, nanoseconds): (i64, u32)| Timespec {
        tv_sec: seconds,
        tv_nsec: nanoseconds.into(),
    };
    let [accessed, modified] = times.map(stamp);
    Timestamps { last_access: accessed, last_modification: modified }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(depth: usize) -> Vec<u8> {
        vec![&b"d"[..]; depth].join(&b'/')
    }

    /// The directories above a file are not opened again for the next one.
    #[test]
    fn a_file_costs_the_same_at_any_depth() {
        let dir = tempfile::tempdir().unwrap();
        let mut host = Host::open(dir.path()).unwrap();
        let depth = 3 * MOST_OPEN;
        for number in 0..50 {
            let file = [&path(depth)[..], format!("/{number}").as_bytes()].concat();
            host.place(&file).unwrap().file(number).unwrap();
        }
        assert_eq!(host.here.opened, depth as u64);
        let is_open = |level: &&Level| level.open.is_some();
        assert_eq!(host.here.levels.iter().filter(is_open).count(), MOST_OPEN);
        // On the way up, each opened directory serves for the next ones.
        for depth in (1..depth).rev() {
            host.place(&[&path(depth)[..], b"/file"].concat()).unwrap().file(1).unwrap();
        }
        assert!(host.here.opened < 3 * depth as u64, "{}", host.here.opened);
        assert!(dir.path().join("d/d/d/file").is_file());
    }

    #[test]
    fn a_directory_whose_name_is_taken_gets_another() {
        let dir = tempfile::tempdir().unwrap();
        let elsewhere = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink(elsewhere.path(), dir.path().join("many")).unwrap();
        std::fs::write(dir.path().join("file"), "kept").unwrap();
        std::fs::create_dir(dir.path().join("there")).unwrap();
        let mut host = Host::open(dir.path()).unwrap();
        for (name, is_new) in [(&b"many"[..], true), (b"file", true), (b"there", false)] {
            assert_eq!(host.make_directory(name, 7).unwrap(), is_new);
            host.place(&[name, b"/in"].concat()).unwrap().file(8).unwrap();
            host.directory(name).unwrap();
        }
        for name in ["many~7/in", "file~7/in", "there/in"] {
            assert!(dir.path().join(name).is_file(), "{name}");
        }
        assert_eq!(std::fs::read_dir(elsewhere.path()).unwrap().count(), 0);
        // One that was made for what is in it is this rescue's.
        host.place(b"a/b/file").unwrap();
        assert!(host.make_directory(b"a/b", 9).unwrap());
        assert!(!host.make_directory(b"a/b", 9).unwrap());
    }
}
