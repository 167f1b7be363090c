//! [`OpenOptions`]: how a file is opened.

use std::io::{Error, ErrorKind, Result};

use cairn_vfs::{Caller, FileKind, FileSystem, NewInode, SetAttributes, walk};

use super::file::{File, Uses};
use super::last::{Use, entry};
use super::path::AsPath;
use crate::volume::Volume;

/// Permissions of a new file, unless others are asked for.
const PERMISSIONS: u32 = 0o644;

/// How a file of a volume is opened, as `std::fs::OpenOptions`.
#[derive(Clone, Debug)]
pub struct OpenOptions {
    uses: Uses,
    truncate: bool,
    create: bool,
    create_new: bool,
    permissions: u32,
    owner: (u32, u32),
}

impl Default for OpenOptions {
    fn default() -> Self {
        Self {
            uses: Uses::default(),
            truncate: false,
            create: false,
            create_new: false,
            permissions: PERMISSIONS,
            owner: (0, 0),
        }
    }
}

impl OpenOptions {
    /// Nothing is set.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The file can be read.
    pub fn read(&mut self, read: bool) -> &mut Self {
        self.uses.reads = read;
        self
    }

    /// The file can be written.
    pub fn write(&mut self, write: bool) -> &mut Self {
        self.uses.writes = write;
        self
    }

    /// Every write goes to the end of the file.
    pub fn append(&mut self, append: bool) -> &mut Self {
        self.uses.appends = append;
        self
    }

    /// The file is empty when it is opened.
    pub fn truncate(&mut self, truncate: bool) -> &mut Self {
        self.truncate = truncate;
        self
    }

    /// The file is made if it does not exist.
    pub fn create(&mut self, create: bool) -> &mut Self {
        self.create = create;
        self
    }

    /// The file is made; if the name exists, that is an error.
    pub fn create_new(&mut self, create_new: bool) -> &mut Self {
        self.create_new = create_new;
        self
    }

    /// Permission bits of a new file (`0o644` if this is not called). There is no umask.
    pub fn mode(&mut self, permissions: u32) -> &mut Self {
        self.permissions = permissions;
        self
    }

    /// Owner and group of a new file (root if this is not called).
    pub fn owner(&mut self, uid: u32, gid: u32) -> &mut Self {
        self.owner = (uid, gid);
        self
    }

    /// Opens the file at `path` on the volume.
    ///
    /// # Errors
    /// As `std::fs::OpenOptions::open`. A directory is not opened.
    pub fn open(&self, volume: &Volume, path: impl AsPath) -> Result<File> {
        self.check()?;
        let fs = volume.here()?;
        let path = path.as_path_bytes();
        let file = match self.find(&**fs, path)? {
            Some(ino) => File::new(fs.clone(), ino, self.uses)?,
            None => self.make(volume, path)?,
        };
        if self.truncate {
            file.set_len(0)?;
        }
        Ok(file)
    }

    fn check(&self) -> Result<()> {
        let writes = self.uses.writes || self.uses.appends;
        let makes = self.create || self.create_new || self.truncate;
        let wrong = match () {
            () if !self.uses.reads && !writes => "ask for read, write or append",
            () if makes && !writes => "a file that is made or emptied must be writable",
            () if self.truncate && self.uses.appends => {
                "a file that is appended to cannot be emptied"
            }
            () => return Ok(()),
        };
        Err(Error::new(ErrorKind::InvalidInput, wrong))
    }

    /// The inode, with a reference, if the file exists.
    fn find(&self, fs: &dyn FileSystem, path: &[u8]) -> Result<Option<cairn_base::Ino>> {
        if self.create_new {
            return Ok(None);
        }
        if self.create && path.ends_with(b"/") {
            // Whatever is there: a path that ends like this is a directory's.
            entry(fs, path, Use::Unlink)?;
            return Err(cairn_vfs::Error::IsDirectory.into());
        }
        let found = match walk::resolve(fs, path, true) {
            _ if path.is_empty() => return Err(cairn_vfs::Error::NotFound.into()),
            Err(cairn_vfs::Error::NotFound) if self.create => return Ok(None),
            found => found?,
        };
        if found.kind == FileKind::Directory {
            return Err(cairn_vfs::Error::IsDirectory.into());
        }
        Ok(Some(fs.lookup(found.ino, b".")?.ino))
    }

    fn make(&self, volume: &Volume, path: &[u8]) -> Result<File> {
        let fs = volume.here()?;
        // A link that leads nowhere yet names the file that is made, but not a new one.
        entry(&**fs, path, Use::Make)?;
        let path = if self.create_new { path.to_vec() } else { walk::behind_links(&**fs, path)? };
        let entry = entry(&**fs, &path, Use::Make)?;
        if entry.has_slash {
            return Err(cairn_vfs::Error::IsDirectory.into());
        }
        let (uid, gid) = self.owner;
        let caller = Caller { uid, gid, ..Caller::ROOT };
        let (directory, name) = (entry.directory, entry.name);
        let made = fs.create(directory, name, NewInode::Regular, self.permissions, &caller)?;
        let file = File::new(fs.clone(), made.ino, self.uses)?;
        // A directory with set-group-id gives its own group.
        if made.gid != gid {
            let set = SetAttributes { gid: Some(gid), ..SetAttributes::default() };
            fs.setattr(made.ino, &set)?;
        }
        Ok(file)
    }
}

impl File {
    /// Opens a file for reading.
    ///
    /// # Errors
    /// As `std::fs::File::open`.
    pub fn open(volume: &Volume, path: impl AsPath) -> Result<Self> {
        OpenOptions::new().read(true).open(volume, path)
    }

    /// Opens a file for writing. It is made, or emptied.
    ///
    /// # Errors
    /// As `std::fs::File::create`.
    pub fn create(volume: &Volume, path: impl AsPath) -> Result<Self> {
        OpenOptions::new().write(true).create(true).truncate(true).open(volume, path)
    }
}
