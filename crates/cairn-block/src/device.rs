//! [`BlockDevice`], the interface of all devices. Requests go to it in a [`Batch`], and the result
//! comes in a [`Completion`].

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::{Condvar, Mutex};

use crate::buffer::IoBuf;
use crate::error::Result;
use crate::extent::Extent;
use crate::zoned::ZonedDevice;

/// Size and units of a device. All in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// Capacity.
    pub size: u64,
    /// Smallest addressable unit; offsets and lengths of requests are multiples of it (1 for a
    /// plain file).
    pub logical_block: u32,
    /// Writes of this size and alignment are not torn by a power cut (usually 4096).
    pub physical_block: u32,
    /// Alignment that memory buffers need for direct I/O (1 if none).
    pub memory_alignment: u32,
    /// No write will be accepted.
    pub read_only: bool,
    /// Discard frees space.
    pub discard: bool,
}

/// One transfer. Offsets are bytes from the device's start.
#[derive(Debug)]
pub enum Request {
    /// Fill the whole buffer from `offset`.
    Read {
        /// Byte offset.
        offset: u64,
        /// Its length is the length to read. Returned by [`Completion::wait`], in request order.
        buf: IoBuf,
    },
    /// Write the buffers one after the other, starting at `offset`.
    Write {
        /// Byte offset.
        offset: u64,
        /// Immutable, owned until completion.
        bufs: Vec<Bytes>,
    },
    /// The contents are no longer needed; later reads give zeros or the old bytes.
    Discard {
        /// Byte offset.
        offset: u64,
        /// Bytes.
        len: u64,
    },
    /// Later reads give zeros.
    WriteZeroes {
        /// Byte offset.
        offset: u64,
        /// Bytes.
        len: u64,
    },
}

/// What a batch promises about the medium, in the words of the block layer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Durability {
    /// Everything that completed before this batch was submitted is on the medium before the
    /// batch's own writes start.
    pub preflush: bool,
    /// The batch's own writes are on the medium when it completes (force unit access).
    pub fua: bool,
}

/// Requests that may be carried out in any order, or at once.
#[derive(Debug, Default)]
pub struct Batch {
    /// The transfers.
    pub requests: Vec<Request>,
    /// Barriers around them.
    pub durability: Durability,
}

/// A device. All methods may be called from many threads.
pub trait BlockDevice: Send + Sync {
    /// Size and units; constant for the device's life, but for the size of a [`Growable`] device.
    fn geometry(&self) -> Geometry;

    /// Starts the requests. The completion gives the first error, or the read buffers in request
    /// order. A device may do the work before it returns.
    fn submit(&self, batch: Batch) -> Completion;

    /// Everything completed so far is on the medium when this returns.
    ///
    /// # Errors
    /// The device failed to write its cache. Writes since the last successful flush may be lost.
    fn flush(&self) -> Result<()>;

    /// What a range is made of: extents that follow each other from its start. They may end before
    /// its end if there are many, and the last may end behind it. A device that does not know has
    /// data everywhere.
    ///
    /// # Errors
    /// The device failed to tell.
    fn extents(&self, range: Range<u64>) -> Result<Vec<Extent>> {
        let mut extents = Vec::new();
        Extent::data(range).push(&mut extents);
        Ok(extents)
    }

    /// The device's zones, if it has some that cannot be written anywhere at any time.
    fn as_zoned(&self) -> Option<&dyn ZonedDevice> {
        None
    }

    /// The device as one that can become larger.
    fn as_growable(&self) -> Option<&dyn Growable> {
        None
    }
}

/// A device that can become larger: an image file, in which a format of virtual disks allocates.
pub trait Growable {
    /// Makes the device at least `size` bytes large. What is new reads as zeros and, where the host
    /// can, takes no space. After a power cut the device may be as it was if no flush followed.
    ///
    /// # Errors
    /// [`ErrorKind::NoSpace`](crate::ErrorKind::NoSpace) if the host refuses the size,
    /// [`ErrorKind::ReadOnly`](crate::ErrorKind::ReadOnly),
    /// [`ErrorKind::Io`](crate::ErrorKind::Io).
    fn grow(&self, size: u64) -> Result<()>;
}

