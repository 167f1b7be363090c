//! [`Medium`]: where a log lies.

use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

use cairn_block::{Error, ErrorKind, Result};

/// What holds the bytes of a log.
pub trait Medium: Send + Sync {
    /// How many there are.
    ///
    /// # Errors
    /// The system.
    fn size(&self) -> io::Result<u64>;

    /// Reads bytes, which are all there.
    ///
    /// # Errors
    /// The system.
    fn read(&self, offset: u64, buf: &mut [u8]) -> io::Result<()>;

    /// Writes bytes. The medium grows if it must.
    ///
    /// # Errors
    /// The system; it has no more space.
    fn write(&self, offset: u64, bytes: &[u8]) -> io::Result<()>;

    /// Cuts it off.
    ///
    /// # Errors
    /// The system.
    fn truncate(&self, size: u64) -> io::Result<()>;

    /// All that was written is durable when this returns.
    ///
    /// # Errors
    /// The system.
    fn sync(&self) -> io::Result<()>;
}

/// A file of the host, locked.
pub(super) struct LogFile(File);

impl LogFile {
    /// Opens the file: for writing, and it is made if it is not there, or for reading. It has what
    /// files have, so only its owner may read it.
    pub(super) fn open(path: &Path, writes: bool) -> Result<Self> {
        let failed = |error| Error::from_io(format!("open the log {}", path.display()), error);
        let there = path.metadata().is_ok();
        if there && !path.is_file() {
            let detail = format!("the log {} is no regular file: name another", path.display());
            return Err(Error::new(ErrorKind::Unsupported, "open", detail));
        }
        let mut options = OpenOptions::new();
        options.read(true).write(writes).create(writes).mode(0o600);
        let file = options.open(path).map_err(failed)?;
        let lock = if writes { File::try_lock } else { File::try_lock_shared };
        match lock(&file) {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let detail = format!(
                    "in use: another process has the log {} open: end that one, or name another \
                     file",
                    path.display()
                );
                return Err(Error::new(ErrorKind::InUse, "open", detail));
            }
            Err(TryLockError::Error(error)) => return Err(failed(error)),
        }
        if !there {
            let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
            let folder = File::open(folder.unwrap_or(Path::new("."))).map_err(failed)?;
            folder.sync_all().map_err(failed)?;
        }
        Ok(Self(file))
    }
}

impl Medium for LogFile {
    fn size(&self) -> io::Result<u64> {
        Ok(self.0.metadata()?.len())
    }

    fn read(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.0.read_exact_at(buf, offset)
    }

    fn write(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.0.write_all_at(bytes, offset)
    }

    fn truncate(&self, size: u64) -> io::Result<()> {
        self.0.set_len(size)
    }

    fn sync(&self) -> io::Result<()> {
        self.0.sync_data()
    }
}
