//! [`DoubtedLists`]: inodes whose attribute block may be the wrong one, by one bit.
//!
//! Locking: a leaf lock of the lists.

use std::collections::BTreeSet;

use cairn_base::Ino;
use cairn_base::ranked_lock::{Mutex, Rank};

/// Inodes that are looked at, at most.
const MOST: usize = 256;

/// An inode that may have another attribute block than the stored one.
#[derive(Clone, Copy, Debug)]
pub(super) struct DoubtedList {
    pub(super) ino: Ino,
    /// The block, as it is stored; 0 is none.
    pub(super) stored: u64,
    /// What is one bit away.
    pub(super) right: u64,
    /// Everything else fits with that, and with nothing else.
    pub(super) is_proved: bool,
}

/// What is known of such inodes.
pub(super) struct DoubtedLists {
    /// Inodes whose attribute block is none, or which do not count it.
    suspects: Mutex<BTreeSet<u64>>,
    found: Mutex<Vec<DoubtedList>>,
}

impl Default for DoubtedLists {
    fn default() -> Self {
        Self {
            suspects: Mutex::new(Rank::Leaf, BTreeSet::new()),
            found: Mutex::new(Rank::Leaf, Vec::new()),
        }
    }
}

impl DoubtedLists {
    /// Notes an inode whose attribute block is none, or which does not count it.
    pub(super) fn note(&self, ino: Ino) {
        let mut suspects = self.suspects.lock();
        if suspects.len() < MOST {
            suspects.insert(ino.get());
        }
    }

    /// The inodes that were noted.
    pub(super) fn suspects(&self) -> Vec<Ino> {
        self.suspects.lock().iter().copied().map(Ino).collect()
    }

    /// Keeps what was found.
    pub(super) fn keep(&self, found: Vec<DoubtedList>) {
        *self.found.lock() = found;
    }

    /// What was found.
    pub(super) fn found(&self) -> Vec<DoubtedList> {
        self.found.lock().clone()
    }
}
