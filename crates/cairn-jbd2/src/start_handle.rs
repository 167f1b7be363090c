//! Starts handles (`jbd2_journal_start`): which handle may join the running transaction, and what
//! the others wait for.

use std::sync::Arc;
use std::time::Duration;

use cairn_base::Tid;

use crate::checkpoint::parts::CheckpointParts;
use crate::error::{Error, Result};
use crate::handle::Handle;
use crate::journal::Journal;
use crate::state::log_space;
use crate::stats::nanoseconds;

/// Log blocks that stay free for handles that change more blocks than they have credits for.
const SPARE_LOG_BLOCKS: u32 = 32;

/// Result of an attempt to join.
enum Attempt {
    /// The handle has joined; `wake`: it has started a transaction that the sleeping commit daemon
    /// does not know of.
    Joined { tid: Tid, wake: bool },
    /// The running transaction must be committed first.
    TransactionFull(Tid),
    /// The log must be checkpointed first.
    LogFull,
    /// The running transaction is locked, or buffers are being frozen.
    Locked,
}

/// When a handle began to wait, and when it began to wait for log space.
#[derive(Default)]
struct Waiting {
    since: Option<Duration>,
    for_log_space: Option<Duration>,
}

impl Journal {
    /// Starts a handle that changes at most `credits` metadata blocks. Waits while the running
    /// transaction is locked, and for log space. The caller holds no lock of a folio, mapping,
    /// allocator or buffer.
    ///
    /// # Errors
    /// The journal was aborted, or no transaction can have this many blocks.
    pub fn start(self: &Arc<Self>, credits: u32) -> Result<Handle> {
        let tid = self.join_running(credits)?;
        Ok(Handle::new(self.clone(), tid, credits))
    }

    /// Joins the running transaction (`start_this_handle`). The caller leaves it again.
    pub(crate) fn join_running(&self, credits: u32) -> Result<Tid> {
        let largest = self.max_transaction_buffers;
        if credits > largest {
            return Err(Error::TooLarge { credits, largest });
        }
        let mut waiting = Waiting::default();
        loop {
            let attempt = self.try_join(credits, &waiting)?;
            if !matches!(attempt, Attempt::Joined { .. }) {
                waiting.since.get_or_insert_with(|| self.runtime.monotonic());
            }
            match attempt {
                Attempt::Joined { tid, wake } => {
                    if wake {
                        self.commit_wake.notify();
                    }
                    if let Some(since) = waiting.for_log_space {
                        self.stats
                            .stall_ns
                            .record(nanoseconds(self.runtime.monotonic().saturating_sub(since)));
                    }
                    self.stats.handles.add(1);
                    return Ok(tid);
                }
                Attempt::TransactionFull(tid) => {
                    if !self.close_full(tid) {
                        self.commit_at_once(tid)?;
                    }
                }
                Attempt::Locked => self.wait(|state| {
                    state.aborted.is_some()
                        || !(state.committing.is_freezing() || state.running.is_locked())
                }),
                Attempt::LogFull => {
                    if waiting.for_log_space.is_none() {
                        waiting.for_log_space = waiting.since;
                        self.stats.forced_checkpoints.add(1);
                    }
                    self.make_log_space()?;
                }
            }
        }
    }

    fn try_join(&self, credits: u32, waiting: &Waiting) -> Result<Attempt> {
        let mut guard = self.state.lock();
        let state = &mut *guard;
        state.check_aborted()?;
        if state.committing.is_freezing() || state.running.is_locked() {
            return Ok(Attempt::Locked);
        }
        let needed = match state.running.transaction() {
            Some(running)
                if running.would_overflow(&self.layout, credits, self.max_transaction_buffers) =>
            {
                return Ok(Attempt::TransactionFull(running.tid));
            }
            Some(running) => running.log_blocks_with(&self.layout, credits),
            None => log_space::transaction_blocks(&self.layout, credits, 0) + 1,
        };
        let reserved = state.committing.reserved_log_blocks().saturating_add(SPARE_LOG_BLOCKS);
        let exact = state.checkpointing.parts.contains(CheckpointParts::EXACT_ROOM);
        let least = if exact { 0 } else { state.log.blocks() / 4 };
        if needed.saturating_add(reserved).max(least) > state.log.free() {
            return Ok(Attempt::LogFull);
        }
        let first = state.running.transaction().is_none();
        let wake = first && std::mem::take(&mut state.running.daemon_sleeps);
        let running = state.running.get_or_start(|| self.runtime.monotonic());
        running.updates += 1;
        running.handle_count += 1;
        running.outstanding_credits += credits;
        if let Some(since) = waiting.since {
            let waited = self.runtime.monotonic().saturating_sub(since);
            running.max_wait = running.max_wait.max(waited);
        }
        Ok(Attempt::Joined { tid: running.tid, wake })
    }

    /// Makes log space (`__jbd2_log_wait_for_space`): updates the log tail, else checkpoints
    /// committed transactions, else commits the running one.
    fn make_log_space(&self) -> Result<()> {
        if self.update_log_tail()? {
            return Ok(());
        }
        let (has_committed, committing, log_blocks) = {
            let state = self.state.lock();
            (!state.checkpointing.list.is_empty(), state.committing.tid(), state.log.blocks())
        };
        match committing {
            _ if has_committed => self.checkpoint(log_blocks / 4),
            Some(tid) => self.commit_at_once(tid),
            None => {
                self.stats.forced_to_close.add(1);
                self.force_commit()
            }
        }
    }
}
