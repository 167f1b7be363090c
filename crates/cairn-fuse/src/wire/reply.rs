//! An answer, sent once.

use std::io::IoSlice;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use cairn_block::uring::Entry;
use rustix::io::Errno;
use zerocopy::{Immutable, IntoBytes};

use super::abi::OutHeader;
use super::device::{Counted, Device};
use super::outbox::{Lent, Outbox};

/// The bit in the number of an INTERRUPT.
const INTERRUPT: u64 = 1;

/// Where an answer goes.
enum Sink {
    Device(Arc<Device>),
    /// `None` when it is answered.
    Ring(Arc<Outbox>, Option<Entry>),
    Lent(Arc<Lent>),
}

/// The right to answer a request. Dropped unused (an operation that panicked), it answers EIO, so
/// that no caller waits for ever.
pub(crate) struct Reply {
    sink: Sink,
    unique: u64,
    owed: bool,
}

impl Reply {
    /// To a request that was read.
    pub(crate) fn new(device: Arc<Device>, unique: u64) -> Self {
        let reply = Self { sink: Sink::Device(device), unique, owed: true };
        reply.count(|counted| &counted.taken);
        reply
    }

    /// INTERRUPTs are left out: the kernel forgets them with the request that they are about.
    fn count(&self, counter: impl Fn(&Counted) -> &AtomicU64) {
        if let Sink::Device(device) = &self.sink
            && self.unique & INTERRUPT == 0
        {
            counter(&device.counted).fetch_add(1, Ordering::Relaxed);
        }
    }

    /// To the request that arrived in this entry.
    pub(crate) fn of_entry(outbox: Arc<Outbox>, entry: Entry, unique: u64) -> Self {
        Self { sink: Sink::Ring(outbox, Some(entry)), unique, owed: true }
    }

    /// To a request that still needs its entry.
    pub(crate) fn of_lent(lent: Arc<Lent>, unique: u64) -> Self {
        Self { sink: Sink::Lent(lent), unique, owed: true }
    }

    /// A request that wants no answer. An entry goes back to the kernel in any case.
    pub(crate) fn none(mut self) {
        match self.sink {
            Sink::Device(_) => {
                self.owed = false;
                self.count(|counted| &counted.answered);
            }
            Sink::Ring(..) | Sink::Lent(_) => self.write(None, &[]),
        }
    }

    /// A structure, or the error.
    pub(crate) fn send<T: IntoBytes + Immutable>(self, result: &Result<T, Errno>) {
        match result {
            Ok(value) => self.data(&[value.as_bytes()]),
            Err(error) => self.error(*error),
        }
    }

    /// Plain bytes, or the error.
    pub(crate) fn send_bytes(self, result: Result<&[u8], Errno>) {
        match result {
            Ok(bytes) => self.data(&[bytes]),
            Err(error) => self.error(error),
        }
    }

    pub(crate) fn error(mut self, error: Errno) {
        self.write(Some(error), &[]);
    }

    /// Bytes in pieces, in order.
    pub(crate) fn data(mut self, pieces: &[&[u8]]) {
        self.write(None, pieces);
    }

    fn write(&mut self, error: Option<Errno>, pieces: &[&[u8]]) {
        self.owed = false;
        let len = size_of::<OutHeader>() + pieces.iter().map(|piece| piece.len()).sum::<usize>();
        let error = error.map_or(0, |error| -error.raw_os_error());
        // The largest answer is a read of MAX_WRITE bytes.
        let header = OutHeader { len: len as u32, error, unique: self.unique };
        let device = match &mut self.sink {
            Sink::Device(device) => device,
            Sink::Ring(outbox, entry) => {
                return entry.take().into_iter().for_each(|it| outbox.answer(it, header, pieces));
            }
            Sink::Lent(lent) => return lent.answer(header, pieces),
        };
        let mut slices = Vec::with_capacity(1 + pieces.len());
        slices.push(IoSlice::new(header.as_bytes()));
        slices.extend(pieces.iter().map(|piece| IoSlice::new(piece)));
        match device.write(&slices) {
            Ok(()) => self.count(|counted| &counted.answered),
            // The connection has ended.
            Err(Errno::NOENT | Errno::NODEV | Errno::PERM | Errno::CONNABORTED) => {
                self.count(|counted| &counted.late);
                tracing::debug!("nobody takes an answer");
            }
            // The kernel refuses the answer, and the caller would wait for ever.
            Err(refused) => {
                tracing::error!("the kernel refuses an answer of {len} bytes: {refused}");
                let error = -Errno::IO.raw_os_error();
                let len = size_of::<OutHeader>() as u32;
                let header = OutHeader { len, error, unique: self.unique };
                let taken = device.write(&[IoSlice::new(header.as_bytes())]).is_ok();
                // Nobody is left if the kernel had taken the first one.
                self.count(|counted| if taken { &counted.answered } else { &counted.late });
            }
        }
    }
}

impl Drop for Reply {
    fn drop(&mut self) {
        if self.owed {
            self.write(Some(Errno::IO), &[]);
        }
    }
}
