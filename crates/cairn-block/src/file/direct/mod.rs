//! [`DirectFile`]: an image file or block device past the host's page cache (`O_DIRECT`).
//!
//! Transfers whose offset and length the file allows are direct; memory that it does not allow is
//! copied. Other transfers (a superblock of 1 KiB in a file) use a second, buffered descriptor of
//! the same file. Linux keeps the two coherent: a direct write drops the cached pages that it
//! covers, and a direct read writes dirty pages first. A flush is `fdatasync`.
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

use rustix::fs::OFlags;

use super::{FileDevice, Fua, OpenOptions};
use crate::IoBuf;
use crate::bounds;
use crate::device::{Batch, BlockDevice, Completion, Durability, Geometry, Growable, Request};
use crate::error::{Error, Operation, Result};
use crate::extent::Extent;

mod alignment;
mod job;
mod ring;
#[cfg(test)]
mod tests;

use alignment::Alignment;
use job::{Memory, Sent, Transfer};
pub use ring::DEPTH;
use ring::Ring;

/// A read of so many bytes takes longer than to hand it to the ring.
const LARGE: u64 = 256 << 10;

/// A file that bypasses the host's page cache.
#[derive(Debug)]
pub struct DirectFile {
    /// Goes first: it waits for the kernel.
    turns: Turns,
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

/// What a batch is made of.
struct Plan {
    transfers: Vec<Transfer>,
    /// Of all reads, in their order; those that are done.
    bufs: Vec<Option<IoBuf>>,
    /// The others, with the number of a read.
    others: Vec<(Request, usize)>,
    changes: usize,
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
            Ok((direct, alignment)) => {
                Ok(Self { turns: Turns::OneByOne, buffered, direct, alignment })
            }
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

    fn plan(&self, requests: Vec<Request>) -> Result<Plan> {
        let mut plan =
            Plan { transfers: Vec::new(), bufs: Vec::new(), others: Vec::new(), changes: 0 };
        let unit = self.alignment.offset;
        for request in requests {
            let place = plan.bufs.len();
            match request {
                Request::Read { offset, buf } => {
                    plan.bufs.push(None);
                    if self.alignment.fits(offset, buf.len() as u64) {
                        let memory = Memory::Read(buf);
                        plan.transfers.push(Transfer { offset, memory, unit, place });
                    } else {
                        plan.others.push((Request::Read { offset, buf }, place));
                    }
                }
                Request::Write { offset, bufs }
                    if self.alignment.fits(offset, bounds::total_len(&bufs)) =>
                {
                    plan.changes += 1;
                    let memory = Memory::Write(self.alignment.aligned(bufs)?);
                    plan.transfers.push(Transfer { offset, memory, unit, place });
                }
                other => {
                    plan.changes += 1;
                    plan.others.push((other, place));
                }
            }
        }
        Ok(plan)
    }

    fn begin(&self, batch: Batch) -> Result<Completion> {
        let geometry = self.buffered.geometry();
        batch.requests.iter().try_for_each(|request| bounds::check(&geometry, request))?;
        let mut plan = self.plan(batch.requests)?;
        if plan.changes > 0 {
            self.buffered.check_whole(Operation::Write)?;
        }
        if batch.durability.preflush {
            self.buffered.flush()?;
        }
        let wanted = batch.durability.fua && plan.changes > 0;
        let mut fua = Fua { wanted, alone: plan.changes == 1, owed: false };
        for (request, place) in plan.others {
            if !matches!(request, Request::Read { .. }) {
                fua.owe();
            }
            let batch = Batch { requests: vec![request], durability: Durability::default() };
            if let Some(buf) = self.buffered.submit(batch).wait()?.pop() {
                plan.bufs[place] = Some(buf);
            }
        }
        match self.ring_for(&plan.transfers, wanted) {
            None => self.carry_out(plan.transfers, &mut plan.bufs, &mut fua)?,
            Some(ring) => {
                let (sent, completion) = Sent::all(plan.transfers, plan.bufs);
                if let Err(back) = ring.send(sent) {
                    back.into_iter().for_each(|sent| sent.finish(&self.direct));
                }
                if !wanted {
                    return Ok(completion);
                }
                plan.bufs = completion.wait()?.into_iter().map(Some).collect();
                fua.owe();
            }
        }
        if fua.owed {
            self.buffered.flush()?;
        }
        Ok(Completion::ready(Ok(plan.bufs.into_iter().flatten().collect())))
    }

    /// The ring, if it brings something. `waits`: the caller waits for the transfers.
    fn ring_for(&self, transfers: &[Transfer], waits: bool) -> Option<&Ring> {
        let Turns::Ring(ring) = &self.turns else { return None };
        let is_for_it = match transfers {
            [] => false,
            [only] => match only.memory {
                Memory::Read(_) => only.len() >= LARGE,
                Memory::Write(_) => !waits && only.len() > 0,
            },
            _ => !(waits && ring.is_own_thread()),
        };
        is_for_it.then_some(ring)
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
            let place = transfer.place;
            if let Some(buf) = transfer.into_buf() {
                bufs[place] = Some(buf);
            }
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
        self.buffered.flush()
    }

    fn extents(&self, range: Range<u64>) -> Result<Vec<Extent>> {
        self.buffered.extents(range)
    }

    fn as_growable(&self) -> Option<&dyn Growable> {
        self.buffered.as_growable()
    }
}
