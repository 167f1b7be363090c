//! Damage that waits to be written into the superblock: see [`mod@crate::damage`].
//!
//! Locking: a leaf lock, held briefly.

use cairn_base::ranked_lock::{Mutex, Rank};

use crate::format::superblock::FoundError;

/// Errors found, oldest first.
pub(crate) struct DamageLog(Mutex<Vec<FoundError>>);

impl Default for DamageLog {
    fn default() -> Self {
        Self(Mutex::new(Rank::LEAF, Vec::new()))
    }
}

/// Beyond this many that wait, only the last one and how many there were matters.
const MOST_WAITING: usize = 64;

impl DamageLog {
    /// Adds an error. True if it is the first that waits: then the caller has the superblock written.
    pub(crate) fn push(&self, found: FoundError) -> bool {
        let mut waiting = self.0.lock();
        if waiting.len() < MOST_WAITING {
            waiting.push(found);
        }
        waiting.len() == 1
    }

    /// Takes all that wait.
    pub(crate) fn take(&self) -> Vec<FoundError> {
        std::mem::take(&mut *self.0.lock())
    }
}
