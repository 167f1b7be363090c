//! Inodes whose record or size in memory differs from the inode table: what sync has to write,
//! besides the files with dirty data. So its cost does not grow with the number of inodes in
//! memory.
//!
//! [`Inode::is_written`](super::Inode::is_written) is false for an inode in the list, but for one
//! that was deleted. [`State::listed`] says without the list's lock whether an inode is in it.
//!
//! Locking: the list has rank Leaf. Its caller holds the inode's state, but for
//! [`Unwritten::list`].

use std::collections::BTreeSet;

use cairn_base::Ino;
use cairn_base::ranked_lock::{Mutex, Rank};

use super::State;

/// The list.
pub(crate) struct Unwritten(Mutex<BTreeSet<Ino>>);

impl Default for Unwritten {
    fn default() -> Self {
        Self(Mutex::new(Rank::Leaf, BTreeSet::new()))
    }
}

impl Unwritten {
    /// Adds an inode to the list, or removes it.
    pub(crate) fn set(&self, ino: Ino, state: &mut State, is_unwritten: bool) {
        if std::mem::replace(&mut state.listed, is_unwritten) == is_unwritten {
            return;
        }
        let mut list = self.0.lock();
        if is_unwritten {
            list.insert(ino);
        } else {
            list.remove(&ino);
        }
    }

    /// All of them.
    pub(crate) fn list(&self) -> Vec<Ino> {
        self.0.lock().iter().copied().collect()
    }
}
