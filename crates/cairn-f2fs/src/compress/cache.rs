//! The most recently unpacked clusters.
//!
//! Locking: the mutex (rank Leaf) is never held while something is read or unpacked.

#![cfg_attr(
    not(test),
    deny(
        clippy::indexing_slicing,
        clippy::as_conversions,
        clippy::arithmetic_side_effects,
        clippy::unwrap_used,
        clippy::expect_used
    )
)]

use std::collections::VecDeque;
use std::sync::Arc;

use cairn_base::ranked_lock::{Mutex, Rank};

use crate::format::units::Nid;

/// Clusters kept: at most 16 MiB.
const KEPT: usize = 16;
type Key = (Nid, u64);

/// The most recently unpacked clusters.
pub(crate) struct ClusterCache {
    kept: Mutex<VecDeque<(Key, Arc<[u8]>)>>,
}

impl Default for ClusterCache {
    fn default() -> Self {
        Self { kept: Mutex::new(Rank::Leaf, VecDeque::new()) }
    }
}

impl ClusterCache {
    pub(super) fn get(&self, key: Key) -> Option<Arc<[u8]>> {
        let mut kept = self.kept.lock();
        let index = kept.iter().position(|(known, _)| *known == key)?;
        let entry = kept.remove(index)?;
        kept.push_front(entry.clone());
        Some(entry.1)
    }

    pub(super) fn put(&self, key: Key, contents: Arc<[u8]>) {
        let mut kept = self.kept.lock();
        kept.push_front((key, contents));
        kept.truncate(KEPT);
    }
}
