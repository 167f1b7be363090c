//! Counters of a journal.

use cairn_base::stats::{Counter, Histogram, Report};

/// What the journal has done since it was opened.
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
    /// Time from locking a transaction to its durable commit record.
    pub commit_ns: Histogram,
    /// Times a handle waited because the log was full.
    pub forced_checkpoints: Counter,
    /// Blocks written home.
    pub checkpoint_blocks: Counter,
    /// Transactions whose log space was freed.
    pub checkpointed: Counter,
    /// Blocks that a newer transaction superseded before they were written home.
    pub superseded: Counter,
}

impl JournalStats {
    /// All of them by name.
    #[must_use]
    pub fn report(&self) -> Report {
        Report::new()
            .with("transactions", &self.transactions)
            .with("requested", &self.requested)
            .with("handles", &self.handles)
            .with("overdrafts", &self.overdrafts)
            .with("blocks_logged", &self.blocks_logged)
            .with("log_blocks", &self.log_blocks)
            .with("revokes", &self.revokes)
            .with("commit_ns", &self.commit_ns)
            .with("forced_checkpoints", &self.forced_checkpoints)
            .with("checkpoint_blocks", &self.checkpoint_blocks)
            .with("checkpointed", &self.checkpointed)
            .with("superseded", &self.superseded)
    }
}
