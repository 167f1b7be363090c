//! The file that is built: it has a temporary name beside the wanted one until it is whole.

use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use tempfile::NamedTempFile;

use crate::error::{Error, Result};

/// An output that is not whole yet. It is removed if it does not become whole.
pub(crate) struct Unfinished {
    file: NamedTempFile,
    path: PathBuf,
}

/// The directory of a path.
pub(crate) fn directory(path: &Path) -> PathBuf {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    parent.unwrap_or(Path::new(".")).to_owned()
}

impl Unfinished {
    /// Creates an empty file beside `path`.
    ///
    /// # Errors
    /// `path` exists and `overwrite` is not set, is not a regular file, or its directory cannot be
    /// written.
    pub(crate) fn create(path: &Path, overwrite: bool) -> Result<Self> {
        match fs::metadata(path) {
            Ok(found) if !found.is_file() => {
                return Err(Error::Usage(format!(
                    "{}: is not a regular file: give a new file",
                    path.display()
                )));
            }
            Ok(found) if !overwrite && found.len() > 0 => {
                return Err(Error::Usage(format!(
                    "{}: exists: add --force to replace it",
                    path.display()
                )));
            }
            _ => {}
        }
        // A link keeps its place: its target is replaced.
        let path = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        let name = path.file_name().unwrap_or_default().to_os_string();
        let mut prefix = std::ffi::OsString::from(".");
        prefix.push(name);
        prefix.push(".");
        // The umask applies.
        let file = tempfile::Builder::new()
            .prefix(&prefix)
            .permissions(Permissions::from_mode(0o666))
            .tempfile_in(directory(&path))
            .map_err(|error| Error::host(&path, error))?;
        Ok(Self { file, path })
    }

    /// Device and inode of the file, and of the one that it will replace.
    pub(crate) fn own(&self) -> Vec<(u64, u64)> {
        let files = [self.file.as_file().metadata().ok(), fs::metadata(&self.path).ok()];
        files.into_iter().flatten().map(|file| (file.dev(), file.ino())).collect()
    }

    pub(crate) fn path(&self) -> &Path {
        self.file.path()
    }

    pub(crate) fn file(&self) -> &fs::File {
        self.file.as_file()
    }

    /// Removes all contents.
    pub(crate) fn empty(&self) -> Result<()> {
        self.file.as_file().set_len(0).map_err(|error| Error::host(&self.path, error))
    }

    /// Gives the file its name.
    pub(crate) fn finish(self) -> Result<()> {
        let synced: io::Result<()> = self.file.as_file().sync_all();
        synced.map_err(|error| Error::host(&self.path, error))?;
        let named = self.file.persist(&self.path);
        named.map(drop).map_err(|error| Error::host(&self.path, error.error))
    }
}
