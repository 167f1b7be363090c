//! [`Event`]: tells all waiters to check their condition again.

#![allow(
    clippy::disallowed_methods,
    reason = "the production runtime waits with the system's clock"
)]

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

/// A notification counter. A waiter reads [`Event::generation`], checks its condition, and waits
/// until the generation is past that: it does not miss a notification in between. Notifying costs
/// two atomic operations when no thread waits.
#[derive(Debug, Default)]
pub struct Event {
    generation: AtomicU64,
    /// Threads inside [`Event::wait_past`]. Raised before they read `generation`, and read after a
    /// notifier raised `generation`: one of the two always sees the other (both are sequentially
    /// consistent).
    waiters: AtomicUsize,
    lock: Mutex<()>,
    changed: Condvar,
}

impl Event {
    /// Never notified.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            generation: AtomicU64::new(0),
            waiters: AtomicUsize::new(0),
            lock: Mutex::new(()),
            changed: Condvar::new(),
        }
    }

    /// Makes every waiter check again. Change the state that they check before this call.
    pub fn notify(&self) {
        self.generation.fetch_add(1, SeqCst);
        if self.waiters.load(SeqCst) > 0 {
            // With the lock free, a waiter is either asleep or has not yet read the generation.
            drop(self.lock.lock());
            self.changed.notify_all();
        }
    }

    /// Notifications so far.
    #[must_use]
    pub fn generation(&self) -> u64 {
        self.generation.load(SeqCst)
    }

    /// Blocks the thread until there was a notification after `seen`, or `timeout` has passed. True
    /// if notified.
    ///
    /// For runtimes only. Other code waits through [`super::Runtime::wait_until`].
    pub fn wait_past(&self, seen: u64, timeout: Option<Duration>) -> bool {
        let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        let mut lock = self.lock.lock();
        self.waiters.fetch_add(1, SeqCst);
        let mut in_time = true;
        while in_time && self.generation() == seen {
            match deadline {
                Some(deadline) => {
                    in_time = !self.changed.wait_until(&mut lock, deadline).timed_out()
                }
                None => self.changed.wait(&mut lock),
            }
        }
        self.waiters.fetch_sub(1, SeqCst);
        self.generation() != seen
    }
}
