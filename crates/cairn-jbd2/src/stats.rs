//! Counters of a journal: those of jbd2's `/proc/fs/jbd2/*/info`, and more.

use std::time::Duration;

use cairn_base::stats::{Counter, Histogram};

use crate::checkpoint::list::Cleaned;

/// Counters since the journal was opened. Times are in nanoseconds, summed over all transactions.
#[derive(Default)]
pub struct JournalStats {
    /// Committed transactions.
    pub transactions: Counter,
    /// Of these, requested by a caller.
    pub(crate) requested: Counter,
    /// Handles started.
    pub(crate) handles: Counter,
    /// Blocks that handles changed without a credit.
    pub(crate) overdrafts: Counter,
    /// Metadata blocks logged.
    pub(crate) blocks_logged: Counter,
    /// Log blocks written: metadata, descriptor, revoke and commit blocks.
    pub log_blocks: Counter,
    /// Revoke records logged.
    pub revokes: Counter,
    /// Callers that waited for a commit. Several may share one commit.
    pub(crate) commit_waits: Counter,
    /// Longest wait of a handle for each transaction.
    pub(crate) waiting_ns: Counter,
    /// From the first request to the start of the commit.
    pub(crate) request_delay_ns: Counter,
    /// From the first handle to the lock.
    pub(crate) running_ns: Counter,
    /// From the lock to the end of the last handle.
    pub(crate) locked_ns: Counter,
    /// Flushes of file data on another device than the log.
    pub(crate) flushing_ns: Counter,
    /// From the end of the last handle to the durable commit block.
    pub(crate) logging_ns: Counter,
    /// From the lock to the durable commit block, for each transaction.
    pub(crate) commit_ns: Histogram,
    /// Handles that found the log full.
    pub(crate) forced_checkpoints: Counter,
    /// Commits of the running transaction because nothing else could free log blocks.
    pub(crate) forced_to_close: Counter,
    /// Waits of handles for log space.
    pub(crate) stall_ns: Histogram,
    /// Time spent checkpointing.
    pub(crate) checkpoint_ns: Counter,
    /// Blocks written by checkpoints.
    pub checkpoint_blocks: Counter,
    /// Of these, by the daemon.
    pub async_blocks: Counter,
    /// Of these, while a caller waited.
    pub sync_blocks: Counter,
    /// Rounds of the checkpoint daemon.
    pub async_runs: Counter,
    /// Blocks that the daemon left out because a newer transaction would supersede them.
    pub left_out: Counter,
    /// Transactions checkpointed.
    pub checkpointed: Counter,
    /// Of these, superseded before any block was written.
    pub dropped_superseded: Counter,
    /// Blocks that a newer transaction superseded before they were written.
    pub superseded: Counter,
    /// Searches for checkpointed transactions.
    pub(crate) clean_calls: Counter,
    /// Blocks that the searches looked at; with `counted`, transactions.
    pub clean_steps: Counter,
    /// Blocks that the searches took off their lists; with `counted`, transactions.
    pub freed: Counter,
    /// Updates of the log tail.
    pub tail_moves: Counter,
}

impl JournalStats {
    pub(crate) fn count_cleaning(&self, cleaned: &Cleaned) {
        self.clean_calls.add(1);
        self.clean_steps.add(cleaned.steps);
        self.freed.add(cleaned.freed);
        self.checkpointed.add(cleaned.transactions);
        self.dropped_superseded.add(cleaned.superseded);
    }
}

/// A duration in the unit of the counters.
pub(crate) fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
