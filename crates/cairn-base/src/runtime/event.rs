//! [`Event`]: tells all waiters to check their condition again.

#![allow(
    clippy::disallowed_methods,
    reason = "the production runtime waits with the system's clock"
)]

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::task::Waker;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

/// A notification counter. A waiter reads [`Event::generation`], checks its condition, and waits
/// until the generation is past that: it does not miss a notification in between. Notifying costs
/// two atomic operations when no thread waits.
#[derive(Debug, Default)]
pub struct Event {
    generation: AtomicU64,
    /// Threads inside [`Event::wait_past`], and wakers. Raised before they read `generation`, and
    /// read after a notifier raised `generation`: one of the two always sees the other (both are
    /// sequentially consistent).
    waiters: AtomicUsize,
    lock: Mutex<Vec<Waker>>,
    changed: Condvar,
}

impl Event {
    /// Never notified.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            generation: AtomicU64::new(0),
            waiters: AtomicUsize::new(0),
            lock: Mutex::new(Vec::new()),
            changed: Condvar::new(),
        }
    }

    /// Makes every waiter check again. Change the state that they check before this call.
    pub fn notify(&self) {
        self.generation.fetch_add(1, SeqCst);
        if self.waiters.load(SeqCst) > 0 {
            // With the lock free, a waiter is either asleep or has not yet read the generation.
            let wakers = std::mem::take(&mut *self.lock.lock());
            self.waiters.fetch_sub(wakers.len(), SeqCst);
            self.changed.notify_all();
            wakers.into_iter().for_each(Waker::wake);
        }
    }

    /// Wakes `waker` with the next notification after `seen`. False if there was one already.
    ///
    /// For runtimes whose threads wait for a clock of their own, too.
    pub fn wake_past(&self, seen: u64, waker: &Waker) -> bool {
        let mut wakers = self.lock.lock();
        self.waiters.fetch_add(1, SeqCst);
        let in_time = self.generation() == seen;
        if in_time {
            wakers.push(waker.clone());
        } else {
            self.waiters.fetch_sub(1, SeqCst);
        }
        in_time
    }

    /// Takes back [`Event::wake_past`], if no notification has.
    pub fn forget(&self, waker: &Waker) {
        let mut wakers = self.lock.lock();
        if let Some(at) = wakers.iter().position(|known| known.will_wake(waker)) {
            wakers.swap_remove(at);
            self.waiters.fetch_sub(1, SeqCst);
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::task::Wake;

    #[derive(Default)]
    struct Woken(AtomicU64);

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, SeqCst);
        }
    }

    #[test]
    fn a_waker_is_woken_once_and_only_if_it_was_in_time() {
        let (event, woken) = (Event::new(), Arc::new(Woken::default()));
        let waker = Waker::from(woken.clone());
        assert!(event.wake_past(event.generation(), &waker));
        event.notify();
        event.notify();
        assert_eq!(woken.0.load(SeqCst), 1);
        assert!(!event.wake_past(0, &waker), "it was notified since");
        assert!(event.wake_past(event.generation(), &waker));
        event.forget(&waker);
        event.forget(&waker);
        event.notify();
        assert_eq!(woken.0.load(SeqCst), 1);
        assert_eq!(event.waiters.load(SeqCst), 0);
    }
}
