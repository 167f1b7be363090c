//! [`Before`]: what was at the place of an output when it was begun. Only that is replaced.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use cairn_base::names::Escaped;
use rustix::fs::{CWD, RenameFlags, renameat_with};
use rustix::io::Errno;
use tempfile::NamedTempFile;

use crate::error::{Error, Result};

/// What an output may replace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Before {
    /// Nothing was there.
    Nothing,
    /// A file was there.
    File {
        dev: u64,
        ino: u64,
        /// It was empty, and may be replaced as long as it is.
        empty: bool,
    },
    /// What is there at the end is replaced: several processes may write the file.
    Anything,
}

impl Before {
    /// What is at a place. With `overwrite`, a file may have contents.
    pub(crate) fn at(place: &Path, overwrite: bool) -> Self {
        match fs::symlink_metadata(place) {
            Ok(found) => Self::File { dev: found.dev(), ino: found.ino(), empty: !overwrite },
            Err(_) => Self::Nothing,
        }
    }

    /// Gives a file its name.
    ///
    /// # Errors
    /// Something else is there by now, which stays; or the directory cannot be written.
    pub(crate) fn replace(self, file: NamedTempFile, path: &Path) -> Result<()> {
        match self {
            Self::Anything => persist(file, path),
            Self::Nothing => persist_new(file, path),
            Self::File { .. } if !path.exists() => persist_new(file, path),
            Self::File { .. } if !self.is_at(path) => Err(came_meanwhile(path)),
            Self::File { .. } => self.exchange(file, path),
        }
    }

    /// Another process can replace the file between a look at it and a rename. So the files change
    /// their places, and change back if what comes out is another one.
    fn exchange(self, file: NamedTempFile, path: &Path) -> Result<()> {
        let failed = |error: Errno| Error::host(path, error.into());
        let exchange = || renameat_with(CWD, file.path(), CWD, path, RenameFlags::EXCHANGE);
        match exchange() {
            // The file that was there is removed under its temporary name.
            Ok(()) if self.is_at(file.path()) => Ok(()),
            Ok(()) => {
                exchange().map_err(failed)?;
                Err(came_meanwhile(path))
            }
            Err(Errno::NOENT) => persist_new(file, path),
            // The filesystem cannot do that.
            Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => persist(file, path),
            Err(error) => Err(failed(error)),
        }
    }

    /// True if the file that was there is at this path.
    fn is_at(self, path: &Path) -> bool {
        let Self::File { dev, ino, empty } = self else { return false };
        fs::symlink_metadata(path).is_ok_and(|found| {
            (found.dev(), found.ino()) == (dev, ino) && (!empty || found.len() == 0)
        })
    }
}

fn persist(file: NamedTempFile, path: &Path) -> Result<()> {
    file.persist(path).map(drop).map_err(|error| Error::host(path, error.error))
}

fn persist_new(file: NamedTempFile, path: &Path) -> Result<()> {
    let persisted = file.persist_noclobber(path);
    persisted.map(drop).map_err(|error| match error.error.kind() {
        ErrorKind::AlreadyExists => came_meanwhile(path),
        _ => Error::host(path, error.error),
    })
}

fn came_meanwhile(path: &Path) -> Error {
    Error::Meanwhile { subject: path.escaped() }
}
