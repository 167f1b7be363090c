//! Updates the log tail (`jbd2_update_log_tail`): frees the log blocks of checkpointed
//! transactions.
//!
//! **Invariants.** The blocks are free only when a superblock with the new tail is durable:
//! recovery would otherwise start in overwritten blocks. One thread at a time updates the tail. The
//! tail passes only transactions that have left the [checkpoint list](crate::checkpoint::list).
//!
//! A commit flushes the device anyway. It takes an update of the tail along: the superblock is
//! written before the commit's flush, which makes it durable.

use cairn_base::sabotage::Safeguard;
use cairn_block::Durability;

use crate::area::{FORCED, write_superblock};
use crate::checkpoint::parts::CheckpointParts;
use crate::error::Result;
use crate::format::superblock::Superblock;
use crate::journal::Journal;
use crate::state::State;

/// A superblock with a new tail, and the log blocks that are free once it is durable.
pub(crate) struct TailUpdate {
    superblock: Superblock,
    freed: u32,
}

impl Journal {
    /// Moves the tail past all checkpointed transactions. False if there is none.
    ///
    /// # Errors
    /// The journal was aborted, or the device failed, which aborts it.
    pub(crate) fn update_log_tail(&self) -> Result<bool> {
        let update = loop {
            let mut guard = self.state.lock();
            let state = &mut *guard;
            state.check_aborted()?;
            if !state.log.is_updating_tail() {
                if state.checkpointing.list.reclaimable() == 0 {
                    return Ok(false);
                }
                break begin_update(state);
            }
            drop(guard);
            self.wait(|state| !state.log.is_updating_tail());
        };
        let durability = if Safeguard::TailForce.is_off() { Durability::default() } else { FORCED };
        let written = write_superblock(&self.area, &update.superblock, durability);
        self.end_tail_update(&update, written.is_ok());
        written
            .inspect_err(|error| self.abort(&format!("updating the log tail failed: {error}")))?;
        Ok(true)
    }

    /// Begins an update of the tail that becomes durable with the flush of a commit, if it frees
    /// enough of the log. The superblock is written before that flush, and the caller ends the
    /// update ([`Journal::end_tail_update`]).
    ///
    /// # Errors
    /// The device failed.
    pub(crate) fn begin_tail_update_with_commit(&self) -> Result<Option<TailUpdate>> {
        let update = {
            let mut guard = self.state.lock();
            let state = &mut *guard;
            state.check_aborted()?;
            let with_commits = state.checkpointing.parts.contains(CheckpointParts::WITH_COMMITS);
            if !with_commits || state.log.is_updating_tail() || !is_worthwhile(state) {
                return Ok(None);
            }
            begin_update(state)
        };
        match write_superblock(&self.area, &update.superblock, Durability::default()) {
            Ok(()) => Ok(Some(update)),
            Err(error) => {
                self.end_tail_update(&update, false);
                Err(error)
            }
        }
    }

    /// Ends an update of the tail. `durable`: the superblock is on the medium.
    pub(crate) fn end_tail_update(&self, update: &TailUpdate, durable: bool) {
        {
            let mut state = self.state.lock();
            if durable {
                state.superblock.start = update.superblock.start;
                state.superblock.sequence = update.superblock.sequence;
            }
            state.log.end_tail_update(if durable { update.freed } else { 0 });
        }
        if durable {
            self.stats.tail_moves.add(1);
        }
        self.changed.notify();
    }
}

/// True if the tail is worth a write: it frees a quarter of the log; for the checkpoint daemon an
/// eighth, or less if less is free than it keeps.
fn is_worthwhile(state: &State) -> bool {
    let (checkpointing, blocks) = (&state.checkpointing, state.log.blocks());
    let part = match checkpointing.keep_free {
        None => 4,
        Some(_) if state.log.free() >= checkpointing.threshold(blocks, state.log.free()) => 8,
        Some(_) => 16,
    };
    checkpointing.list.reclaimable() >= blocks / part
}

/// Takes what an update of the tail frees.
fn begin_update(state: &mut State) -> TailUpdate {
    let freed = state.checkpointing.list.take_reclaimable();
    let mut superblock = state.superblock.clone();
    (superblock.sequence, superblock.start) = state.log_tail();
    state.log.begin_tail_update();
    TailUpdate { superblock, freed }
}
