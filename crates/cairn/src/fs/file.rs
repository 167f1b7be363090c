//! [`File`]: an open file of a volume.

use std::io::{Error, ErrorKind, Read, Result, Seek, SeekFrom, Write};
use std::sync::Arc;

use cairn_base::Ino;
use cairn_base::ranked_lock::{Mutex, Rank};
use cairn_vfs::{AllocateMode, FileSystem, IoFlags, OpenMode, SetAttributes};

use super::metadata::Metadata;
use crate::process::Opener;

/// What a file is opened for.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Uses {
    pub(super) reads: bool,
    pub(super) writes: bool,
    pub(super) appends: bool,
}

/// An open file. It has a position for [`Read`], [`Write`] and [`Seek`]; `read_at` and `write_at`
/// use none, and may be called by many threads at once.
///
/// The file stays there while it is open, even if its name is removed. Dropping it does not make it
/// durable: [`File::sync_all`] does.
pub struct File {
    fs: Arc<dyn FileSystem>,
    ino: Ino,
    handle: u64,
    can_read: bool,
    can_write: bool,
    appends: bool,
    position: Mutex<u64>,
    opener: Opener,
}

impl File {
    /// Takes over a reference to the inode.
    pub(super) fn new(fs: Arc<dyn FileSystem>, ino: Ino, uses: Uses) -> Result<Self> {
        let can_write = uses.writes || uses.appends;
        let handle = fs
            .open(ino, OpenMode { write: can_write, direct: false })
            .inspect_err(|_| fs.forget(ino, 1))?;
        Ok(Self {
            fs,
            ino,
            handle,
            can_read: uses.reads,
            can_write,
            appends: uses.appends,
            position: Mutex::new(Rank::Position, 0),
            opener: Opener::this(),
        })
    }

    /// Its inode number.
    #[must_use]
    pub const fn ino(&self) -> Ino {
        self.ino
    }

    /// The filesystem, in the process that has its threads.
    fn fs(&self) -> Result<&dyn FileSystem> {
        self.opener.require()?;
        Ok(&*self.fs)
    }

    /// What the volume knows about it.
    ///
    /// # Errors
    /// The inode cannot be read.
    pub fn metadata(&self) -> Result<Metadata> {
        Ok(Metadata::new(self.fs()?.getattr(self.ino)?))
    }

    /// Reads from a byte offset. Returns fewer bytes than `buf` has only at the end of the file.
    ///
    /// # Errors
    /// The file is not open for reading, or cannot be read.
    pub fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<usize> {
        allowed(self.can_read, "reading")?;
        Ok(self.fs()?.read(self.ino, offset, buf, IoFlags::empty())?)
    }

    /// Writes at a byte offset; a file that was opened for appending is written at its end. Returns
    /// the number of bytes that were written, which is smaller if there is no more room.
    ///
    /// # Errors
    /// The file is not open for writing, or there is no room.
    pub fn write_at(&self, buf: &[u8], offset: u64) -> Result<usize> {
        allowed(self.can_write, "writing")?;
        let flags = if self.appends { IoFlags::APPEND } else { IoFlags::empty() };
        Ok(self.fs()?.write(self.ino, offset, buf, flags)?)
    }

    /// Writes all of `buf` at a byte offset.
    ///
    /// # Errors
    /// As [`File::write_at`]. A part may have been written.
    pub fn write_all_at(&self, mut buf: &[u8], mut offset: u64) -> Result<()> {
        while !buf.is_empty() {
            let written = self.write_at(buf, offset)?;
            if written == 0 {
                return Err(ErrorKind::WriteZero.into());
            }
            buf = buf.get(written..).unwrap_or_default();
            offset += written as u64;
        }
        Ok(())
    }

    /// Shortens or lengthens the file. New bytes are zeros.
    ///
    /// # Errors
    /// The file is not open for writing, or cannot have this size.
    pub fn set_len(&self, size: u64) -> Result<()> {
        allowed(self.can_write, "writing")?;
        let set = SetAttributes { size: Some(size), ..SetAttributes::default() };
        self.fs()?.setattr(self.ino, &set)?;
        Ok(())
    }

