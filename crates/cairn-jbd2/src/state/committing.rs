//! The committing transaction (`j_committing_transaction`).
//!
//! ```text
//! Idle ── lock ──► Locked ── freeze ──► Freezing ── end_freeze ──► Frozen ── write ──► Writing
//!   ▲                 │ unlock                                                            │
//!   └─────────────────┴──────────────────────────── finish ───────────────────────────────┘
//! ```
//!
//! A failed commit goes from any stage to Idle; the journal is aborted by then.

use cairn_base::{Pba, Tid};

/// How far the commit is.
enum Stage {
    /// No transaction is being committed.
    Idle,
    /// The leader waits for the open handles of the locked transaction (`T_LOCKED`).
    Locked { tid: Tid },
    /// The leader freezes the buffers; no handle may start (`T_SWITCH`).
    Freezing { tid: Tid, log_blocks: u32 },
    /// All buffers are frozen; the transaction has no place in the log yet (`T_FLUSH`).
    Frozen { tid: Tid, log_blocks: u32 },
    /// The transaction is being written to the log (`T_COMMIT`).
    Writing { tid: Tid, log_start: u32, homes: Vec<Pba> },
}

impl Stage {
    fn name(&self) -> &'static str {
        match self {
            Self::Idle => "idle",
            Self::Locked { .. } => "locked",
            Self::Freezing { .. } => "freezing",
            Self::Frozen { .. } => "frozen",
            Self::Writing { .. } => "writing",
        }
    }
}

/// The committing transaction, if there is one, and the last one committed.
pub(crate) struct Committing {
    stage: Stage,
    /// Number of the last durable transaction (`j_commit_sequence`).
    commit_sequence: Tid,
}

impl Committing {
    /// No committing transaction.
    pub(crate) fn new(commit_sequence: Tid) -> Self {
        Self { stage: Stage::Idle, commit_sequence }
    }

    /// Number of the last durable transaction.
    pub(crate) fn commit_sequence(&self) -> Tid {
        self.commit_sequence
    }

    /// True if the transaction is durable.
    pub(crate) fn is_committed(&self, tid: Tid) -> bool {
        self.commit_sequence.is_at_or_after(tid)
    }

    /// Number of the committing transaction.
    pub(crate) fn tid(&self) -> Option<Tid> {
        match self.stage {
            Stage::Idle => None,
            Stage::Locked { tid }
            | Stage::Freezing { tid, .. }
            | Stage::Frozen { tid, .. }
            | Stage::Writing { tid, .. } => Some(tid),
        }
    }

    /// True if no transaction is being committed.
    pub(crate) fn is_idle(&self) -> bool {
        matches!(self.stage, Stage::Idle)
    }

    /// True while buffers are being frozen: no handle may change one.
    pub(crate) fn is_freezing(&self) -> bool {
        matches!(self.stage, Stage::Freezing { .. })
    }

    /// Log blocks that the transaction needs and has not allocated yet.
    pub(crate) fn reserved_log_blocks(&self) -> u32 {
        match self.stage {
            Stage::Freezing { log_blocks, .. } | Stage::Frozen { log_blocks, .. } => log_blocks,
            Stage::Idle | Stage::Locked { .. } | Stage::Writing { .. } => 0,
        }
    }

    /// First log block of the transaction (`t_log_start`), once it has a place in the log.
    pub(crate) fn log_start(&self) -> Option<u32> {
        match self.stage {
            Stage::Writing { log_start, .. } => Some(log_start),
            _ => None,
        }
    }

    /// True if the transaction that is being written to the log holds the block.
    pub(crate) fn is_writing(&self, pba: Pba) -> bool {
        matches!(&self.stage, Stage::Writing { homes, .. } if homes.binary_search(&pba).is_ok())
    }

    fn illegal(&self, to: &str) {
        debug_assert!(false, "the committing transaction goes from {} to {to}", self.stage.name());
    }

    /// A leader begins to commit the locked transaction.
    pub(crate) fn lock(&mut self, tid: Tid) {
        if !self.is_idle() {
            self.illegal("locked");
        }
        debug_assert!(
            tid == self.commit_sequence.next(),
            "{tid} is committed after {}",
            self.commit_sequence
        );
        self.stage = Stage::Locked { tid };
    }

    /// The transaction is empty: its leader gives up the commit.
    pub(crate) fn unlock(&mut self) {
        if !matches!(self.stage, Stage::Locked { .. }) {
            self.illegal("idle");
        }
        self.stage = Stage::Idle;
    }

    /// All handles are closed. The transaction needs `log_blocks` blocks of the log.
    pub(crate) fn freeze(&mut self, log_blocks: u32) {
        match self.stage {
            Stage::Locked { tid } => self.stage = Stage::Freezing { tid, log_blocks },
            _ => self.illegal("freezing"),
        }
    }

    /// All buffers are frozen: handles may start again.
    pub(crate) fn end_freeze(&mut self) {
        match self.stage {
            Stage::Freezing { tid, log_blocks } => self.stage = Stage::Frozen { tid, log_blocks },
            _ => self.illegal("frozen"),
        }
    }

    /// The transaction has its place in the log. `homes` are the home locations of its blocks, in
    /// order.
    pub(crate) fn write(&mut self, log_start: u32, homes: Vec<Pba>) {
        debug_assert!(homes.is_sorted(), "the home locations are not in order");
        match self.stage {
            Stage::Frozen { tid, .. } => self.stage = Stage::Writing { tid, log_start, homes },
            _ => self.illegal("writing"),
        }
    }

    /// The transaction is durable.
    pub(crate) fn finish(&mut self) {
        match self.stage {
            Stage::Writing { tid, .. } => self.commit_sequence = tid,
            _ => self.illegal("idle"),
        }
        self.stage = Stage::Idle;
    }

    /// The commit failed and the journal was aborted.
    pub(crate) fn fail(&mut self) {
        self.stage = Stage::Idle;
    }
}
