//! Inodes whose record or size in memory differs from the inode table: what sync has to write,
//! besides the files with dirty data. So its cost does not grow with the number of inodes in
//! memory.
//!
//! [`Inode::is_written`](super::Inode::is_written) is false for an inode in the list, but for one
//! that was deleted.
//!
//! Locking: the list has rank Leaf. Its caller holds the inode's state, but for
//! [`Unwritten::list`].

use std::collections::BTreeSet;

use cairn_base::Ino;
use cairn_base::ranked_lock::{Mutex, Rank};

/// The list.
pub(crate) struct Unwritten(Mutex<BTreeSet<Ino>>);

impl Default for Unwritten {
    fn default() -> Self {
        Self(Mutex::new(Rank::Leaf, BTreeSet::new()))
    }
}

impl Unwritten {
    /// Adds an inode that has changed in memory.
    pub(crate) fn insert(&self, ino: Ino) {
        self.0.lock().insert(ino);
    }

    /// Removes an inode that is in the inode table as it is in memory, or is gone.
    pub(crate) fn remove(&self, ino: Ino) {
        self.0.lock().remove(&ino);
    }

    /// All of them.
    pub(crate) fn list(&self) -> Vec<Ino> {
        self.0.lock().iter().copied().collect()
    }
}