    /// Preallocates, makes holes, or moves ranges, as fallocate(2).
    ///
    /// # Errors
    /// The file is not open for writing, there is no room, or the format cannot do this.
    pub fn allocate(&self, mode: AllocateMode, offset: u64, len: u64) -> Result<()> {
        allowed(self.can_write, "writing")?;
        Ok(self.fs()?.allocate(self.ino, mode, offset, len)?)
    }

    /// The next data or hole at or after a byte offset, as lseek(2). `None` if there is none.
    ///
    /// # Errors
    /// The block map cannot be read.
    pub fn find(&self, what: cairn_vfs::Seek, offset: u64) -> Result<Option<u64>> {
        match self.fs()?.seek(self.ino, offset, what) {
            Ok(found) => Ok(Some(found)),
            Err(cairn_vfs::Error::NoData) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Makes contents and attributes durable.
    ///
    /// # Errors
    /// They could not be written, now or since the last call.
    pub fn sync_all(&self) -> Result<()> {
        Ok(self.fs()?.fsync(self.ino, self.handle, false)?)
    }

    /// Makes the contents durable, and what is needed to read them.
    ///
    /// # Errors
    /// As [`File::sync_all`].
    pub fn sync_data(&self) -> Result<()> {
        Ok(self.fs()?.fsync(self.ino, self.handle, true)?)
    }
}

fn allowed(is: bool, what: &str) -> Result<()> {
    match is {
        true => Ok(()),
        false => Err(Error::new(
            ErrorKind::PermissionDenied,
            format!("the file is not open for {what}: ask for it in OpenOptions"),
        )),
    }
}

impl Drop for File {
    fn drop(&mut self) {
        // A forked child has none of the volume's threads, and its locks may be held for ever.
        if !self.opener.is_here() {
            return;
        }
        self.fs.release(self.ino, self.handle);
        self.fs.forget(self.ino, 1);
    }
}

impl Read for &File {
    fn read(&mut self, buf: &mut [u8]) -> Result<usize> {
        self.opener.require()?;
        let mut position = self.position.lock();
        let read = self.read_at(buf, *position)?;
        *position += read as u64;
        Ok(read)
    }
}

impl Write for &File {
    fn write(&mut self, buf: &[u8]) -> Result<usize> {
        self.opener.require()?;
        let mut position = self.position.lock();
        let written = self.write_at(buf, *position)?;
        *position = if self.appends { self.metadata()?.len() } else { *position + written as u64 };
        Ok(written)
    }

    /// Nothing is kept back here. [`File::sync_all`] makes it durable.
    fn flush(&mut self) -> Result<()> {
        Ok(())
    }
}

impl Seek for &File {
    fn seek(&mut self, to: SeekFrom) -> Result<u64> {
        self.opener.require()?;
        let mut position = self.position.lock();
        let found = match to {
            SeekFrom::Start(offset) => Some(offset),
            SeekFrom::End(by) => self.metadata()?.len().checked_add_signed(by),
            SeekFrom::Current(by) => position.checked_add_signed(by),
        };
        *position = found.ok_or_else(|| {
            Error::new(ErrorKind::InvalidInput, "a position before the start of the file")
        })?;
        Ok(*position)
    }
}

impl Read for File {
    fn read(&mut self, buf: &mut [u8]) -> Result<usize> {
        (&*self).read(buf)
    }
}

impl Write for File {
    fn write(&mut self, buf: &[u8]) -> Result<usize> {
        (&*self).write(buf)
    }

    fn flush(&mut self) -> Result<()> {
        (&*self).flush()
    }
}

impl Seek for File {
    fn seek(&mut self, to: SeekFrom) -> Result<u64> {
        (&*self).seek(to)
    }
}

impl std::fmt::Debug for File {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("File").field("ino", &self.ino).finish_non_exhaustive()
    }
}
