//! [`Budget`]: memory for the data of requests, shared by all connections.
//!
//! Locking: a leaf.

use std::sync::Arc;
use std::time::Duration;

use cairn_base::ranked_lock::{Condvar, Mutex, Rank};

use crate::clock::Deadline;

/// Bytes that are left.
#[derive(Debug)]
pub(super) struct Budget {
    left: Mutex<u64>,
    freed: Condvar,
}

/// Bytes that a request holds.
#[derive(Debug)]
pub(super) struct Held {
    budget: Arc<Budget>,
    bytes: u64,
}

impl Budget {
    pub(super) fn new(bytes: u64) -> Arc<Self> {
        Arc::new(Self { left: Mutex::new(Rank::Leaf, bytes), freed: Condvar::new() })
    }

    /// Takes bytes. None if they were not there in time.
    pub(super) fn take(self: &Arc<Self>, bytes: u64, time: Duration) -> Option<Held> {
        let mut left = self.left.lock();
        if *left < bytes {
            let deadline = Deadline::after(time);
            while *left < bytes {
                if deadline.is_over() {
                    return None;
                }
                self.freed.wait_for(&mut left, deadline.left());
            }
        }
        *left -= bytes;
        Some(Held { budget: self.clone(), bytes })
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        *self.budget.left.lock() += self.bytes;
        self.budget.freed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_asks_for_too_much_waits_for_others() {
        let budget = Budget::new(10);
        let held = budget.take(8, Duration::ZERO).unwrap();
        assert!(budget.take(3, Duration::from_millis(1)).is_none());
        let waiter = {
            let budget = budget.clone();
            std::thread::spawn(move || budget.take(10, Duration::from_secs(60)).is_some())
        };
        drop(held);
        assert!(waiter.join().unwrap());
    }
}
