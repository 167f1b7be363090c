//! A device that observes checkpoint writes and can hold them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};

use cairn_block::{Batch, BlockDevice, Completion, Geometry, Request};

use crate::fixture::{BLOCK, HOME};

/// A test that holds writes for longer than this fails instead of hanging.
const GIVE_UP: Duration = Duration::from_secs(30);

/// Observes how many checkpoint writes run at a time, and their order. Holds them while `hold` is
/// set.
pub struct Watch {
    inner: Arc<dyn BlockDevice>,
    at_once: AtomicU64,
    /// Two writes ran at once.
    pub overlapped: AtomicBool,
    pub hold: AtomicBool,
    gave_up: AtomicBool,
    /// Writes that were held.
    pub held: AtomicU64,
    pub offsets: std::sync::Mutex<Vec<u64>>,
}

impl Watch {
    pub fn new(inner: Arc<dyn BlockDevice>) -> Arc<Self> {
        Arc::new(Self {
            inner,
            at_once: AtomicU64::new(0),
            overlapped: AtomicBool::new(false),
            hold: AtomicBool::new(false),
            gave_up: AtomicBool::new(false),
            held: AtomicU64::new(0),
            offsets: std::sync::Mutex::default(),
        })
    }

    /// Releases the writes. Fails if one of them was released by its time limit.
    pub fn release(&self) {
        self.hold.store(false, SeqCst);
        assert!(!self.gave_up.load(SeqCst), "the test waited for a checkpoint write that was held");
    }

    /// Waits until the condition holds.
    pub fn wait_for(what: impl Fn() -> bool) {
        while !what() {
            std::thread::yield_now();
        }
    }
}

impl BlockDevice for Watch {
    fn geometry(&self) -> Geometry {
        self.inner.geometry()
    }

    fn submit(&self, batch: Batch) -> Completion {
        let mut home: Vec<u64> = Vec::new();
        for request in &batch.requests {
            if let Request::Write { offset, .. } = request
                && *offset >= HOME * u64::from(BLOCK)
            {
                home.push(*offset);
            }
        }
        if home.is_empty() {
            return self.inner.submit(batch);
        }
        self.overlapped.fetch_or(self.at_once.fetch_add(1, SeqCst) > 0, SeqCst);
        self.offsets.lock().expect("no panic").extend(home);
        if self.hold.load(SeqCst) {
            self.held.fetch_add(1, SeqCst);
            let started = Instant::now();
            Self::wait_for(|| !self.hold.load(SeqCst) || started.elapsed() > GIVE_UP);
            self.gave_up.fetch_or(self.hold.load(SeqCst), SeqCst);
        }
        let done = self.inner.submit(batch).wait();
        self.at_once.fetch_sub(1, SeqCst);
        Completion::ready(done)
    }

    fn flush(&self) -> cairn_block::Result<()> {
        self.inner.flush()
    }
}
