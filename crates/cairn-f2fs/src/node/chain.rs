//! The order of node writes: which batches are in flight, and whether one has failed.
//!
//! Locking: `order` before the nodes' images; `in_flight` is a leaf.

use std::collections::BTreeSet;

use cairn_base::ranked_lock::{Condvar, Mutex, Rank};

use crate::error::{Error, Result};

/// Batches of nodes that are being written.
pub(super) struct Chain {
    /// Held while a batch takes its addresses. The value is the next number.
    pub(super) order: Mutex<u64>,
    pub(super) in_flight: Mutex<InFlight>,
    done: Condvar,
}

#[derive(Default)]
pub(super) struct InFlight {
    pub(super) batches: BTreeSet<u64>,
    broken: bool,
}

impl Chain {
    pub(super) fn new(rank: Rank) -> Self {
        let in_flight = Mutex::new(Rank::Leaf, InFlight::default());
        Self { order: Mutex::new(rank, 0), in_flight, done: Condvar::new() }
    }

    /// Ends a batch. With `in_order` waits for the earlier ones; true if it had to wait.
    pub(super) fn finish(&self, number: u64, good: bool, in_order: bool) -> Result<bool> {
        let mut in_flight = self.in_flight.lock();
        in_flight.batches.remove(&number);
        in_flight.broken |= !good;
        self.done.notify_all();
        let mut waited = false;
        while in_order && in_flight.batches.first().is_some_and(|first| *first < number) {
            waited = true;
            self.done.wait(&mut in_flight);
        }
        if in_flight.broken {
            return Err(Error::Stopped("an earlier write of node blocks failed".into()));
        }
        Ok(waited)
    }
}
