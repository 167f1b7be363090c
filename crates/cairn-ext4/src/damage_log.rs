//! [`DamageLog`]: records of damage that wait to be written to the superblock; see
//! [`mod@crate::damage`].
//!
//! Locking: rank Leaf, held for a push or a take only.

use cairn_base::ranked_lock::{Mutex, Rank};

use crate::format::error_record::FoundError;

/// The waiting records, oldest first.
pub(crate) struct DamageLog(Mutex<Vec<FoundError>>);

impl Default for DamageLog {
    fn default() -> Self {
        Self(Mutex::new(Rank::Leaf, Vec::new()))
    }
}

/// Most waiting records. Further ones only replace the last record and are counted.
const MOST_WAITING: usize = 64;

impl DamageLog {
    /// Adds a record. True if it is the first: the caller then has the superblock written.
    pub(crate) fn push(&self, found: FoundError) -> bool {
        let mut waiting = self.0.lock();
        if waiting.len() < MOST_WAITING {
            waiting.push(found);
        }
        waiting.len() == 1
    }

    /// Takes all waiting records.
    pub(crate) fn take(&self) -> Vec<FoundError> {
        std::mem::take(&mut *self.0.lock())
    }
}
