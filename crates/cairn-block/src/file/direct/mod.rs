//! [`DirectFile`]: an image file or block device past the host's page cache (`O_DIRECT`).
//!
//! Transfers whose offset and length the file allows are direct; memory that it does not allow is
//! copied. Other transfers (a superblock of 1 KiB in a file) use a second, buffered descriptor of
//! the same file: the filesystem below keeps the two coherent. Of a block device all transfers fit,
//! because Linux does not ([`written`]). A flush is `fdatasync`.
//!
//! [`DirectFile::with_page_cache`] transfers only what is large directly: small reads have the
//! readahead of Linux then, and small writes are collected by it ([`plan`]).
//!
//! With a [`Ring`], the transfers of a batch are in the kernel at once, and `submit` returns before
//! they are done, so that several batches are. Who waits for one transfer at once gains nothing
//! from that: a small read is a system call of its caller. So is a batch that is to be durable when
//! it is done, because a flush follows.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{Advice, OFlags, fadvise};

use super::{FileDevice, Fua, OpenOptions};
use crate::IoBuf;
use crate::bounds;
use crate::device::{Batch, BlockDevice, Completion, Geometry, Growable, Request};
use crate::error::{Error, Operation, Result};
use crate::extent::Extent;

mod alignment;
mod job;
#[cfg(test)]
mod mixed_tests;
mod plan;
mod ring;
#[cfg(test)]
mod tests;
mod writers;
mod written;

use alignment::{Alignment, PAGE};
use job::{Memory, Sent, Transfer, put};
use plan::{Other, Plan};
pub use ring::DEPTH;
use ring::Ring;
pub use writers::WRITERS;
use writers::Writers;
use written::Written;

/// A read of so many bytes takes longer than to hand it to the ring.
const LARGE: u64 = 256 << 10;

/// A file that bypasses the host's page cache.
#[derive(Debug)]
pub struct DirectFile {
    /// Goes first: it waits for the kernel.
    turns: Turns,
    /// What is small goes through the page cache.
    mixed: Option<Mixed>,
    /// The io_uring was given writes of a block device since the last flush.
    wrote: AtomicBool,
    /// Locks, geometry, flushes and unaligned transfers.
    buffered: FileDevice,
    direct: File,
    alignment: Alignment,
}

#[derive(Debug)]
enum Turns {
    OneByOne,
    Ring(Ring),
    Refused(io::Error),
}

/// A file that has no direct transfers, and why.
#[derive(Debug)]
pub struct Indirect {
    /// The file, as it was.
    pub device: FileDevice,
    /// What the system said.
    pub why: Error,
}

/// Large transfers directly, small ones through the page cache.
#[derive(Debug)]
struct Mixed {
    writers: Writers,
    written: Written,
}

