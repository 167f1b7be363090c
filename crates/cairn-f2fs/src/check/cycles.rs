//! [`Cycles`]: the data pointers that were exchanged in a circle, as far as they were followed.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use cairn_base::ranked_lock::{Mutex, Rank};

use crate::format::Summary;

/// The longest circle that is followed: all pointers of a node.
pub(super) const LONGEST: usize = 1024;
/// Most steps of a check. Circles that are closed cost a step for each pointer; a damaged volume
/// can have ways that end nowhere.
const MOST_STEPS: u64 = 1 << 18;

/// A pointer: the number of its node, and its place there.
type Pointer = (u32, u16);

pub(super) struct Cycles {
    closed: Mutex<BTreeSet<Pointer>>,
    steps: AtomicU64,
}

impl Default for Cycles {
    fn default() -> Self {
        Self { closed: Mutex::new(Rank::Leaf, BTreeSet::new()), steps: AtomicU64::new(0) }
    }
}

impl Cycles {
    /// True if a pointer is part of a circle that was followed to its end.
    pub(super) fn has(&self, pointer: Summary) -> bool {
        self.closed.lock().contains(&key(pointer))
    }

    /// Remembers the pointers of a circle.
    pub(super) fn close(&self, pointers: &[Summary]) {
        self.closed.lock().extend(pointers.iter().copied().map(key));
    }

    /// Takes a step, if there is one left.
    pub(super) fn step(&self) -> bool {
        self.steps.fetch_add(1, Relaxed) < MOST_STEPS
    }
}

fn key(pointer: Summary) -> Pointer {
    (pointer.nid.get(), pointer.ofs_in_node)
}
