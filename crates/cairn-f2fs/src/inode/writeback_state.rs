//! The state of an inode for fsync and write-back.

use std::sync::{Arc, OnceLock};

use cairn_base::ranked_lock::{Mutex, Rank};
use cairn_cache::writeback::Flushable;

/// What fsync and write-back must know of an inode.
pub(crate) struct SyncState {
    /// Held by the fsync that writes the inode's nodes.
    pub(crate) order: Mutex<()>,
    /// The object that the cache calls to write the inode back.
    pub(super) flusher: OnceLock<Arc<dyn Flushable>>,
}

impl SyncState {
    /// The state of an inode that was just read or made.
    #[must_use]
    pub(crate) fn new(nid: u64) -> Self {
        Self { order: Mutex::new_ordered(Rank::Fsync, nid, ()), flusher: OnceLock::new() }
    }
}
