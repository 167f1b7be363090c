//! [`FileDevice`]: an image file or a block device of the host, through the host's page cache.
//!
//! All requests are complete when `submit` returns. Many threads may call it at once. The reads of
//! a batch begin together: the system is told of all before the first is waited for. A flush is
//! `fdatasync`. Once a flush has failed every later one fails too: Linux marks the pages clean
//! after it reported the error, so a second `fdatasync` would claim a durability that does not
//! exist.

use std::fs::File;
use std::num::NonZeroU64;
use std::ops::Range;
use std::path::Path;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use cairn_base::ranked_lock::{Mutex, Rank};
use rustix::fs::{Advice, FallocateFlags, fadvise};
use rustix::io::Errno;

use crate::bounds;
use crate::device::{Batch, BlockDevice, Completion, Geometry, Growable, Request};
use crate::error::{Error, ErrorKind, Operation, Result};
use crate::extent::Extent;
use crate::{IoBuf, ioctl};

mod attach;
mod claim;
mod claimant;
mod direct;
mod extents;
mod holder;
mod kept;
mod kind;
mod lock;
mod loops;
mod making;
mod ofd;
mod open;
mod runs;
mod transfer;

pub use attach::LoopDevice;
pub use claim::BlockClaim;
pub use direct::{DEPTH, DirectFile, Indirect, WRITERS};
pub use holder::backing_file;
pub use kept::KeptImage;
pub use making::lock_making;
pub use open::{OpenOptions, mounted_by_kernel, open_image};
use transfer::{Fua, read_all, retry, write_all};

/// Zeros are written in pieces of this size where the host cannot do it by itself.
const ZEROES: usize = 1 << 20;

/// A file or block device of the host.
#[derive(Debug)]
pub struct FileDevice {
    /// Holds the advisory locks, too.
    file: File,
    geometry: Geometry,
    is_block_device: bool,
    failed_flush: OnceLock<Error>,
    /// The locks of the backing files of a loop device.
    _beneath: loops::Beneath,
    /// The image's length when it was found truncated.
    truncated: OnceLock<u64>,
    /// The size, which [`Growable::grow`] alone changes.
    size: AtomicU64,
    /// One growth at a time.
    growing: Mutex<()>,
}

impl Drop for FileDevice {
    fn drop(&mut self) {
        lock::release(&self.file);
    }
}

impl FileDevice {
    /// Opens the image or block device at `path`.
    ///
    /// # Errors
    /// [`ErrorKind::InUse`] if another process has a conflicting lock, or the kernel has mounted
    /// it; [`ErrorKind::NotFound`], [`ErrorKind::PermissionDenied`], [`ErrorKind::Unsupported`]
    /// (neither a file nor a block device), [`ErrorKind::Io`].
    pub fn open(path: impl AsRef<Path>, options: OpenOptions) -> Result<Self> {
        open::open(path.as_ref(), options).map(Self::new)
    }

    fn new(opened: open::Opened) -> Self {
        Self {
            file: opened.file,
            geometry: opened.geometry,
            is_block_device: opened.is_block_device,
            failed_flush: OnceLock::new(),
            _beneath: opened.beneath,
            truncated: OnceLock::new(),
            size: AtomicU64::new(opened.geometry.size),
            growing: Mutex::new(Rank::Leaf, ()),
        }
    }

    fn descriptor(&self) -> &File {
        &self.file
    }

    fn may_write(&self) -> bool {
        !self.geometry.read_only
    }

    /// True for a block device, false for a regular file.
    #[must_use]
    pub fn is_block_device(&self) -> bool {
        self.is_block_device
    }

    fn run(&self, batch: Batch) -> Result<Vec<IoBuf>> {
        let geometry = self.geometry();
        batch.requests.iter().try_for_each(|request| bounds::check(&geometry, request))?;
        let changes = batch
            .requests
            .iter()
            .filter(|request| !matches!(request, Request::Read { .. }))
            .count();
        if changes > 0 {
            self.check_whole(Operation::Write)?;
        }
        if batch.durability.preflush {
            self.sync()?;
        }
        let mut fua =
            Fua { wanted: batch.durability.fua && changes > 0, alone: changes == 1, owed: false };
        self.announce(&batch.requests);
        let mut read = Vec::new();
        for request in batch.requests {
            match request {
                Request::Read { offset, mut buf } => {
                    read_all(&self.file, offset, std::slice::from_mut(&mut buf), 1)?;
                    read.push(buf);
                }
                Request::Write { offset, bufs } => write_all(&self.file, offset, &bufs, &mut fua)?,
                Request::Discard { offset, len } => self.punch(offset, len, &mut fua)?,
                Request::WriteZeroes { offset, len } => self.zero(offset, len, &mut fua)?,
            }
        }
        if fua.owed {
            self.sync()?;
        }
        Ok(read)
    }

