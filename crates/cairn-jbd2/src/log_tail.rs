//! Updates the log tail (`jbd2_update_log_tail`): frees the log blocks of checkpointed
//! transactions.
//!
//! **Invariants.** The blocks are free only when a superblock with the new tail is durable:
//! recovery would otherwise start in overwritten blocks. One thread at a time updates the tail. The
//! tail passes only transactions that have left the [checkpoint list](crate::checkpoint::list).

use crate::area::write_superblock;
use crate::checkpoint::parts::CheckpointParts;
use crate::error::Result;
use crate::format::superblock::Superblock;
use crate::journal::Journal;
use crate::state::State;

impl Journal {
    /// Moves the tail past all checkpointed transactions. False if there is none.
    ///
    /// # Errors
    /// The journal was aborted, or the device failed, which aborts it.
    pub(crate) fn update_log_tail(&self) -> Result<bool> {
        let (superblock, freed) = loop {
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
        let written = write_superblock(&self.area, &superblock);
        {
            let mut state = self.state.lock();
            if written.is_ok() {
                state.superblock.start = superblock.start;
                state.superblock.sequence = superblock.sequence;
            }
            state.log.end_tail_update(if written.is_ok() { freed } else { 0 });
        }
        written
            .inspect_err(|error| self.abort(&format!("updating the log tail failed: {error}")))?;
        self.stats.tail_moves.add(1);
        self.changed.notify();
        Ok(true)
    }

    /// Updates the tail after a commit if that frees a quarter of the log, so that few handles have
    /// to wait for it. The checkpoint daemon does this where there is one.
    pub(crate) fn update_log_tail_if_worthwhile(&self) {
        let worthwhile = {
            let state = self.state.lock();
            let much = state.checkpointing.list.reclaimable() >= state.log.blocks() / 4;
            let wanted = state.checkpointing.parts.contains(CheckpointParts::WITH_COMMITS)
                && state.checkpointing.async_percent.is_none();
            much && wanted && !state.log.is_updating_tail()
        };
        if worthwhile {
            // An error has aborted the journal. The commit before is durable all the same.
            let _ = self.update_log_tail();
        }
        self.wake_checkpoint_daemon();
    }
}

/// The superblock with the new tail, and the log blocks that it frees.
fn begin_update(state: &mut State) -> (Superblock, u32) {
    let freed = state.checkpointing.list.take_reclaimable();
    let mut superblock = state.superblock.clone();
    (superblock.sequence, superblock.start) = state.log_tail();
    state.log.begin_tail_update();
    (superblock, freed)
}