type Outcome = Result<Vec<IoBuf>>;
type Callback = Box<dyn FnOnce(Outcome) + Send>;

enum Slot {
    Waiting(Option<Callback>),
    Ready(Outcome),
    Taken,
}

struct Shared {
    slot: Mutex<Slot>,
    done: Condvar,
}

/// The answer to a [`Batch`], now or later.
#[must_use = "a write is not done, nor its error known, before wait() returns"]
pub struct Completion(State);

enum State {
    Done(Outcome),
    Later(Arc<Shared>),
}

/// The device's end of a [`Completion`] that is not ready yet.
#[must_use = "the caller of wait() waits until the batch is completed"]
pub struct Completer(Arc<Shared>);

impl Completion {
    /// Already finished.
    pub fn ready(outcome: Outcome) -> Self {
        Self(State::Done(outcome))
    }

    /// To be finished by another thread.
    pub fn pending() -> (Self, Completer) {
        let shared =
            Arc::new(Shared { slot: Mutex::new(Slot::Waiting(None)), done: Condvar::new() });
        (Self(State::Later(shared.clone())), Completer(shared))
    }

    /// Blocks until the batch is done.
    ///
    /// # Errors
    /// The first error of the batch: the device failed, the request lies beyond its end or is not
    /// aligned, or the device does not support it. Any of the requests may have been carried out.
    pub fn wait(self) -> Outcome {
        match self.0 {
            State::Done(outcome) => outcome,
            State::Later(shared) => {
                let mut slot = shared.slot.lock();
                loop {
                    match std::mem::replace(&mut *slot, Slot::Taken) {
                        Slot::Ready(outcome) => return outcome,
                        other => *slot = other,
                    }
                    shared.done.wait(&mut slot);
                }
            }
        }
    }

    /// Passes the outcome through `map` before anybody sees it; the same rules as for
    /// [`Completion::then`] hold.
    pub fn map(self, map: impl FnOnce(Outcome) -> Outcome + Send + 'static) -> Self {
        match self.0 {
            State::Done(outcome) => Self::ready(map(outcome)),
            later @ State::Later(_) => {
                let (completion, completer) = Self::pending();
                Self(later).then(move |outcome| completer.complete(map(outcome)));
                completion
            }
        }
    }

    /// Calls `then` with the outcome: at once if it is there, else on the device's completing
    /// thread. `then` must be short and must not block; hand anything longer to a worker.
    pub fn then(self, then: impl FnOnce(Outcome) + Send + 'static) {
        match self.0 {
            State::Done(outcome) => then(outcome),
            State::Later(shared) => {
                let mut slot = shared.slot.lock();
                match std::mem::replace(&mut *slot, Slot::Taken) {
                    Slot::Ready(outcome) => {
                        drop(slot);
                        then(outcome);
                    }
                    _ => *slot = Slot::Waiting(Some(Box::new(then))),
                }
            }
        }
    }
}

impl Completer {
    /// Delivers the outcome.
    pub fn complete(self, outcome: Outcome) {
        let mut slot = self.0.slot.lock();
        match std::mem::replace(&mut *slot, Slot::Taken) {
            Slot::Waiting(Some(callback)) => {
                drop(slot);
                callback(outcome);
            }
            _ => {
                *slot = Slot::Ready(outcome);
                self.0.done.notify_all();
            }
        }
    }
}

/// Blocking helpers over [`BlockDevice`].
pub trait BlockDeviceExt: BlockDevice {
    /// Reads `len` bytes at `offset`.
    ///
    /// # Errors
    /// As [`Completion::wait`]; [`ErrorKind::NoMemory`](crate::ErrorKind::NoMemory) if the system
    /// has no memory for the buffer.
    fn read_at(&self, offset: u64, len: usize) -> Result<IoBuf> {
        self.read_into(offset, IoBuf::try_zeroed(len)?)
    }

