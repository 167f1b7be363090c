//! The running transaction's contents and credits.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use cairn_base::{Pba, Tid};
use cairn_cache::block::Buffer;

use crate::format::blocks::BlockLayout;
use crate::state::log_space;

/// Called once: with `true` when a transaction is durable, with `false` if it never will be.
pub(crate) type CommitCallback = Box<dyn FnOnce(bool) + Send>;

/// The transaction that handles join (`transaction_t`).
pub(crate) struct RunningTransaction {
    /// Number (`t_tid`).
    pub(crate) tid: Tid,
    /// When the first handle started (`t_start`).
    pub(crate) started: Duration,
    /// Handles that have joined (`t_handle_count`).
    pub(crate) handle_count: u32,
    /// Open handles (`t_updates`).
    pub(crate) updates: u32,
    /// Unused credits of open handles (`t_outstanding_credits`).
    pub(crate) outstanding_credits: u32,
    /// Revoke blocks that handles reserved beyond the one that each open handle may start.
    pub(crate) revoke_blocks: u32,
    /// Buffers changed in the transaction (`t_buffers`).
    pub(crate) buffers: HashMap<Pba, Arc<Buffer>>,
    /// Revoke table: blocks of which recovery must not replay older versions.
    pub(crate) revokes: HashSet<Pba>,
    /// Called at the end of the commit.
    pub(crate) callbacks: Vec<CommitCallback>,
    /// No handle may join any more (`T_LOCKED`).
    pub(crate) locked: bool,
    /// When a caller first asked for the commit (`t_requested`).
    pub(crate) requested_at: Option<Duration>,
    /// The commit daemon is to commit it at once (`j_commit_request`).
    pub(crate) commit_requested: bool,
    /// Handles wait for the next transaction: the commit is not postponed.
    pub(crate) is_full: bool,
    /// Callers that wait for the commit.
    pub(crate) waiters: u32,
    /// When it was locked.
    pub(crate) locked_at: Duration,
    /// Longest wait of a handle that joined (`t_max_wait`).
    pub(crate) max_wait: Duration,
}

impl RunningTransaction {
    /// An empty transaction, with an empty table for its buffers.
    pub(crate) fn new(tid: Tid, started: Duration, buffers: HashMap<Pba, Arc<Buffer>>) -> Self {
        Self {
            tid,
            started,
            handle_count: 0,
            updates: 0,
            outstanding_credits: 0,
            revoke_blocks: 0,
            buffers,
            revokes: HashSet::new(),
            callbacks: Vec::new(),
            locked: false,
            requested_at: None,
            commit_requested: false,
            is_full: false,
            waiters: 0,
            locked_at: started,
            max_wait: Duration::ZERO,
        }
    }

    /// True if a commit would have nothing to write and no callback to call.
    pub(crate) fn is_empty(&self) -> bool {
        self.buffers.is_empty() && self.revokes.is_empty() && self.callbacks.is_empty()
    }

    /// Metadata blocks, if open handles use all their credits.
    pub(crate) fn metadata_blocks(&self) -> u32 {
        u32::try_from(self.buffers.len())
            .unwrap_or(u32::MAX)
            .saturating_add(self.outstanding_credits)
    }

    /// Revoke records.
    pub(crate) fn revoke_records(&self) -> u32 {
        u32::try_from(self.revokes.len()).unwrap_or(u32::MAX)
    }

    /// Log blocks, if open handles use all their credits and another handle gets `credits`.
    pub(crate) fn log_blocks_with(&self, layout: &BlockLayout, credits: u32) -> u32 {
        let metadata = self.metadata_blocks().saturating_add(credits);
        let revoke_blocks = self.updates + 1 + self.revoke_blocks;
        log_space::transaction_blocks(layout, metadata, self.revoke_records())
            .saturating_add(revoke_blocks)
    }

    /// True if `credits` more make the transaction larger than `max` metadata and revoke blocks.
    pub(crate) fn would_overflow(&self, layout: &BlockLayout, credits: u32, max: u32) -> bool {
        let per_block = u32::try_from(layout.revokes_per_block()).unwrap_or(u32::MAX);
        let revokes = self.revoke_records() / per_block + self.revoke_blocks;
        self.metadata_blocks().saturating_add(credits).saturating_add(revokes) > max
    }
}
