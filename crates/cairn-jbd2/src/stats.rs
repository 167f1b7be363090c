//! Counters of a journal: what jbd2 shows in `/proc/fs/jbd2/*/info`, and what it should show as well.

use std::time::Duration;

use cairn_base::stats::{Counter, Histogram};

use crate::checkpoint::Behalf;
use crate::checkpoint::list::Cleaned;

/// What the journal has done since it was opened. Times are nanoseconds.
#[derive(Default)]
pub struct JournalStats {
    /// Transactions committed.
    pub transactions: Counter,
    /// Of these, asked for by somebody who waits (fsync).
    pub requested: Counter,
    /// Handles started.
    pub handles: Counter,
    /// Blocks changed beyond what their handle had asked for.
    pub overdrafts: Counter,
    /// Copies of blocks logged.
    pub blocks_logged: Counter,
    /// Log blocks written in all: copies, descriptors, revokes, commit records.
    pub log_blocks: Counter,
    /// Revoke records written.
    pub revokes: Counter,
    /// Callers for whom a commit was made durable: they share commits.
    pub commit_waits: Counter,
    /// Longest wait of a handle for each transaction, in all.
    pub waiting_ns: Counter,
    /// From the request to the start of the commit, of each transaction, in all.
    pub request_delay_ns: Counter,
    /// Open to handles, in all.
    pub running_ns: Counter,
    /// Closed, with handles still at work, in all.
    pub locked_ns: Counter,
    /// Flushing file data that lies on another device than the log, in all.
    pub flushing_ns: Counter,
    /// Writing the log up to the durable commit record, in all.
    pub logging_ns: Counter,
    /// Each transaction's time from being closed to its durable commit record.
    pub commit_ns: Histogram,
    /// Times a handle waited because the log was full.
    pub forced_checkpoints: Counter,
    /// Of these, times the only way to room was to commit what was running.
    pub forced_to_close: Counter,
    /// Each wait for room in the log.
    pub stall_ns: Histogram,
    /// Time spent checkpointing.
    pub checkpoint_ns: Counter,
    /// Blocks written home.
    pub checkpoint_blocks: Counter,
    /// Of these, by the daemon.
    pub async_blocks: Counter,
    /// Of these, while somebody waited.
    pub sync_blocks: Counter,
    /// Rounds of the daemon.
    pub async_runs: Counter,
    /// Blocks that the daemon left alone because a newer transaction was about to supersede them.
    pub left_out: Counter,
    /// Transactions whose log space was given up.
    pub checkpointed: Counter,
    /// Of these, superseded entirely: dropped with no I/O.
    pub dropped_superseded: Counter,
    /// Blocks that a newer transaction superseded before they were written home.
    pub superseded: Counter,
    /// Times the checkpoint list was cleaned.
    pub clean_calls: Counter,
    /// What the cleanings looked at: listed blocks, or transactions' counters.
    pub clean_steps: Counter,
    /// What the cleanings took off: listed blocks, or counted transactions.
    pub freed: Counter,
    /// Superblock writes that moved the tail of the log.
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

    pub(crate) fn count_home_writes(&self, blocks: u64, behalf: Behalf) {
        self.checkpoint_blocks.add(blocks);
        match behalf {
            Behalf::Handle => self.sync_blocks.add(blocks),
            Behalf::Daemon { .. } => self.async_blocks.add(blocks),
        }
    }
}

/// A duration as the counters hold it.
pub(crate) fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
