//! Where mounts go in the new root directory.
//!
//! The image may be hostile: a symbolic link of it may lead to descriptors of this process
//! (`/proc/self/fd`), behind which files of the host lie. So the kernel follows no link here. Each
//! name is opened below its directory, and what a link says is read as text, with the root
//! directory of the image as `/`.

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Component, Path, PathBuf};

use cairn_build::{LEFTOVERS, Made, Touched};
use cairn_vfs::Timestamp;
use rustix::fs::{
    AtFlags, CWD, FileType, Mode, OFlags, XattrFlags, fstat, mkdirat, openat, readlinkat, setxattr,
    statat, symlinkat, unlinkat,
};
use rustix::io::Errno;
use rustix::mount::{MoveMountFlags, UnmountFlags, move_mount, unmount};

use super::mounts::Unplaced;

/// Most symbolic links on the way to a place.
const MOST_LINKS: usize = 40;

/// What a mount needs at its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Point {
    /// A directory.
    Directory,
    /// A file of another kind.
    File,
}

/// What was placed in the root directory.
#[derive(Default)]
pub(super) struct Placed {
    /// The mounts, in order. No symbolic link is on the way to them.
    points: Vec<PathBuf>,
    /// The devices of filesystems that end with the namespace, and what is made there, too.
    fresh: Vec<u64>,
    /// Files and directories that were made for them elsewhere.
    made: Vec<Entry>,
    list: Made,
    /// The image has the whole list, by which the server removes what was made.
    is_listed: bool,
}

struct Entry {
    above: OwnedFd,
    name: OsString,
    point: Point,
    is_of_image: bool,
}

impl Placed {
    /// Places a mount. What is missing for it is made. Returns its place, without symbolic links.
    ///
    /// # Errors
    /// It cannot be made, something else is there, or the kernel refuses the mount.
    pub(super) fn place(
        &mut self,
        mount: &Unplaced,
        at: &Path,
        point: Point,
    ) -> io::Result<PathBuf> {
        let mut way = Way::find(at)?;
        let missing = std::mem::take(&mut way.missing);
        let count = missing.len();
        for (name, left) in missing.into_iter().zip((0..count).rev()) {
            self.make(&mut way, name, if left == 0 { point } else { Point::Directory })?;
        }
        let (target, path) = (way.end()?, way.path());
        match (FileType::from_raw_mode(fstat(target)?.st_mode).is_dir(), point) {
            (true, Point::File) => return Err(Errno::ISDIR.into()),
            (false, Point::Directory) => return Err(Errno::NOTDIR.into()),
            (true, Point::Directory) | (false, Point::File) => {}
        }
        let flags =
            MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
        move_mount(mount.as_fd(), "", target, "", flags)?;
        self.points.push(path.clone());
        if mount.is_fresh() {
            self.fresh.push(fstat(mount.as_fd())?.st_dev);
        }
        Ok(path)
    }

    /// Makes an entry at the end of the way, and goes there.
    fn make(&mut self, way: &mut Way, name: OsString, point: Point) -> io::Result<()> {
        let above = way.end()?.try_clone_to_owned()?;
        // The image's server knows of no other mount, such as a directory of the host.
        let device = fstat(&above)?.st_dev;
        let is_of_image = device == statat(CWD, "/", AtFlags::empty())?.st_dev;
        if is_of_image {
            self.note(way, &above, &name)?;
        }
        match point {
            Point::Directory => mkdirat(&above, &name, Mode::from(0o755))?,
            Point::File => {
                let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC;
                drop(openat(&above, &name, flags, Mode::from(0o644))?);
            }
        }
        if !self.fresh.contains(&device) {
            self.made.push(Entry { above, name: name.clone(), point, is_of_image });
        }
        way.enter(name).map(drop)
    }

    /// Lists what will be made.
    fn note(&mut self, way: &Way, above: &OwnedFd, name: &OsStr) -> io::Result<()> {
        self.list.touch(touched(Path::new("/"), CWD, "/")?);
        self.list.touch(touched(&way.path(), above, ".")?);
        self.list.add(way.path().join(name).as_os_str().as_bytes());
        self.store();
        Ok(())
    }

    /// Stores the list. An image without attributes has none.
    fn store(&mut self) {
        let stored = setxattr("/", LEFTOVERS, &self.list.encode(), XattrFlags::empty());
        self.is_listed = stored.is_ok();
    }

    /// Everything is made: what changes from now on is of the command.
    pub(super) fn settle(&mut self) {
        if !self.made.iter().any(|entry| entry.is_of_image) {
            return;
        }
        for directory in self.list.touched_mut() {
            // Times of one that a mount covers stay changed.
            let path = OsStr::from_bytes(&directory.path);
            directory.after = touched(Path::new(path), CWD, path).ok().map(|now| now.before[0]);
        }
        self.store();
    }

    /// True if [`Placed::remove`] takes mounts away: something lies below them that the server does
    /// not remove.
    pub(super) fn must_unmount(&self) -> bool {
        self.made.iter().any(|entry| self.is_ours(entry))
    }

