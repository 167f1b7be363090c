//! [`Flushes`]: a device whose flushes are numbered, and shared by the callers that wait for one.
//!
//! Invariants: `succeeded` never falls. A flush that failed is never counted, and its waiters get
//! its error.
//!
//! Locking: rank Leaf, not held while the device works.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use cairn_base::ranked_lock::{Condvar, Mutex, Rank};
use cairn_base::sabotage::Safeguard;
use cairn_block::zoned::ZonedDevice;
use cairn_block::{Batch, BlockDevice, Completion, Error, Geometry, Result};

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
    numbers: Arc<Numbers>,
    shared: Mutex<Shared>,
    ended: Condvar,
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

/// The flush that runs for the callers of [`Flushes::cover`], and the last of these flushes that
/// failed.
#[derive(Default)]
struct Shared {
    running: Option<u64>,
    failed: Option<(u64, Error)>,
}

impl Flushes {
    /// Wraps the device of a volume. All requests of the volume must pass through it.
    #[must_use]
    pub fn new(inner: Arc<dyn BlockDevice>) -> Arc<Self> {
        let shared = Mutex::new(Rank::Leaf, Shared::default());
        Arc::new(Self { inner, numbers: Arc::default(), shared, ended: Condvar::new() })
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
        let mut waited = false;
        let number = {
            let mut shared = self.shared.lock();
            loop {
                if self.is_covered(mark) || Safeguard::DataFlush.is_off() {
                    return Ok(if waited { FlushOrigin::Shared } else { FlushOrigin::Already });
                }
                let Some(running) = shared.running else { break };
                waited = true;
                while shared.running == Some(running) {
                    self.ended.wait(&mut shared);
                }
                if running > mark.0
                    && let Some((_, error)) =
                        shared.failed.as_ref().filter(|(number, _)| *number == running)
                {
                    return Err(error.clone());
                }
            }
            let number = self.numbers.begin();
            shared.running = Some(number);
            number
        };
        let outcome = self.inner.flush();
        self.numbers.end(number, outcome.is_ok());
        let mut shared = self.shared.lock();
        shared.running = None;
        if let Err(error) = &outcome {
            shared.failed = Some((number, error.clone()));
        }
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
