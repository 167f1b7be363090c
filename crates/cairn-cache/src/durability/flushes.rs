//! [`Flushes`]: a device whose flushes are numbered, and shared by the callers that wait for one.
//!
//! Invariants: `succeeded` never falls. A flush that failed is never counted, and its waiters get
//! its error.
//!
//! Locking: rank Leaf, not held while the device works.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use cairn_base::ranked_lock::{Condvar, Mutex, MutexGuard, Rank};
use cairn_base::runtime::Runtime;
use cairn_base::sabotage::Safeguard;
use cairn_block::zoned::ZonedDevice;
use cairn_block::{Batch, BlockDevice, Completion, Error, Geometry, Result};

use super::gather::Gather;

/// A point in time: the number of the last flush that had begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[must_use = "writes before the mark are durable only when a flush covers it"]
pub struct Mark(pub(super) u64);

/// Which flush brought data to the medium.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlushOrigin {
    /// An earlier flush: there was nothing to wait for.
    Already,
    /// A flush that another caller had requested.
    Shared,
    /// A flush for this caller.
    Flushed,
}

/// A device whose flushes are numbered.
pub struct Flushes {
    inner: Arc<dyn BlockDevice>,
    runtime: Arc<dyn Runtime>,
    numbers: Arc<Numbers>,
    shared: Mutex<Shared>,
    ended: Condvar,
    /// For the caller that waits for more of them.
    joined: Condvar,
}

#[derive(Default)]
struct Numbers {
    begun: AtomicU64,
    /// The greatest number of a flush that succeeded.
    succeeded: AtomicU64,
}

impl Numbers {
    fn begin(&self) -> u64 {
        self.begun.fetch_add(1, Ordering::SeqCst) + 1
    }

    fn end(&self, number: u64, succeeded: bool) {
        if succeeded {
            self.succeeded.fetch_max(number, Ordering::SeqCst);
        }
    }
}

/// The flushes for the callers of [`Flushes::cover`].
#[derive(Default)]
struct Shared {
    running: Option<u64>,
    /// The last that failed.
    failed: Option<(u64, Error)>,
    /// Callers that wait for the next one.
    waiting: usize,
    /// How many have begun.
    rounds: u64,
    /// One of the callers waits until there are so many of them, and begins the next one then.
    gathering: Option<usize>,
    gather: Gather,
}

impl Flushes {
    /// Wraps the device of a volume. All requests of the volume must pass through it. The runtime
    /// tells how long flushes take.
    #[must_use]
    pub fn new(inner: Arc<dyn BlockDevice>, runtime: Arc<dyn Runtime>) -> Arc<Self> {
        let shared = Mutex::new(Rank::Leaf, Shared::default());
        let (ended, joined) = (Condvar::new(), Condvar::new());
        Arc::new(Self { inner, runtime, numbers: Arc::default(), shared, ended, joined })
    }

    /// The mark for all writes that have completed.
    pub fn mark(&self) -> Mark {
        Mark(self.numbers.begun.load(Ordering::SeqCst))
    }

    /// True if a flush succeeded that began after the mark was taken.
    pub(crate) fn is_covered(&self, mark: Mark) -> bool {
        self.numbers.succeeded.load(Ordering::SeqCst) > mark.0
    }

    /// Returns when a flush has succeeded that began after the mark was taken. Waiting callers
    /// share one flush.
    ///
    /// # Errors
    /// The error of the flush that this caller requested or shared.
    pub fn cover(&self, mark: Mark) -> Result<FlushOrigin> {
        let mut shared = self.shared.lock();
        // The round this caller waits for, and whether it waits for a flush that covers it.
        let (mut joined, mut shares) = (None, false);
        loop {
            if self.is_covered(mark) || Safeguard::DataFlush.is_off() {
                if joined == Some(shared.rounds) {
                    shared.waiting -= 1;
                }
                let waited = shares || joined.is_some();
                return Ok(if waited { FlushOrigin::Shared } else { FlushOrigin::Already });
            }
            if shared.running.is_some_and(|running| running > mark.0) {
                shares = true;
            } else if shares || joined.is_some_and(|round| round != shared.rounds) {
                // The flush for this caller has ended without success.
                if let Some((number, error)) = &shared.failed
                    && *number > mark.0
                {
                    return Err(error.clone());
                }
                (joined, shares) = (None, false);
                continue;
            } else {
                if joined.is_none() {
                    joined = Some(shared.rounds);
                    shared.waiting += 1;
                    if shared.gathering.is_some_and(|most| shared.waiting >= most) {
                        self.joined.notify_one();
                    }
                }
                if shared.running.is_none() && shared.gathering.is_none() {
                    return self.lead(shared);
                }
            }
            self.ended.wait(&mut shared);
        }
    }

    /// Flushes for all callers that wait for the next flush, perhaps after a wait for more.
    fn lead(&self, mut shared: MutexGuard<Shared>) -> Result<FlushOrigin> {
        let before = shared.waiting;
        if let Some((patience, expected)) = shared.gather.patience(before) {
            shared.gathering = Some(expected);
            // Woken early for another reason, it begins early.
            self.joined.wait_for(&mut shared, patience);
            shared.gathering = None;
            let waiting = shared.waiting;
            shared.gather.waited(before, waiting);
        }
        let number = self.numbers.begin();
        shared.running = Some(number);
        shared.rounds += 1;
        let served = std::mem::take(&mut shared.waiting);
        drop(shared);
        let start = self.runtime.monotonic();
        let outcome = self.inner.flush();
        let lasted = self.runtime.monotonic().saturating_sub(start);
        self.numbers.end(number, outcome.is_ok());
        let mut shared = self.shared.lock();
        shared.running = None;
        if let Err(error) = &outcome {
            shared.failed = Some((number, error.clone()));
        }
        let waiting = shared.waiting;
        shared.gather.ended(served, waiting, lasted);
        drop(shared);
        self.ended.notify_all();
        outcome.map(|()| FlushOrigin::Flushed)
    }
}

impl BlockDevice for Flushes {
    fn geometry(&self) -> Geometry {
        self.inner.geometry()
    }

    fn submit(&self, batch: Batch) -> Completion {
        if !batch.durability.preflush {
            return self.inner.submit(batch);
        }
        let number = self.numbers.begin();
        let numbers = self.numbers.clone();
        self.inner.submit(batch).map(move |outcome| {
            numbers.end(number, outcome.is_ok());
            outcome
        })
    }

    fn flush(&self) -> Result<()> {
        let number = self.numbers.begin();
        let outcome = self.inner.flush();
        self.numbers.end(number, outcome.is_ok());
        outcome
    }

    fn as_zoned(&self) -> Option<&dyn ZonedDevice> {
        self.inner.as_zoned()
    }
}