    fn is_ours(&self, entry: &Entry) -> bool {
        !(self.is_listed && entry.is_of_image)
    }

    /// Removes what was made for the mounts, but for what the server removes, by the list. The
    /// mounts end with the namespace.
    pub(super) fn remove(self) {
        if !self.must_unmount() {
            return;
        }
        for point in self.points.iter().rev() {
            let _ = unmount(point, UnmountFlags::DETACH | UnmountFlags::NOFOLLOW);
        }
        for Entry { above, name, point, .. } in
            self.made.iter().rev().filter(|entry| self.is_ours(entry))
        {
            let _ = match point {
                Point::Directory => unlinkat(above, name, AtFlags::REMOVEDIR),
                // The command may have put something in, or something else there.
                Point::File => match statat(above, name, AtFlags::SYMLINK_NOFOLLOW) {
                    Ok(found)
                        if found.st_size == 0
                            && FileType::from_raw_mode(found.st_mode).is_file() =>
                    {
                        unlinkat(above, name, AtFlags::empty())
                    }
                    _ => Ok(()),
                },
            };
        }
    }
}

/// A directory of the image as it is now.
fn touched(path: &Path, at: impl AsFd, name: impl rustix::path::Arg) -> io::Result<Touched> {
    let found = statat(at, name, AtFlags::SYMLINK_NOFOLLOW)?;
    let time = |seconds, nanoseconds: u64| Timestamp {
        seconds,
        // Less than a second.
        nanoseconds: nanoseconds as u32,
    };
    let mtime = time(found.st_mtime, found.st_mtime_nsec);
    let ctime = time(found.st_ctime, found.st_ctime_nsec);
    Ok(Touched {
        path: path.as_os_str().as_bytes().to_vec(),
        before: [mtime, ctime],
        after: None,
        permissions: found.st_mode & 0o7777,
    })
}

/// Makes a symbolic link. Its directory is there.
///
/// # Errors
/// Something has the name, or the directory is missing.
pub(super) fn make_link(target: &str, at: &Path) -> io::Result<()> {
    let (Some(above), Some(name)) = (at.parent(), at.file_name()) else {
        return Err(Errno::INVAL.into());
    };
    let way = Way::find(above)?;
    match way.missing.is_empty() {
        true => Ok(symlinkat(target, way.end()?, name)?),
        false => Err(Errno::NOENT.into()),
    }
}

/// A way from the root directory to a file.
struct Way {
    /// The root directory, and what each name leads to.
    files: Vec<OwnedFd>,
    names: Vec<OsString>,
    /// Names behind these that lead nowhere. They hold no symbolic links.
    missing: Vec<OsString>,
}

impl Way {
    /// Follows the symbolic links of the image.
    ///
    /// # Errors
    /// They lead to each other; a name cannot be read, or has entries although it is no directory.
    fn find(path: &Path) -> io::Result<Self> {
        let root = openat(CWD, "/", OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
        let mut way = Self { files: vec![root], names: Vec::new(), missing: Vec::new() };
        let mut rest: VecDeque<OsString> = parts(path).collect();
        let mut links = 0;
        while let Some(name) = rest.pop_front() {
            if name == ".." {
                way.leave()?;
            } else if !way.missing.is_empty() {
                way.missing.push(name);
            } else {
                match way.enter(name.clone()) {
                    Ok(None) => {}
                    Ok(Some(target)) => {
                        links += 1;
                        if links > MOST_LINKS {
                            return Err(Errno::LOOP.into());
                        }
                        if target.has_root() {
                            way.files.truncate(1);
                            way.names.clear();
                        }
                        for part in parts(&target).collect::<Vec<_>>().into_iter().rev() {
                            rest.push_front(part);
                        }
                    }
                    Err(error) if error.kind() == io::ErrorKind::NotFound => way.missing.push(name),
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(way)
    }

    fn end(&self) -> io::Result<BorrowedFd<'_>> {
        // The root directory is always there.
        Ok(self.files.last().ok_or(Errno::NOENT)?.as_fd())
    }

    fn path(&self) -> PathBuf {
        std::iter::once(OsStr::new("/")).chain(self.names.iter().map(OsString::as_os_str)).collect()
    }

    /// Goes to an entry. If it is a symbolic link, stays, and returns its text.
    fn enter(&mut self, name: OsString) -> io::Result<Option<PathBuf>> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = openat(self.end()?, &name, flags, Mode::empty())?;
        if FileType::from_raw_mode(fstat(&file)?.st_mode).is_symlink() {
            let target = readlinkat(&file, "", Vec::new())?;
            return Ok(Some(OsString::from_vec(target.into_bytes()).into()));
        }
        self.files.push(file);
        self.names.push(name);
        Ok(None)
    }

    fn leave(&mut self) -> io::Result<()> {
        if !self.missing.is_empty() {
            return Err(Errno::NOENT.into());
        }
        if self.names.pop().is_some() {
            self.files.pop();
        }
        Ok(())
    }
}

/// The names of a path, without `.`.
fn parts(path: &Path) -> impl Iterator<Item = OsString> {
    path.components().filter_map(|part| match part {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some("..".into()),
        _ => None,
    })
}
