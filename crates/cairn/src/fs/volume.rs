//! The calls of [`Volume`] that take a path.

use std::ffi::OsStr;
use std::io::{Error, ErrorKind, Read, Result, Write};
use std::ops::ControlFlow;
use std::sync::Arc;

use cairn_block::BlockDevice;
use cairn_vfs::walk::{self, Next};
use cairn_vfs::{Caller, FileKind, NewInode, RenameMode, SetAttributes, SetTime, Timestamp};

use super::copy::{self, Copied, CopyProgress};
use super::directory::ReadDir;
use super::file::File;
use super::last::{Use, entry, resolve};
use super::metadata::Metadata;
use super::path::{AsPath, join};
use crate::error::Cause;
use crate::image::ImageSpec;
use crate::volume::{OpenOptions, Volume, open_on, runtime};

/// Permissions of a new directory.
const DIRECTORY: u32 = 0o755;

fn times(accessed: Timestamp, modified: Timestamp) -> SetAttributes {
    SetAttributes {
        atime: Some(SetTime::To(accessed)),
        mtime: Some(SetTime::To(modified)),
        ..SetAttributes::default()
    }
}

impl Volume {
    /// Opens a volume for reading: `IMAGE`, `IMAGE#2` or `IMAGE?offset=N`. Nothing is written.
    ///
    /// # Errors
    /// As [`open`](crate::open()).
    pub fn open(image: impl AsRef<OsStr>) -> crate::error::Result<Self> {
        crate::open(&ImageSpec::parse(image.as_ref())?, &OpenOptions::read_only())
    }

    /// Opens a volume for reading and writing.
    ///
    /// # Errors
    /// As [`open`](crate::open()); the volume can only be read.
    pub fn open_writable(image: impl AsRef<OsStr>) -> crate::error::Result<Self> {
        let options = OpenOptions { must_write: true, ..OpenOptions::default() };
        crate::open(&ImageSpec::parse(image.as_ref())?, &options)
    }

    /// Opens the volume on a device of the caller's: a [`BlockDevice`], or a
    /// [`StorageDevice`](crate::StorageDevice) over what the caller has.
    ///
    /// # Errors
    /// As [`open`](crate::open()).
    pub fn on(
        device: Arc<dyn BlockDevice>,
        options: &OpenOptions,
    ) -> crate::error::Result<Self, Cause> {
        open_on(device, runtime(options.fixed_time), options)
    }

    /// Reads a whole file.
    ///
    /// # Errors
    /// As `std::fs::read`.
    pub fn read(&self, path: impl AsPath) -> Result<Vec<u8>> {
        let mut contents = Vec::new();
        File::open(self, path)?.read_to_end(&mut contents)?;
        Ok(contents)
    }

    /// Reads a whole file that is text.
    ///
    /// # Errors
    /// As `std::fs::read_to_string`.
    pub fn read_to_string(&self, path: impl AsPath) -> Result<String> {
        let mut contents = String::new();
        File::open(self, path)?.read_to_string(&mut contents)?;
        Ok(contents)
    }

    /// Writes a whole file, which is made or replaced.
    ///
    /// # Errors
    /// As `std::fs::write`.
    pub fn write(&self, path: impl AsPath, contents: impl AsRef<[u8]>) -> Result<()> {
        File::create(self, path)?.write_all(contents.as_ref())
    }

    /// The entries of a directory.
    ///
    /// # Errors
    /// As `std::fs::read_dir`.
    pub fn read_dir(&self, path: impl AsPath) -> Result<ReadDir> {
        let found = resolve(&**self.here()?, path.as_path_bytes(), true)?;
        found.kind.check_directory()?;
        Ok(ReadDir::new(self.here()?.clone(), found.ino))
    }

    /// What the volume knows about a file.
    ///
    /// # Errors
    /// As `std::fs::metadata`.
    pub fn metadata(&self, path: impl AsPath) -> Result<Metadata> {
        let found = resolve(&**self.here()?, path.as_path_bytes(), true)?;
        Ok(Metadata::new(found))
    }

    /// As [`Volume::metadata`]; a symbolic link at the end of the path is not followed.
    ///
    /// # Errors
    /// As `std::fs::symlink_metadata`.
    pub fn symlink_metadata(&self, path: impl AsPath) -> Result<Metadata> {
        let found = resolve(&**self.here()?, path.as_path_bytes(), false)?;
        Ok(Metadata::new(found))
    }

