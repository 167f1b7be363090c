//! Checkpointing: the list of committed transactions, and who is writing their blocks.
//!
//! ```text
//! Idle ── begin ──► Active ── begin_write ──► Writing
//!   ▲                │  ▲                        │
//!   └───── end ──────┘  └────── end_write ───────┘
//! ```

use std::collections::HashSet;

use cairn_base::Pba;

use crate::checkpoint::keep_free::{KeepFree, Pace, round_of};
use crate::checkpoint::list::{CheckpointClean, CheckpointList, Cleaned};
use crate::checkpoint::parts::CheckpointParts;

/// What the checkpointer does. There is at most one (jbd2's `j_checkpoint_mutex`).
enum Stage {
    Idle,
    /// It chooses blocks, flushes, or updates the log tail.
    Active,
    /// It writes these blocks to their home locations.
    Writing(HashSet<Pba>),
}

/// The checkpoint list and its options.
pub(crate) struct Checkpointing {
    /// Committed transactions that are not checkpointed (`j_checkpoint_transactions`).
    pub(crate) list: CheckpointList,
    /// How checkpointed transactions are found.
    pub(crate) clean_mode: CheckpointClean,
    /// What the checkpoint daemon keeps free of the log, if there is one.
    pub(crate) keep_free: Option<KeepFree>,
    /// How fast the log fills.
    pub(crate) pace: Pace,
    /// The daemon has nothing to do before a rest.
    pub(crate) waits_for_rest: bool,
    /// The parts that are on.
    pub(crate) parts: CheckpointParts,
    stage: Stage,
    mean_length: f64,
}

impl Checkpointing {
    /// An empty list.
    pub(crate) fn new(clean_mode: CheckpointClean) -> Self {
        let list = CheckpointList::default();
        let parts = CheckpointParts::all();
        Self {
            list,
            clean_mode,
            keep_free: None,
            pace: Pace::default(),
            waits_for_rest: false,
            parts,
            stage: Stage::Idle,
            mean_length: 0.0,
        }
    }

    /// True if a checkpointer is at work.
    pub(crate) fn is_active(&self) -> bool {
        !matches!(self.stage, Stage::Idle)
    }

    /// True if a version of the block is being written to its home location.
    pub(crate) fn is_writing(&self, pba: Pba) -> bool {
        matches!(&self.stage, Stage::Writing(homes) if homes.contains(&pba))
    }

    /// The caller becomes the checkpointer. False if there is one.
    #[must_use]
    pub(crate) fn try_begin(&mut self) -> bool {
        let idle = !self.is_active();
        if idle {
            self.stage = Stage::Active;
        }
        idle
    }

    /// The checkpointer writes these blocks.
    pub(crate) fn begin_write(&mut self, homes: HashSet<Pba>) {
        debug_assert!(
            matches!(self.stage, Stage::Active),
            "a checkpoint write begins outside of a checkpoint"
        );
        self.stage = Stage::Writing(homes);
    }

    /// The device has taken the blocks, or has failed.
    pub(crate) fn end_write(&mut self) {
        debug_assert!(
            matches!(self.stage, Stage::Writing(_)),
            "a checkpoint write ends that was not begun"
        );
        self.stage = Stage::Active;
    }

    /// The checkpointer is done.
    pub(crate) fn end(&mut self) {
        debug_assert!(
            matches!(self.stage, Stage::Active),
            "a checkpoint ends that was not begun, or still writes"
        );
        self.stage = Stage::Idle;
    }

    /// Records that a flush has covered the completions up to `flushed`, and drops the transactions
    /// that are then checkpointed.
    pub(crate) fn complete_flushed(&mut self, flushed: u64) -> Cleaned {
        self.list.drain_completions(flushed, self.clean_mode);
        self.list.clean(self.clean_mode)
    }

    /// Free blocks of a log, of which `free` are, with which a round of the daemon must begin.
    pub(crate) fn least_free(&self, log_blocks: u32, free: u32) -> u32 {
        let used = log_blocks.saturating_sub(free);
        self.pace.least_free(log_blocks, self.list.listed_in(round_of(log_blocks), used))
    }

    /// Free blocks of a log, of which `free` are, below which the checkpoint daemon works; 0 if
    /// there is none.
    pub(crate) fn threshold(&self, log_blocks: u32, free: u32) -> u32 {
        match self.keep_free {
            None => 0,
            Some(keep @ KeepFree::Percent(_)) => keep.most(log_blocks),
            Some(KeepFree::AsNeeded) => self.least_free(log_blocks, free),
        }
    }

    /// Adds the present length of the list to the mean, with a weight of an eighth.
    pub(crate) fn sample_length(&mut self) {
        #[expect(clippy::cast_precision_loss, reason = "a mean for the report")]
        let now = self.list.len() as f64;
        self.mean_length += (now - self.mean_length) / 8.0;
    }

    /// Mean length of the list over the last commits.
    pub(crate) fn mean_length(&self) -> f64 {
        self.mean_length
    }
}
