//! [`Paced`]: a fast device with the timing of a solid-state disk.
//!
//! One queue is served in order. A transfer has a fixed cost and a cost by length; a flush has a
//! fixed cost. Background work therefore delays later transfers, as on a real device. The
//! submitting thread sleeps until its batch is served. The lock guards only the clock and is not
//! held meanwhile.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use cairn_base::ranked_lock::{Mutex, Rank};
use cairn_block::{Batch, BlockDevice, Completion, Geometry, Request};

/// The cost of operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pace {
    /// Cost of each transfer.
    pub(crate) request: Duration,
    /// Bytes a second.
    pub(crate) bandwidth: u64,
    /// Cost of a flush, a preflush, or forced unit access.
    pub(crate) flush: Duration,
}

impl Pace {
    /// A solid-state disk: 100,000 transfers a second, 1 GiB/s, 0.2 ms to flush.
    pub(crate) const SSD: Self = Self {
        request: Duration::from_micros(10),
        bandwidth: 1 << 30,
        flush: Duration::from_micros(200),
    };

    /// Cost of the flushes of a batch.
    pub(crate) fn flushes(self, batch: &Batch) -> Duration {
        let changes = batch.requests.iter().any(|request| !matches!(request, Request::Read { .. }));
        self.flush
            * (u32::from(batch.durability.preflush) + u32::from(batch.durability.fua && changes))
    }

    /// Cost of a batch.
    pub(crate) fn of(self, batch: &Batch) -> Duration {
        let bytes: u64 = batch.requests.iter().map(length).sum();
        let transfers = u32::try_from(batch.requests.len()).unwrap_or(u32::MAX);
        let moving = Duration::from_nanos(bytes.saturating_mul(1_000_000_000) / self.bandwidth);
        self.request * transfers + moving + self.flushes(batch)
    }
}

fn length(request: &Request) -> u64 {
    match request {
        Request::Read { buf, .. } => buf.len() as u64,
        Request::Write { bufs, .. } => bufs.iter().map(|buf| buf.len() as u64).sum(),
        Request::Discard { .. } | Request::WriteZeroes { .. } => 0,
    }
}

/// A device that delays its requests.
pub(crate) struct Paced {
    inner: Arc<dyn BlockDevice>,
    pace: Pace,
    /// Time at which everything submitted so far is served.
    busy_until: Mutex<Instant>,
    is_over: AtomicBool,
}

impl Paced {
    pub(crate) fn new(inner: Arc<dyn BlockDevice>, pace: Pace) -> Self {
        Self {
            inner,
            pace,
            busy_until: Mutex::new(Rank::Leaf, Instant::now()),
            is_over: AtomicBool::new(false),
        }
    }

    /// Stops the delays, for work that is not measured.
    pub(crate) fn stop_pacing(&self) {
        self.is_over.store(true, Relaxed);
    }

    fn serve(&self, time: Duration) {
        if self.is_over.load(Relaxed) {
            return;
        }
        let served = {
            let mut busy_until = self.busy_until.lock();
            *busy_until = (*busy_until).max(Instant::now()) + time;
            *busy_until
        };
        std::thread::sleep(served.saturating_duration_since(Instant::now()));
    }
}

impl BlockDevice for Paced {
    fn geometry(&self) -> Geometry {
        self.inner.geometry()
    }

    fn submit(&self, batch: Batch) -> Completion {
        self.serve(self.pace.of(&batch));
        self.inner.submit(batch)
    }

    fn flush(&self) -> cairn_block::Result<()> {
        self.serve(self.pace.flush);
        self.inner.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cairn_block::memory::MemoryDevice;
    use cairn_block::{Bytes, Durability};

    #[test]
    fn transfers_bytes_and_flushes_are_paid_for() {
        let pace = Pace {
            request: Duration::from_micros(10),
            bandwidth: 1 << 20,
            flush: Duration::from_millis(1),
        };
        let write = |len| Request::Write { offset: 0, bufs: vec![Bytes::from(vec![0; len])] };
        let of = |requests, preflush, fua| {
            pace.of(&Batch { requests, durability: Durability { preflush, fua } })
        };
        assert_eq!(of(vec![write(0), write(0)], false, false), Duration::from_micros(20));
        assert_eq!(of(vec![write(1 << 20)], true, true), Duration::from_micros(1_002_010));
        assert_eq!(of(vec![], false, true), Duration::ZERO);
    }

    #[test]
    fn batches_queue_up() {
        let memory = Arc::new(MemoryDevice::new(1 << 20));
        let device = Paced::new(memory, Pace { flush: Duration::from_millis(5), ..Pace::SSD });
        let start = Instant::now();
        std::thread::scope(|scope| {
            (0..4).for_each(|_| drop(scope.spawn(|| device.flush().unwrap())))
        });
        assert!(start.elapsed() >= Duration::from_millis(20));
    }
}
