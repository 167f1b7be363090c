//! [`Record`]: records everything that changes a device, in order, and derives from it what a power
//! cut would have left.
//!
//! # Fault model
//! Time is a counter of *moments*; each submission and each completion takes the next one. At a
//! power cut in moment `t`, for every recorded write, discard or zeroing (a *change*):
//! - submitted at `t` or later: not on the medium;
//! - durable: it completed, and after that a flush was submitted which completed before `t`; or it
//!   had forced unit access and completed before `t`. A change that is still under way when a flush
//!   is submitted is not covered;
//! - otherwise volatile: it is on the medium or not, whatever happened to any other. The bytes of
//!   one change within one aligned physical block of the device stay together; a larger change may
//!   be torn between such blocks.
//!
//! Where changes overlap, the one submitted later wins, if it is there. A change or flush that
//! failed never completes: it stays volatile and covers nothing. A preflush is a flush of its own
//! that completes before the batch's changes are submitted; a discard reads as zeros if it reached
//! the medium.
//!
//! Locking: the log is a leaf lock, never held while the inner device works. Data is shared, not
//! copied.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use cairn_base::ranked_lock::{Mutex, Rank};

use crate::device::{
    Batch, BlockDevice, BlockDeviceExt, Completion, Durability, Geometry, Growable, Request,
};
use crate::error::Result;

/// One recorded change or barrier.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// Bytes written.
    Write {
        /// Byte offset.
        offset: u64,
        /// Contents.
        data: Bytes,
        /// Durable on completion.
        fua: bool,
    },
    /// Contents given up.
    Discard {
        /// Byte offset.
        offset: u64,
        /// Bytes.
        len: u64,
        /// Durable on completion.
        fua: bool,
    },
    /// Zeros written.
    WriteZeroes {
        /// Byte offset.
        offset: u64,
        /// Bytes.
        len: u64,
        /// Durable on completion.
        fua: bool,
    },
    /// A flush or preflush.
    Flush,
}

impl Event {
    /// The bytes it changes; none for a flush.
    #[must_use]
    pub fn range(&self) -> Option<Range<u64>> {
        match self {
            Self::Write { offset, data, .. } => Some(*offset..*offset + data.len() as u64),
            Self::Discard { offset, len, .. } | Self::WriteZeroes { offset, len, .. } => {
                Some(*offset..*offset + *len)
            }
            Self::Flush => None,
        }
    }

    fn is_fua(&self) -> bool {
        match self {
            Self::Write { fua, .. } | Self::Discard { fua, .. } | Self::WriteZeroes { fua, .. } => {
                *fua
            }
            Self::Flush => false,
        }
    }

    /// Carries the change out on another device; a flush does nothing.
    ///
    /// # Errors
    /// The device's.
    pub fn apply(&self, device: &dyn BlockDevice) -> Result<()> {
        match self {
            Self::Write { offset, data, .. } => device.write_at(*offset, data.clone()),
            Self::Discard { offset, len, .. } | Self::WriteZeroes { offset, len, .. } => {
                device.write_zeroes(*offset, *len)
            }
            Self::Flush => Ok(()),
        }
    }
}

/// When an event was under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// The moment of its submission.
    pub submitted: u64,
    /// The moment of its successful completion.
    pub completed: Option<u64>,
}

/// What was recorded.
#[derive(Clone, Debug, Default)]
pub struct RecordLog {
    /// In the order of submission.
    pub events: Vec<Event>,
    /// For each event, when.
    pub spans: Vec<Span>,
    /// The next moment: a power cut at this one is after everything.
    pub end: u64,
}

/// Where each change stands at one moment, as indices into [`RecordLog::events`], ascending.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CrashPoint {
    /// Surely on the medium.
    pub durable: Vec<usize>,
    /// On the medium or not, each by itself.
    pub volatile: Vec<usize>,
}

impl RecordLog {
    /// The changes grouped between flush barriers, as indices into `events`: group `n` holds those
    /// that the `n`-th completed flush was the first to make durable, the last group (there always
    /// is one) those that none did. Changes with forced unit access are grouped like the others,
    /// although they are durable without the flush.
    #[cfg(test)]
    pub(crate) fn epochs(&self) -> Vec<Vec<usize>> {
        let flushes: Vec<Span> = self.flushes().collect();
        let mut epochs = vec![Vec::new(); flushes.len() + 1];
        for (index, span) in self.changes() {
            let covering = span
                .completed
                .and_then(|done| flushes.iter().position(|flush| flush.submitted > done));
            epochs[covering.unwrap_or(flushes.len())].push(index);
        }
        epochs
    }