    /// The system begins to read all that the batch will wait for, one after the other.
    fn announce(&self, requests: &[Request]) {
        let runs = || runs::of(requests).filter(|run| matches!(run, [Request::Read { .. }, ..]));
        if runs().nth(1).is_none() {
            return;
        }
        for bytes in runs().map(runs::bytes) {
            // Where it is no help, the read itself tells what is wrong.
            let len = NonZeroU64::new(bytes.end - bytes.start);
            let _ = len.map(|len| fadvise(&self.file, bytes.start, Some(len), Advice::WillNeed));
        }
    }

    fn punch(&self, offset: u64, len: u64, fua: &mut Fua) -> Result<()> {
        fua.owe();
        let done = match len {
            0 => Ok(()),
            _ if self.is_block_device => retry(|| ioctl::discard(&self.file, offset, len)),
            _ => self.allocate(FallocateFlags::PUNCH_HOLE, offset, len),
        };
        match done {
            // Only a hint: the old bytes may stay.
            Ok(()) | Err(Errno::OPNOTSUPP | Errno::NOSYS) => Ok(()),
            Err(error) => Err(Error::from_io(Operation::Discard, error.into()).at(offset, len)),
        }
    }

    fn zero(&self, offset: u64, len: u64, fua: &mut Fua) -> Result<()> {
        fua.owe();
        if len == 0 {
            return Ok(());
        }
        for how in [FallocateFlags::PUNCH_HOLE, FallocateFlags::ZERO_RANGE] {
            match self.allocate(how, offset, len) {
                Err(Errno::OPNOTSUPP | Errno::NOSYS) => {}
                done => {
                    return done.map_err(|error| {
                        Error::from_io(Operation::WriteZeroes, error.into()).at(offset, len)
                    });
                }
            }
        }
        let zeroes = IoBuf::zeroed(ZEROES).into_bytes();
        let mut done = 0;
        while done < len {
            let piece = zeroes.slice(..ZEROES.min(usize::try_from(len - done).unwrap_or(ZEROES)));
            let piece_len = piece.len() as u64;
            write_all(&self.file, offset + done, &[piece], fua)?;
            done += piece_len;
        }
        Ok(())
    }

    fn allocate(&self, how: FallocateFlags, offset: u64, len: u64) -> rustix::io::Result<()> {
        retry(|| rustix::fs::fallocate(&self.file, how | FallocateFlags::KEEP_SIZE, offset, len))
    }

    /// Fails if the image was truncated since it was opened, and from then on. Its contents are
    /// lost, and a write beyond the end would make the image look complete again, with zeros in
    /// between.
    fn check_whole(&self, operation: Operation) -> Result<()> {
        if self.is_block_device {
            return Ok(());
        }
        // Before the length: the image may be growing.
        let size = self.geometry().size;
        if self.truncated.get().is_none() {
            let now = self
                .file
                .metadata()
                .map_err(|error| Error::from_io(operation.clone(), error))?
                .len();
            if now >= size {
                return Ok(());
            }
            let _ = self.truncated.set(now);
        }
        let now = self.truncated.get().copied().unwrap_or_default();
        let detail = format!(
            "the image has been truncated while it is in use, from {size} bytes to {now}: nothing \
             more is written: close it, and restore it from a copy"
        );
        Err(Error::new(ErrorKind::Io, operation, detail))
    }

    fn sync(&self) -> Result<()> {
        self.check_whole(Operation::Flush)?;
        if let Some(error) = self.failed_flush.get() {
            return Err(error.clone());
        }
        retry(|| rustix::fs::fdatasync(&self.file)).map_err(|error| {
            let error = Error::from_io(Operation::Flush, error.into());
            self.failed_flush.get_or_init(|| error).clone()
        })
    }
}

impl BlockDevice for FileDevice {
    fn geometry(&self) -> Geometry {
        Geometry { size: self.size.load(Ordering::Acquire), ..self.geometry }
    }

    fn submit(&self, batch: Batch) -> Completion {
        Completion::ready(self.run(batch))
    }

    fn flush(&self) -> Result<()> {
        if self.geometry.read_only { Ok(()) } else { self.sync() }
    }

    fn extents(&self, range: Range<u64>) -> Result<Vec<Extent>> {
        extents::of(&self.file, range)
    }

    fn as_growable(&self) -> Option<&dyn Growable> {
        (!self.is_block_device && !self.geometry.read_only).then_some(self)
    }
}

impl Growable for FileDevice {
    fn grow(&self, size: u64) -> Result<()> {
        let _alone = self.growing.lock();
        self.check_whole(Operation::Write)?;
        if size > self.size.load(Ordering::Acquire) {
            let failed = |error| Error::from_io(format!("grow the image to {size} bytes"), error);
            self.file.set_len(size).map_err(failed)?;
            self.size.store(size, Ordering::Release);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