    /// Whether the path leads to a file.
    ///
    /// # Errors
    /// It cannot be told.
    pub fn exists(&self, path: impl AsPath) -> Result<bool> {
        match self.metadata(path) {
            Ok(_) => Ok(true),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Makes a directory.
    ///
    /// # Errors
    /// As `std::fs::create_dir`.
    pub fn create_dir(&self, path: impl AsPath) -> Result<()> {
        self.create(path.as_path_bytes(), NewInode::Directory, DIRECTORY)
    }

    /// Makes a directory, and those above it that do not exist.
    ///
    /// # Errors
    /// As `std::fs::create_dir_all`.
    pub fn create_dir_all(&self, path: impl AsPath) -> Result<()> {
        let path = path.as_path_bytes();
        let ends = path.iter().enumerate().filter(|(_, byte)| **byte == b'/').map(|(at, _)| at);
        // The root is there.
        for end in ends.filter(|end| *end > 0).chain([path.len()]) {
            let above = path.get(..end).unwrap_or_default();
            match self.metadata(above) {
                Ok(found) if found.is_dir() => {}
                Ok(_) => return Err(cairn_vfs::Error::NotDirectory.into()),
                Err(error) if error.kind() == ErrorKind::NotFound => self.create_dir(above)?,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Makes a symbolic link at `link` to `target`, which need not exist.
    ///
    /// # Errors
    /// As `std::os::unix::fs::symlink`.
    pub fn symlink(&self, target: impl AsPath, link: impl AsPath) -> Result<()> {
        let target = NewInode::Symlink(target.as_path_bytes());
        self.create(link.as_path_bytes(), target, 0o777)
    }

    /// The target of a symbolic link.
    ///
    /// # Errors
    /// As `std::fs::read_link`.
    pub fn read_link(&self, path: impl AsPath) -> Result<Vec<u8>> {
        let fs = self.here()?;
        let found = resolve(&**fs, path.as_path_bytes(), false)?;
        if found.kind != FileKind::Symlink {
            return Err(Error::new(ErrorKind::InvalidInput, "not a symbolic link"));
        }
        Ok(fs.readlink(found.ino)?)
    }

    /// Makes a FIFO, a socket or a device.
    ///
    /// # Errors
    /// The name exists, or its directory does not.
    pub fn create_node(&self, path: impl AsPath, node: NewInode<'_>, mode: u32) -> Result<()> {
        self.create(path.as_path_bytes(), node, mode)
    }

    fn create(&self, path: &[u8], new: NewInode<'_>, permissions: u32) -> Result<()> {
        let fs = self.here()?;
        let entry = entry(&**fs, path, Use::Make)?;
        if !matches!(new, NewInode::Directory) {
            entry.check_new_file(&**fs)?;
        }
        let made = fs.create(entry.directory, entry.name, new, permissions, &Caller::ROOT)?;
        fs.forget(made.ino, 1);
        Ok(())
    }

    /// Gives a file a second name.
    ///
    /// # Errors
    /// As `std::fs::hard_link`.
    pub fn hard_link(&self, original: impl AsPath, link: impl AsPath) -> Result<()> {
        let fs = self.here()?;
        let original = resolve(&**fs, original.as_path_bytes(), false)?;
        let entry = entry(&**fs, link.as_path_bytes(), Use::Make)?;
        entry.check_new_file(&**fs)?;
        let made = fs.link(original.ino, entry.directory, entry.name)?;
        fs.forget(made.ino, 1);
        Ok(())
    }

    /// Renames a file or directory. One of the new name is replaced, as by rename(2).
    ///
    /// # Errors
    /// As `std::fs::rename`.
    pub fn rename(&self, from: impl AsPath, to: impl AsPath) -> Result<()> {
        let fs = self.here()?;
        let old = entry(&**fs, from.as_path_bytes(), Use::Rename)?;
        let new = entry(&**fs, to.as_path_bytes(), Use::Rename)?;
        let found = walk::lookup(&**fs, old.directory, old.name)?;
        if found.kind != FileKind::Directory && (old.has_slash || new.has_slash) {
            return Err(cairn_vfs::Error::NotDirectory.into());
        }
        Ok(fs.rename(old.directory, old.name, new.directory, new.name, RenameMode::Replace)?)
    }

    /// Removes a name that is not a directory's.
    ///
    /// # Errors
    /// As `std::fs::remove_file`.
    pub fn remove_file(&self, path: impl AsPath) -> Result<()> {
        let fs = self.here()?;
        let entry = entry(&**fs, path.as_path_bytes(), Use::Unlink)?;
        entry.check_file(&**fs)?;
        Ok(fs.unlink(entry.directory, entry.name)?)
    }

    /// Removes an empty directory.
    ///
    /// # Errors
    /// As `std::fs::remove_dir`.
    pub fn remove_dir(&self, path: impl AsPath) -> Result<()> {
        let fs = self.here()?;
        let entry = entry(&**fs, path.as_path_bytes(), Use::RemoveDirectory)?;
        Ok(fs.rmdir(entry.directory, entry.name)?)
    }

    /// Removes a directory with everything below it, or a file. Symbolic links are not followed.
    ///
    /// # Errors
    /// As `std::fs::remove_dir_all`.
    pub fn remove_dir_all(&self, path: impl AsPath) -> Result<()> {
        let fs = self.here()?;
        let path = path.as_path_bytes();
        let start = resolve(&**fs, path, false)?;
        if start.kind != FileKind::Directory {
            return self.remove_file(path);
        }
        // The root has no name that could be removed: nothing below it is, either.
        entry(&**fs, path, Use::RemoveDirectory)?;
        // Directories, each after the one that it is in.
        let mut directories = vec![Vec::new()];
        walk::walk(&**fs, start.ino, &mut |visit| {
            if visit.depth > 0 && visit.attributes.kind == FileKind::Directory {
                directories.push(visit.path.to_vec());
            }
            Ok(Next::Continue)
        })?;
        for below in directories.iter().rev() {
            let directory = resolve(&**fs, &join(path, below), false)?;
            for entry in walk::list(&**fs, directory.ino)? {
                fs.unlink(directory.ino, &entry.name)?;
            }
            self.remove_dir(join(path, below))?;
        }
        Ok(())
    }

    /// Sets the permission bits (`0o7777`).
    ///
    /// # Errors
    /// As `std::fs::set_permissions`.
    pub fn set_permissions(&self, path: impl AsPath, permissions: u32) -> Result<()> {
        let set = SetAttributes { permissions: Some(permissions), ..SetAttributes::default() };
        self.set(path.as_path_bytes(), true, &set)
    }

    /// Sets owner and group; a symbolic link's own. `u32::MAX` keeps one, as lchown(2).
    ///
    /// # Errors
    /// As `std::os::unix::fs::lchown`.
    pub fn set_owner(&self, path: impl AsPath, uid: u32, gid: u32) -> Result<()> {
        let set = SetAttributes {
            uid: (uid != u32::MAX).then_some(uid),
            gid: (gid != u32::MAX).then_some(gid),
            ..SetAttributes::default()
        };
        self.set(path.as_path_bytes(), false, &set)
    }

    /// Sets the times of the last access and the last change of the contents.
    ///
    /// # Errors
    /// The path leads to no file.
    pub fn set_times(
        &self,
        path: impl AsPath,
        accessed: impl Into<Timestamp>,
        modified: impl Into<Timestamp>,
    ) -> Result<()> {
        self.set(path.as_path_bytes(), true, &times(accessed.into(), modified.into()))
    }

    /// As [`Volume::set_times`]; of a symbolic link its own.
    ///
    /// # Errors
    /// As [`Volume::set_times`].
    pub fn set_times_nofollow(
        &self,
        path: impl AsPath,
        accessed: impl Into<Timestamp>,
        modified: impl Into<Timestamp>,
    ) -> Result<()> {
        self.set(path.as_path_bytes(), false, &times(accessed.into(), modified.into()))
    }

    fn set(&self, path: &[u8], follow: bool, set: &SetAttributes) -> Result<()> {
        let found = resolve(&**self.here()?, path, follow)?;
        self.here()?.setattr(found.ino, set)?;
        Ok(())
    }

    /// Visits a file and everything below it, a directory before its entries. The visitor gets the
    /// path below `path`, and ends the walk with [`ControlFlow::Break`]. Symbolic links are not
    /// followed.
    ///
    /// # Errors
    /// A directory cannot be read.
    pub fn walk(
        &self,
        path: impl AsPath,
        visit: &mut dyn FnMut(&[u8], &Metadata) -> ControlFlow<()>,
    ) -> Result<()> {
        let fs = self.here()?;
        let start = resolve(&**fs, path.as_path_bytes(), false)?;
        walk::walk(&**fs, start.ino, &mut |met| {
            let found = Metadata::new(met.attributes.clone());
            Ok(match visit(met.path, &found) {
                ControlFlow::Continue(()) => Next::Continue,
                ControlFlow::Break(()) => Next::Stop,
            })
        })?;
        Ok(())
    }

    /// Copies a file, or a directory with everything below it, to a new name on this or another
    /// volume: contents, holes, owners, modes, times, attributes, and hard links among the copies.
    /// `progress` is called after each piece; [`ControlFlow::Break`] ends the copy with
    /// [`ErrorKind::Interrupted`].
    ///
    /// # Errors
    /// The new name exists; something cannot be read or written. What was copied by then stays.
    pub fn copy_tree(
        &self,
        from: impl AsPath,
        to_volume: &Self,
        to: impl AsPath,
        progress: &mut dyn FnMut(&CopyProgress<'_>) -> ControlFlow<()>,
    ) -> Result<Copied> {
        let (from, to) = (from.as_path_bytes(), to.as_path_bytes());
        copy::tree(&**self.here()?, from, &**to_volume.here()?, to, progress)
    }

    /// Makes everything durable that was written so far.
    ///
    /// # Errors
    /// Something could not be written.
    pub fn sync(&self) -> Result<()> {
        Ok(self.here()?.sync()?)
    }
}
