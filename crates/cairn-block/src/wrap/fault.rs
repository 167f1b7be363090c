//! [`Fault`]: a device with injected failures.
//!
//! Each request of a batch counts by itself, a preflush counts as a flush. Of a batch whose n-th
//! request fails, those before it are carried out and those after it are not; a failed preflush
//! carries out nothing. Locking: the plan is a leaf lock, never held while the inner device works.

use std::ops::Range;
use std::sync::Arc;

use cairn_base::ranked_lock::{Mutex, Rank};

use crate::bounds::total_len;
use crate::device::{Batch, BlockDevice, Completion, Geometry, Growable, Request};
use crate::error::{self, Error, ErrorKind, Result};
use crate::zoned::ZonedDevice;

/// The kinds of work that are counted and can fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Operation {
    /// [`Request::Read`].
    Read,
    /// [`Request::Write`].
    Write,
    /// [`Request::Discard`] and [`Request::WriteZeroes`].
    Discard,
    /// Flushes and preflushes.
    Flush,
}

/// How long a fault lasts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lasting {
    /// The chosen one fails, the next succeeds.
    Once,
    /// The chosen one and all after it fail.
    Forever,
}

/// A device with planned faults.
pub struct Fault {
    inner: Arc<dyn BlockDevice>,
    plan: Mutex<Plan>,
}

#[derive(Default)]
struct Plan {
    counts: [u64; 4],
    numbered: Vec<(Operation, u64, Lasting)>,
    bad: Vec<(Operation, Range<u64>)>,
    full: bool,
    full_behind: Option<(u64, u64)>,
}

impl Fault {
    /// Around `inner`; nothing fails yet.
    #[must_use]
    pub fn new(inner: Arc<dyn BlockDevice>) -> Self {
        Self { inner, plan: Mutex::new(Rank::Leaf, Plan::default()) }
    }

    /// The `nth` operation of this kind since the device was made fails; the first is number 1.
    pub fn fail(&self, operation: Operation, nth: u64, lasting: Lasting) {
        self.plan.lock().numbered.push((operation, nth, lasting));
    }

    /// The next operation of this kind fails.
    pub fn fail_next(&self, operation: Operation, lasting: Lasting) {
        let mut plan = self.plan.lock();
        let nth = plan.counts[operation as usize] + 1;
        plan.numbered.push((operation, nth, lasting));
    }

    /// Operations of this kind that touch the byte range fail: bad sectors.
    pub fn fail_range(&self, operation: Operation, bytes: Range<u64>) {
        self.plan.lock().bad.push((operation, bytes));
    }

    /// From now on there is no room for any write: the disk of an image's host is full.
    pub fn fill(&self) {
        self.plan.lock().full = true;
    }

    /// From the `nth` write on the host has no room for what begins at `from` or behind it. What is
    /// before has its place on the host.
    pub fn fill_at(&self, nth: u64, from: u64) {
        self.plan.lock().full_behind = Some((nth, from));
    }

    /// Forgets all planned faults. The counts continue.
    pub fn clear(&self) {
        let mut plan = self.plan.lock();
        plan.numbered.clear();
        plan.bad.clear();
        plan.full = false;
        plan.full_behind = None;
    }

    /// Operations of this kind so far, failed ones included.
    #[must_use]
    pub fn count(&self, operation: Operation) -> u64 {
        self.plan.lock().counts[operation as usize]
    }
}

impl Plan {
    /// Counts an operation; the error if it is to fail.
    fn admit(&mut self, operation: Operation, offset: u64, len: u64) -> Result<()> {
        let count = &mut self.counts[operation as usize];
        *count += 1;
        let number = *count;
        let behind = self.full_behind.is_some_and(|(nth, from)| number >= nth && offset >= from);
        if (self.full || behind) && operation == Operation::Write {
            return Err(Error::new(ErrorKind::NoSpace, error::Operation::Write, injected(number))
                .at(offset, len));
        }
        let by_number = self.numbered.iter().any(|(kind, nth, lasting)| {
            *kind == operation
                && (number == *nth || (number > *nth && *lasting == Lasting::Forever))
        });
        let end = offset.saturating_add(len);
        let by_range = self
            .bad
            .iter()
            .any(|(kind, bad)| *kind == operation && bad.start < end && offset < bad.end);
        if !by_number && !by_range {
            return Ok(());
        }
        let name = match operation {
            Operation::Read => error::Operation::Read,
            Operation::Write => error::Operation::Write,
            Operation::Discard => error::Operation::Discard,
            Operation::Flush => {
                return Err(Error::new(ErrorKind::Io, error::Operation::Flush, injected(number)));
            }
        };
        Err(Error::new(ErrorKind::Io, name, injected(number)).at(offset, len))
    }

    fn admit_request(&mut self, request: &Request) -> Result<()> {
        match request {
            Request::Read { offset, buf } => self.admit(Operation::Read, *offset, buf.len() as u64),
            Request::Write { offset, bufs } => {
                self.admit(Operation::Write, *offset, total_len(bufs))
            }
            Request::Discard { offset, len } | Request::WriteZeroes { offset, len } => {
                self.admit(Operation::Discard, *offset, *len)
            }
        }
    }

    /// The number of requests to carry out, and the error of the one after them.
    fn admit_batch(&mut self, batch: &Batch) -> (usize, Result<()>) {
        if batch.durability.preflush
            && let Err(error) = self.admit(Operation::Flush, 0, 0)
        {
            return (0, Err(error));
        }
        for (index, request) in batch.requests.iter().enumerate() {
            if let Err(error) = self.admit_request(request) {
                return (index, Err(error));
            }
        }
        (batch.requests.len(), Ok(()))
    }
}

fn injected(number: u64) -> String {
    format!("injected fault in number {number}")
}

impl BlockDevice for Fault {
    fn geometry(&self) -> Geometry {
        self.inner.geometry()
    }

    fn submit(&self, mut batch: Batch) -> Completion {
        let (good, verdict) = self.plan.lock().admit_batch(&batch);
        let Err(error) = verdict else { return self.inner.submit(batch) };
        batch.requests.truncate(good);
        if batch.requests.is_empty() {
            return Completion::ready(Err(error));
        }
        self.inner.submit(batch).map(|outcome| outcome.and(Err(error)))
    }

    fn flush(&self) -> Result<()> {
        self.plan.lock().admit(Operation::Flush, 0, 0)?;
        self.inner.flush()
    }

    fn as_zoned(&self) -> Option<&dyn ZonedDevice> {
        self.inner.as_zoned()
    }

    fn as_growable(&self) -> Option<&dyn Growable> {
        self.inner.as_growable()
    }
}