/// Who carries transfers out.
enum Hands<'d> {
    Caller,
    Ring(&'d Ring),
    Writers(&'d Writers),
}

impl DirectFile {
    /// Opens an existing file or block device.
    ///
    /// # Errors
    /// As [`FileDevice::open`]; [`ErrorKind::Io`](crate::ErrorKind::Io) if the host's filesystem
    /// has no direct I/O.
    pub fn open(path: impl AsRef<Path>, options: OpenOptions) -> Result<Self> {
        Self::over(FileDevice::open(path, options)?).map_err(|refused| refused.why)
    }

    /// Direct transfers of a file or block device that is open. It keeps its locks.
    ///
    /// # Errors
    /// The host's filesystem or the device has no direct I/O, or `/proc` is not mounted.
    pub fn over(buffered: FileDevice) -> Result<Self, Box<Indirect>> {
        match Self::direct(&buffered) {
            Ok((direct, alignment)) => Ok(Self {
                turns: Turns::OneByOne,
                mixed: None,
                wrote: AtomicBool::new(false),
                buffered,
                direct,
                alignment,
            }),
            Err(why) => Err(Box::new(Indirect { device: buffered, why })),
        }
    }

    fn direct(buffered: &FileDevice) -> Result<(File, Alignment)> {
        // The same file, even if its name leads to another one now.
        let same = format!("/proc/self/fd/{}", buffered.descriptor().as_raw_fd());
        let direct = std::fs::OpenOptions::new()
            .read(true)
            .write(buffered.may_write())
            .custom_flags(OFlags::DIRECT.bits().cast_signed())
            .open(same)
            .map_err(|error| Error::from_io("open for direct I/O", error))?;
        let alignment = Alignment::of(&direct, &buffered.geometry(), buffered.is_block_device)?;
        Ok((direct, alignment))
    }

    /// Transfers many requests at once from now on, if the system lets it: see
    /// [`DirectFile::depth`].
    #[must_use]
    pub fn with_depth(mut self) -> Self {
        self.turns = match self.direct.try_clone().and_then(Ring::start) {
            Ok(ring) => Turns::Ring(ring),
            Err(error) => Turns::Refused(error),
        };
        self
    }

    /// Transfers only large pieces directly from now on, and others through the page cache. Several
    /// large writes are in the kernel at once, whatever [`DirectFile::depth`] says.
    ///
    /// # Errors
    /// The system has no further descriptor.
    pub fn with_page_cache(mut self) -> Result<Self, Box<Indirect>> {
        let file = match self.direct.try_clone() {
            Ok(file) => file,
            Err(error) => {
                let why = Error::from_io("open for direct I/O", error);
                return Err(Box::new(Indirect { device: self.into_buffered(), why }));
            }
        };
        let Geometry { size, logical_block, .. } = self.buffered.geometry();
        let page = PAGE.max(rustix::param::page_size() as u64).max(logical_block.into());
        self.mixed = Some(Mixed { writers: Writers::new(file), written: Written::new(size, page) });
        Ok(self)
    }

    /// Most transfers that the kernel has at once for one caller.
    ///
    /// # Errors
    /// Why the system refuses more than one.
    pub fn depth(&self) -> Result<usize, &io::Error> {
        match &self.turns {
            Turns::OneByOne => Ok(1),
            Turns::Ring(_) => Ok(DEPTH),
            Turns::Refused(error) => Err(error),
        }
    }

    /// The file, through the page cache again.
    #[must_use]
    pub fn into_buffered(self) -> FileDevice {
        self.buffered
    }

    /// For device controls.
    pub(crate) fn descriptor(&self) -> &File {
        &self.direct
    }

    fn begin(&self, batch: Batch) -> Result<Completion> {
        let geometry = self.buffered.geometry();
        batch.requests.iter().try_for_each(|request| bounds::check(&geometry, request))?;
        let written = self.mixed.as_ref().map(|mixed| &mixed.written);
        let mut plan = Plan::of(batch.requests, self.alignment, written)?;
        if plan.changes > 0 {
            self.buffered.check_whole(Operation::Write)?;
        }
        if batch.durability.preflush {
            self.sync()?;
        }
        let wanted = batch.durability.fua && plan.changes > 0;
        let mut fua = Fua { wanted, alone: plan.changes == 1, owed: false };
        if !plan.others.is_empty() {
            self.through_cache(plan.others, &mut plan.bufs, &mut fua)?;
        }
        let hands = self.hands(&plan.transfers, wanted);
        if let Hands::Caller = hands {
            self.carry_out(plan.transfers, &mut plan.bufs, &mut fua)?;
        } else {
            let (sent, completion) = Sent::all(plan.transfers, plan.bufs);
            match hands {
                Hands::Caller => {}
                Hands::Writers(writers) => writers.send(sent),
                Hands::Ring(ring) => {
                    if plan.changes > 0 && self.buffered.is_block_device {
                        self.wrote.store(true, Ordering::Release);
                    }
                    if let Err(back) = ring.send(sent) {
                        back.into_iter().for_each(|sent| sent.finish(&self.direct));
                    }
                }
            }
            if !wanted {
                return Ok(completion);
            }
            plan.bufs = completion.wait()?.into_iter().map(Some).collect();
            fua.owe();
        }
        if fua.owed {
            self.sync()?;
        }
        Ok(Completion::ready(Ok(plan.bufs.into_iter().flatten().collect())))
    }

    fn through_cache(
        &self,
        others: Vec<Other>,
        bufs: &mut [Option<IoBuf>],
        fua: &mut Fua,
    ) -> Result<()> {
        let (mut requests, mut places, mut leaving) = (Vec::new(), Vec::new(), Vec::new());
        for Other { request, place, leaves } in others {
            match request {
                Request::Read { .. } => places.push(place),
                _ => fua.owe(),
            }
            requests.push(request);
            leaving.extend(leaves);
        }
        let read = self.buffered.submit(Batch { requests, ..Batch::default() }).wait()?;
        places.into_iter().zip(read).for_each(|(place, buf)| bufs[place] = Some(buf));
        if let Some(mixed) = &self.mixed {
            leaving.into_iter().for_each(|bytes| mixed.written.leave(bytes));
        }
        Ok(())
    }

    /// `waits`: the caller waits for the transfers.
    fn hands(&self, transfers: &[Transfer], waits: bool) -> Hands<'_> {
        let is_write = |transfer: &Transfer| matches!(transfer.memory, Memory::Write(_));
        if let Some(mixed) = &self.mixed
            && transfers.iter().any(is_write)
        {
            let is_alone = waits && transfers.len() == 1;
            return match is_alone || Writers::is_own_thread() {
                true => Hands::Caller,
                false => Hands::Writers(&mixed.writers),
            };
        }
        let Turns::Ring(ring) = &self.turns else { return Hands::Caller };
        let is_for_ring = match transfers {
            [] => false,
            [only] => match only.memory {
                Memory::Read(_) => only.len() >= LARGE,
                Memory::Write(_) => !waits && only.len() > 0,
            },
            _ => !(waits && ring.is_own_thread()),
        };
        if is_for_ring { Hands::Ring(ring) } else { Hands::Caller }
    }

    /// One after the other, in the calling thread.
    fn carry_out(
        &self,
        transfers: Vec<Transfer>,
        bufs: &mut [Option<IoBuf>],
        fua: &mut Fua,
    ) -> Result<()> {
        for mut transfer in transfers {
            transfer.carry_out(&self.direct, fua)?;
            put(&mut bufs[transfer.place..], transfer.into_bufs());
        }
        Ok(())
    }

    fn sync(&self) -> Result<()> {
        self.buffered.flush()?;
        // What other programs have read of it meanwhile is dropped, so that they see what is there.
        if self.wrote.swap(false, Ordering::AcqRel) {
            let _ = fadvise(self.buffered.descriptor(), 0, None, Advice::DontNeed);
        }
        Ok(())
    }
}

impl BlockDevice for DirectFile {
    fn geometry(&self) -> Geometry {
        self.buffered.geometry()
    }

    fn submit(&self, batch: Batch) -> Completion {
        self.begin(batch).unwrap_or_else(|error| Completion::ready(Err(error)))
    }

    fn flush(&self) -> Result<()> {
        self.sync()
    }

    fn extents(&self, range: Range<u64>) -> Result<Vec<Extent>> {
        self.buffered.extents(range)
    }

    fn as_growable(&self) -> Option<&dyn Growable> {
        // The set of pages has its size from the start.
        self.mixed.is_none().then(|| self.buffered.as_growable())?
    }
}
