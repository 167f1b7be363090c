//! What changes under the journal's lock (jbd2's `j_state_lock` and `j_list_lock`).
//!
//! Each part has one concern and checks its own transitions: debug builds panic on an illegal one.
//! No part knows another; what concerns several is in [`State`].

pub(crate) mod batching;
pub(crate) mod checkpointing;
pub(crate) mod committing;
pub(crate) mod log_space;
pub(crate) mod running;

use std::sync::Arc;

use cairn_base::{Pba, Tid};

use crate::error::{Error, Result};
use crate::format::superblock::Superblock;
use crate::transaction::CommitCallback;
use batching::Batching;
use checkpointing::Checkpointing;
use committing::Committing;
use log_space::LogSpace;
use running::Running;

/// `-EIO`, as Linux stores it in `s_errno`.
const EIO: u32 = (-5_i32).cast_unsigned();

/// The parts.
pub(crate) struct State {
    /// The running transaction.
    pub(crate) running: Running,
    /// The committing transaction.
    pub(crate) committing: Committing,
    /// Callers that share a commit.
    pub(crate) batching: Batching,
    /// Committed transactions that are not checkpointed.
    pub(crate) checkpointing: Checkpointing,
    /// Head, tail and free blocks of the log.
    pub(crate) log: LogSpace,
    /// The journal superblock as it is on disk, or is being written.
    pub(crate) superblock: Superblock,
    /// Why the journal was aborted.
    pub(crate) aborted: Option<Arc<str>>,
}

impl State {
    /// Fails if the journal was aborted.
    pub(crate) fn check_aborted(&self) -> Result<()> {
        self.aborted.as_ref().map_or(Ok(()), |reason| Err(Error::Aborted(reason.clone())))
    }

    /// Number of the newest transaction that was started.
    pub(crate) fn newest_tid(&self) -> Tid {
        let running = self.running.transaction().map(|running| running.tid);
        running.or(self.committing.tid()).unwrap_or(self.committing.commit_sequence())
    }

    /// True if a transaction that is not durable yet holds the block, too.
    pub(crate) fn is_in_newer_transaction(&self, pba: Pba) -> bool {
        let is_running = |pba| {
            self.running.transaction().is_some_and(|running| running.buffers.contains_key(&pba))
        };
        self.committing.is_writing(pba) || is_running(pba)
    }

    /// The oldest transaction that recovery needs, and its first log block
    /// (`jbd2_journal_get_log_tail`).
    ///
    /// If no committed transaction is left to be checkpointed, the tail is where the next
    /// transaction begins.
    pub(crate) fn log_tail(&self) -> (Tid, u32) {
        self.checkpointing.list.oldest().unwrap_or_else(|| {
            let start = self.committing.log_start().unwrap_or_else(|| self.log.head());
            (self.committing.commit_sequence().next(), start)
        })
    }

    /// Aborts the journal. Returns the superblock to be written and the callbacks to be told, or
    /// `None` if the journal was aborted before.
    pub(crate) fn abort(&mut self, reason: &str) -> Option<(Superblock, Vec<CommitCallback>)> {
        if self.aborted.is_some() {
            return None;
        }
        self.aborted = Some(reason.into());
        self.superblock.errno = EIO;
        Some((self.superblock.clone(), self.running.take_callbacks()))
    }
}
