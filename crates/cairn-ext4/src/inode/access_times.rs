//! Access times that have changed in memory only.
//!
//! A read must not write, so the access time waits in memory until the inode is written for another
//! reason. A dirty inode cannot be evicted. So inodes that are dirty only because of their access
//! time are listed, and written when there are many.
//!
//! Locking: the list has rank Leaf. A caller with write access to the volume and without other
//! locks writes the inodes.

use cairn_base::Ino;
use cairn_base::ranked_lock::{Mutex, Rank};

/// Most inodes that wait.
const MOST: usize = 1024;

/// Inodes whose access time is not written yet.
pub(crate) struct Waiting(Mutex<Vec<Ino>>);

impl Default for Waiting {
    fn default() -> Self {
        Self(Mutex::new(Rank::Leaf, Vec::new()))
    }
}

impl Waiting {
    /// Records an inode that became dirty by a read.
    pub(crate) fn note(&self, ino: Ino) {
        self.0.lock().push(ino);
    }

    /// Takes the list if it is full; the caller then writes the inodes.
    pub(super) fn take_if_full(&self) -> Option<Vec<Ino>> {
        let mut waiting = self.0.lock();
        (waiting.len() >= MOST).then(|| std::mem::take(&mut *waiting))
    }

    /// True if [`super::writeback::write_access_times`] is due.
    pub(crate) fn is_full(&self) -> bool {
        self.0.lock().len() >= MOST
    }
}