    /// What a power cut at this moment leaves.
    #[must_use]
    pub fn crash_point(&self, moment: u64) -> CrashPoint {
        // Completed flushes cover by their submission: the latest submitted covers what the others
        // do.
        let done = self.flushes().filter(|flush| flush.completed.is_some_and(|at| at < moment));
        let covered = done.map(|flush| flush.submitted).max().unwrap_or(0);
        let mut point = CrashPoint::default();
        for (index, span) in self.changes().filter(|(_, span)| span.submitted < moment) {
            let forced =
                self.events[index].is_fua() && span.completed.is_some_and(|at| at < moment);
            let flushed = span.completed.is_some_and(|at| at < covered);
            let list = if forced || flushed { &mut point.durable } else { &mut point.volatile };
            list.push(index);
        }
        point
    }

    /// Carries out the chosen events in their order of submission, on a device that holds the
    /// contents from before the recording.
    ///
    /// # Errors
    /// The device's.
    pub fn apply(
        &self,
        device: &dyn BlockDevice,
        chosen: impl IntoIterator<Item = usize>,
    ) -> Result<()> {
        let mut chosen: Vec<usize> = chosen.into_iter().collect();
        chosen.sort_unstable();
        chosen.dedup();
        chosen.into_iter().try_for_each(|index| self.events[index].apply(device))
    }

    fn changes(&self) -> impl Iterator<Item = (usize, Span)> {
        let events = self.events.iter().zip(&self.spans).enumerate();
        events
            .filter(|(_, (event, _))| **event != Event::Flush)
            .map(|(index, (_, span))| (index, *span))
    }

    /// Successful flushes in the order of their submission.
    fn flushes(&self) -> impl Iterator<Item = Span> {
        let events = self.events.iter().zip(&self.spans);
        events
            .filter(|(event, span)| **event == Event::Flush && span.completed.is_some())
            .map(|(_, span)| *span)
    }

    fn submit(&mut self, event: Event) -> usize {
        let submitted = self.tick();
        self.events.push(event);
        self.spans.push(Span { submitted, completed: None });
        self.events.len() - 1
    }

    fn complete(&mut self, index: usize) {
        let moment = self.tick();
        self.spans[index].completed = Some(moment);
    }

    fn tick(&mut self) -> u64 {
        let moment = self.end;
        self.end += 1;
        moment
    }
}

/// Records what passes through.
pub struct Record {
    inner: Arc<dyn BlockDevice>,
    log: Arc<Mutex<RecordLog>>,
}

impl Record {
    /// Around `inner`. Keep the contents from before: the log holds only what changes.
    #[must_use]
    pub fn new(inner: Arc<dyn BlockDevice>) -> Self {
        Self { inner, log: Arc::new(Mutex::new(Rank::Leaf, RecordLog::default())) }
    }

    /// The log so far.
    #[must_use]
    pub fn log(&self) -> RecordLog {
        self.log.lock().clone()
    }

    /// The present moment: what a caller saw durable when it asked must be so in every crash at
    /// this moment or later.
    #[must_use]
    pub fn moment(&self) -> u64 {
        self.log.lock().end
    }

    fn recorded_flush(&self) -> Result<()> {
        let index = self.log.lock().submit(Event::Flush);
        self.inner.flush()?;
        self.log.lock().complete(index);
        Ok(())
    }
}

fn event_of(request: &Request, fua: bool) -> Option<Event> {
    match request {
        Request::Read { .. } => None,
        Request::Write { offset, bufs } => {
            let data = match bufs.as_slice() {
                [single] => single.clone(),
                many => many.concat().into(),
            };
            Some(Event::Write { offset: *offset, data, fua })
        }
        Request::Discard { offset, len } => {
            Some(Event::Discard { offset: *offset, len: *len, fua })
        }
        Request::WriteZeroes { offset, len } => {
            Some(Event::WriteZeroes { offset: *offset, len: *len, fua })
        }
    }
}

impl BlockDevice for Record {
    fn geometry(&self) -> Geometry {
        self.inner.geometry()
    }

    fn submit(&self, batch: Batch) -> Completion {
        // Done as a flush of its own: only then is it known to have completed before the changes
        // started.
        if batch.durability.preflush
            && let Err(error) = self.recorded_flush()
        {
            return Completion::ready(Err(error));
        }
        let durability = Durability { preflush: false, ..batch.durability };
        let events: Vec<Event> =
            batch.requests.iter().filter_map(|one| event_of(one, durability.fua)).collect();
        let indices: Vec<usize> = {
            let mut log = self.log.lock();
            events.into_iter().map(|event| log.submit(event)).collect()
        };
        let log = self.log.clone();
        self.inner.submit(Batch { requests: batch.requests, durability }).map(move |outcome| {
            if outcome.is_ok() {
                let mut log = log.lock();
                indices.into_iter().for_each(|index| log.complete(index));
            }
            outcome
        })
    }

    fn flush(&self) -> Result<()> {
        self.recorded_flush()
    }

    fn as_growable(&self) -> Option<&dyn Growable> {
        self.inner.as_growable()
    }
}

#[cfg(test)]
mod tests;
