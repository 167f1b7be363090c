//! [`Lacking`]: how many blocks an inode counts (`i_blocks`) beside those that were found. An empty
//! pointer of an inode that lacks none is a hole.
//!
//! Memory: at most [`MOST`] inodes. The others seem to lack nothing.
//!
//! Locking: one lock, a leaf.

use std::collections::BTreeMap;

use cairn_base::ranked_lock::{Mutex, Rank};

use crate::format::units::Nid;

/// Most inodes that are kept.
const MOST: usize = 1 << 16;

pub(super) struct Lacking(Mutex<BTreeMap<Nid, u64>>);

impl Default for Lacking {
    fn default() -> Self {
        Self(Mutex::new(Rank::Leaf, BTreeMap::new()))
    }
}

impl Lacking {
    /// Notes what an inode counts, and what was found of it.
    pub(super) fn note(&self, ino: Nid, (counted, found): (u64, u64)) {
        let mut kept = self.0.lock();
        if counted > found && kept.len() < MOST {
            kept.insert(ino, counted.saturating_sub(found));
        }
    }

    /// How many blocks an inode lacks.
    pub(super) fn of(&self, ino: Nid) -> u64 {
        self.0.lock().get(&ino).copied().unwrap_or_default()
    }
}
