//! [`Lanes`]: a fast device with the timing of a phone's storage, divided strictly among classes of
//! threads.
//!
//! Each class has a lane. A lane serves its transfers in order, at its share of the device even if
//! the other lanes are idle, as BFQ does with `strict_guarantees`. A flush takes the same time for
//! all classes. The class is that of the submitting thread ([`in_class`]); threads without a class,
//! such as daemons, use the first lane.

use std::cell::Cell;
use std::sync::Arc;
use std::time::{Duration, Instant};

use cairn_base::ranked_lock::{Mutex, Rank};
use cairn_block::{Batch, BlockDevice, Completion, Geometry};

use crate::paced::Pace;

thread_local! {
    static CLASS: Cell<usize> = const { Cell::new(0) };
}

/// Runs `work` with its transfers in this class.
pub(crate) fn in_class<T>(class: usize, work: impl FnOnce() -> T) -> T {
    let before = CLASS.replace(class);
    let result = work();
    CLASS.set(before);
    result
}

struct Lane {
    share: f64,
    /// Time at which everything submitted so far is served.
    busy_until: Mutex<Instant>,
}

/// A device with a lane for each class.
pub(crate) struct Lanes {
    inner: Arc<dyn BlockDevice>,
    pace: Pace,
    lanes: Vec<Lane>,
}

impl Lanes {
    /// Creates the device. `weights` are the relative shares of the classes.
    pub(crate) fn new(inner: Arc<dyn BlockDevice>, pace: Pace, weights: &[u32]) -> Self {
        let all: u32 = weights.iter().sum();
        let lane = |weight: &u32| Lane {
            share: f64::from(*weight) / f64::from(all),
            busy_until: Mutex::new(Rank::Leaf, Instant::now()),
        };
        Self { inner, pace, lanes: weights.iter().map(lane).collect() }
    }

    /// Sleeps until the lane has served its earlier transfers, these ones and the flush.
    fn serve(&self, class: usize, moving: Duration, flush: Duration) {
        let lane = &self.lanes[class.min(self.lanes.len() - 1)];
        let served = {
            let mut busy_until = lane.busy_until.lock();
            *busy_until = (*busy_until).max(Instant::now()) + moving.div_f64(lane.share);
            *busy_until + flush
        };
        std::thread::sleep(served.saturating_duration_since(Instant::now()));
    }
}

impl BlockDevice for Lanes {
    fn geometry(&self) -> Geometry {
        self.inner.geometry()
    }

    fn submit(&self, batch: Batch) -> Completion {
        let flush = self.pace.flushes(&batch);
        self.serve(CLASS.get(), self.pace.of(&batch).saturating_sub(flush), flush);
        self.inner.submit(batch)
    }

    fn flush(&self) -> cairn_block::Result<()> {
        self.serve(CLASS.get(), Duration::ZERO, self.pace.flush);
        self.inner.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cairn_block::memory::MemoryDevice;
    use cairn_block::{BlockDeviceExt, Durability};

    #[test]
    fn a_class_has_its_share_and_no_more() {
        let memory = Arc::new(MemoryDevice::new(1 << 20));
        let pace = Pace {
            request: Duration::from_millis(2),
            bandwidth: u64::MAX,
            flush: Duration::from_millis(1),
        };
        let device = Lanes::new(memory, pace, &[3, 1]);
        let time = |class: usize| {
            let start = Instant::now();
            in_class(class, || {
                device.write_at(0, vec![0; 512]).unwrap();
                device
                    .write_durable(0, vec![0; 512], Durability { preflush: false, fua: true })
                    .unwrap();
            });
            start.elapsed()
        };
        assert!(time(1) >= Duration::from_millis(17));
        assert!(time(0) >= Duration::from_micros(6300));
        assert_eq!(in_class(1, || in_class(0, || 5)), 5);
    }
}
