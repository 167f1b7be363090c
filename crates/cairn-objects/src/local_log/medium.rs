//! [`Medium`]: where a log lies.

use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::SystemTime;

use cairn_base::host;
use cairn_base::names::Escaped;
use cairn_block::{Error, ErrorKind, Result};

/// What is said of a file that has lost its end while it was in use.
pub(super) const CUT_SHORT: &str = "somebody has cut the file short";

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

    /// Cuts it off, or makes it longer by zeros that need no space.
    ///
    /// # Errors
    /// The system.
    fn resize(&self, size: u64) -> io::Result<()>;

    /// All that was written is durable when this returns.
    ///
    /// # Errors
    /// The system; it is no longer as it was [resized](Medium::resize).
    fn sync(&self) -> io::Result<()>;

    /// When it was last written, as far as it is known.
    fn written(&self) -> Option<SystemTime> {
        None
    }

    /// Removes what was made by the first write. True if there was such a thing.
    fn forget(&self) -> bool {
        false
    }
}

/// How a log is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Opening {
    /// Nobody else has it open.
    Writes,
    /// Nobody has it open for writing.
    Reads,
    /// As it is, whoever writes it. A writer that flushes nothing meanwhile leaves its records
    /// where they are, until the store has them: so a log that is read before the manifest and the
    /// store's logs lacks nothing.
    ReadsBeside,
}

/// A file of the host, locked unless it is [read beside](Opening::ReadsBeside) its writer. Without
/// one it is empty; the first write makes it.
pub(super) struct LogFile {
    path: PathBuf,
    file: OnceLock<File>,
    /// It was made by a write.
    is_new: AtomicBool,
    /// Bytes of the last resize: nobody else cuts it shorter.
    size: AtomicU64,
}

impl LogFile {
    /// Opens the file, if it is there.
    pub(super) fn open(path: &Path, opening: Opening) -> Result<Self> {
        let writes = opening == Opening::Writes;
        let failed = |error| Error::from_io(format!("open the log {}", path.escaped()), error);
        let path = &host::behind_links(path).map_err(failed)?;
        let log = Self {
            path: path.clone(),
            file: OnceLock::new(),
            is_new: AtomicBool::new(false),
            size: AtomicU64::new(0),
        };
        match path.symlink_metadata() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(log),
            // Whoever owns it could read what is flushed, and change it.
            Ok(_) if host::is_foreign(path).map_err(failed)? => {
                let detail = format!(
                    "the log {} belongs to another user, in a directory that all may write: name \
                     another file",
                    path.display()
                );
                return Err(Error::new(ErrorKind::PermissionDenied, "open", detail));
            }
            Ok(found) if !found.is_file() => {
                let detail = format!("the log {} is no regular file: name another", path.display());
                return Err(Error::new(ErrorKind::Unsupported, "open", detail));
            }
            _ => {}
        }
        let file = host::open_regular(path, OpenOptions::new().read(true).write(writes));
        let file = file.map_err(failed)?;
        let locked = match opening {
            Opening::Writes => file.try_lock(),
            Opening::Reads => file.try_lock_shared(),
            Opening::ReadsBeside => Ok(()),
        };
        match locked {
            Ok(()) => Ok(Self { file: file.into(), ..log }),
            Err(TryLockError::WouldBlock) => {
                let detail = format!(
                    "in use: another process has the log {} open: end that one, or name another \
                     file",
                    path.display()
                );
                Err(Error::new(ErrorKind::InUse, "open", detail))
            }
            Err(TryLockError::Error(error)) => Err(failed(error)),
        }
    }

    /// Makes the file. It has what files have, so only its owner may read it.
    fn make(&self) -> io::Result<File> {
        let mut options = OpenOptions::new();
        let file = options.read(true).write(true).create_new(true).mode(0o600).open(&self.path)?;
        file.try_lock().map_err(io::Error::from)?;
        let folder = self.path.parent().filter(|folder| !folder.as_os_str().is_empty());
        File::open(folder.unwrap_or(Path::new(".")))?.sync_all()?;
        Ok(file)
    }

    fn made(&self) -> io::Result<&File> {
        match self.file.get() {
            Some(file) => Ok(file),
            None => {
                let file = self.make()?;
                self.is_new.store(true, Ordering::Relaxed);
                Ok(self.file.get_or_init(|| file))
            }
        }
    }
}

impl Medium for LogFile {
    fn size(&self) -> io::Result<u64> {
        self.file.get().map_or(Ok(0), |file| Ok(file.metadata()?.len()))
    }

    fn read(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        let file = self.file.get().ok_or(io::ErrorKind::UnexpectedEof)?;
        file.read_exact_at(buf, offset)
    }

    fn write(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.made()?.write_all_at(bytes, offset)
    }

    fn resize(&self, size: u64) -> io::Result<()> {
        self.made()?.set_len(size)?;
        self.size.store(size, Ordering::Relaxed);
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        let file = self.made()?;
        file.sync_data()?;
        let now = file.metadata()?;
        // What is in it would be gone with this process.
        if now.nlink() == 0 {
            return Err(io::Error::new(io::ErrorKind::NotFound, "somebody has removed the file"));
        }
        if now.len() < self.size.load(Ordering::Relaxed) {
            return Err(io::Error::new(io::ErrorKind::InvalidData, CUT_SHORT));
        }
        Ok(())
    }

    fn written(&self) -> Option<SystemTime> {
        self.file.get()?.metadata().ok()?.modified().ok()
    }

    fn forget(&self) -> bool {
        if !self.is_new.swap(false, Ordering::Relaxed) {
            return false;
        }
        let which = |found: std::fs::Metadata| (found.dev(), found.ino());
        let ours = self.file.get().and_then(|file| file.metadata().ok()).map(which);
        let there = self.path.symlink_metadata().ok().map(which);
        ours.is_some() && ours == there && std::fs::remove_file(&self.path).is_ok()
    }
}
