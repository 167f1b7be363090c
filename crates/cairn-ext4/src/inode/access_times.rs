//! Access times that have changed in memory only.
//!
//! Reading must not write, so the time of the last access waits in the inode until something else stores it. An inode that is dirty
//! cannot leave memory; so those that are dirty for this alone are listed, and stored when there are many.
//!
//! Locking: the list is a leaf. Stored is with no lock held, by whoever has write access to the volume.

use cairn_base::Ino;
use cairn_base::ranked_lock::{Mutex, Rank};

/// So many may wait.
const MOST: usize = 1024;

/// Inodes whose access time waits.
pub struct Waiting(Mutex<Vec<Ino>>);

impl Default for Waiting {
    fn default() -> Self {
        Self(Mutex::new(Rank::LEAF, Vec::new()))
    }
}

impl Waiting {
    /// An inode became dirty by being read.
    pub fn note(&self, ino: Ino) {
        self.0.lock().push(ino);
    }

    /// Are there so many that they are to be stored? Then whoever asks does it.
    pub(super) fn take_many(&self) -> Option<Vec<Ino>> {
        let mut waiting = self.0.lock();
        (waiting.len() >= MOST).then(|| std::mem::take(&mut *waiting))
    }

    /// Is it time for [`super::writeback::write_access_times`]?
    pub fn are_many(&self) -> bool {
        self.0.lock().len() >= MOST
    }
}