    /// Reads bytes anywhere: the device's whole blocks that have them are read.
    ///
    /// # Errors
    /// As [`BlockDeviceExt::read_at`].
    fn read_bytes(&self, offset: u64, len: usize) -> Result<IoBuf> {
        let Geometry { size, logical_block, .. } = self.geometry();
        let unit = u64::from(logical_block.max(1));
        let before = offset % unit;
        if before == 0 && (len as u64).is_multiple_of(unit) {
            return self.read_at(offset, len);
        }
        let Some(end) = offset.checked_add(len as u64).filter(|end| *end <= size) else {
            // The device says so.
            return self.read_at(offset, len);
        };
        let start = offset - before;
        let whole = end.div_ceil(unit).saturating_mul(unit).min(size) - start;
        let bytes = self.read_at(start, usize::try_from(whole).unwrap_or(usize::MAX))?;
        let mut part = IoBuf::try_zeroed(len)?;
        part.copy_from_slice(&bytes[before as usize..][..len]);
        Ok(part)
    }

    /// Reads a block of metadata: few bytes, for which the [reserve](crate::reserve) is opened. Who
    /// needs it is in the midst of something.
    ///
    /// # Errors
    /// As [`Completion::wait`].
    fn read_block(&self, offset: u64, len: usize) -> Result<IoBuf> {
        self.read_into(offset, IoBuf::zeroed(len))
    }

    /// Fills `buf` from `offset` on.
    ///
    /// # Errors
    /// As [`Completion::wait`].
    fn read_into(&self, offset: u64, buf: IoBuf) -> Result<IoBuf> {
        let batch = Batch {
            requests: vec![Request::Read { offset, buf }],
            durability: Durability::default(),
        };
        let mut bufs = self.submit(batch).wait()?;
        Ok(bufs.pop().expect("a read request gives its buffer back"))
    }

    /// Writes `data` at `offset`.
    ///
    /// # Errors
    /// As [`Completion::wait`]. The range may have old, new or mixed contents afterwards.
    fn write_at(&self, offset: u64, data: impl Into<Bytes>) -> Result<()> {
        self.write_durable(offset, data, Durability::default())
    }

    /// Writes `data` at `offset` between the given barriers.
    ///
    /// # Errors
    /// As [`BlockDeviceExt::write_at`], or a flush failed.
    fn write_durable(
        &self,
        offset: u64,
        data: impl Into<Bytes>,
        durability: Durability,
    ) -> Result<()> {
        let requests = vec![Request::Write { offset, bufs: vec![data.into()] }];
        self.submit(Batch { requests, durability }).wait().map(drop)
    }

    /// Discards a byte range.
    ///
    /// # Errors
    /// As [`Completion::wait`]; [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported) if the
    /// device cannot discard.
    fn discard(&self, offset: u64, len: u64) -> Result<()> {
        let requests = vec![Request::Discard { offset, len }];
        self.submit(Batch { requests, durability: Durability::default() }).wait().map(drop)
    }

    /// Makes a byte range read as zeros.
    ///
    /// # Errors
    /// As [`BlockDeviceExt::write_at`].
    fn write_zeroes(&self, offset: u64, len: u64) -> Result<()> {
        let requests = vec![Request::WriteZeroes { offset, len }];
        self.submit(Batch { requests, durability: Durability::default() }).wait().map(drop)
    }
}

impl<D: BlockDevice + ?Sized> BlockDeviceExt for D {}

impl<D: BlockDevice + ?Sized> BlockDevice for Arc<D> {
    fn geometry(&self) -> Geometry {
        (**self).geometry()
    }

    fn submit(&self, batch: Batch) -> Completion {
        (**self).submit(batch)
    }

    fn flush(&self) -> Result<()> {
        (**self).flush()
    }

    fn extents(&self, range: Range<u64>) -> Result<Vec<Extent>> {
        (**self).extents(range)
    }

    fn as_zoned(&self) -> Option<&dyn ZonedDevice> {
        (**self).as_zoned()
    }

    fn as_growable(&self) -> Option<&dyn Growable> {
        (**self).as_growable()
    }
}
