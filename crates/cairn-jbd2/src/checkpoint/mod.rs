//! Checkpointing: writes committed blocks to their home locations (`jbd2_log_do_checkpoint`).
//!
//! **Who checkpoints.** A handle that finds the log full ([`Journal::checkpoint`]), and with
//! `async_checkpoint` a [daemon]. There is one checkpointer at a time. It chooses blocks across
//! transactions and writes them in order of address, in chunks. One flush and one superblock write
//! serve all of them; the flush is left out if a commit flushes meanwhile.
//!
//! **Invariants.** The contents of a chunk are taken under the lock just before its write. Blocks
//! that were superseded or freed until then are left out. A commit that revokes a block waits while
//! the block is being written. No lock is held while the device works. After an error no
//! transaction leaves the [list], and the log tail stays where it is.

pub(crate) mod daemon;
pub(crate) mod keep_free;
pub(crate) mod list;
pub(crate) mod parts;
#[cfg(test)]
mod tests;

use std::collections::HashSet;

use cairn_base::sabotage::Safeguard;
use cairn_base::{Pba, Tid};
use cairn_cache::block::Image;

use crate::error::Result;
use crate::home;
use crate::journal::Journal;
use crate::state::State;
use crate::stats::nanoseconds;
use keep_free::Began;
use parts::CheckpointParts;

/// Blocks of a chunk, and without [`CheckpointParts::ACROSS`] (`JBD2_NR_BATCH`).
const CHUNK: usize = 512;
const SMALL_CHUNK: usize = 64;

/// Who checkpoints.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Checkpointer {
    /// A handle that waits for log space, or the shutdown.
    Waiter,
    /// The daemon. `skip_busy`: it leaves out blocks that a newer transaction will supersede.
    /// `flush`: it flushes, and updates the log tail; otherwise commits do both.
    Daemon { skip_busy: bool, flush: bool },
}

/// Result of an attempt to checkpoint.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Outcome {
    /// Blocks were written, or the log tail was updated.
    Progress,
    /// Nothing can be done before the next commit.
    NothingToDo,
    /// There is another checkpointer.
    Busy,
}

impl Journal {
    /// Frees at least `log_blocks` of the log if there are so many to free, oldest transactions
    /// first. If there is another checkpointer, waits until it has freed something.
    ///
    /// # Errors
    /// The journal was aborted, or the device failed, which aborts it.
    pub fn checkpoint(&self, log_blocks: u32) -> Result<()> {
        self.close_newer_transaction()?;
        if self.try_checkpoint(log_blocks, Checkpointer::Waiter)? == Outcome::Busy {
            let free = self.free_blocks();
            self.wait(|state| !state.checkpointing.is_active() || state.log.free() > free);
        }
        Ok(())
    }

    /// Checkpoints every committed transaction.
    ///
    /// # Errors
    /// As [`Journal::checkpoint`].
    pub fn checkpoint_all(&self) -> Result<()> {
        while self.has_log_to_free() {
            self.checkpoint(u32::MAX)?;
        }
        Ok(())
    }

    /// Waits until no version of the block is being written to its home location. After an abort,
    /// no other follows.
    pub fn wait_for_home_write(&self, pba: Pba) {
        self.wait(|state| !state.checkpointing.is_writing(pba));
    }

    /// True if a checkpoint would free log blocks.
    fn has_log_to_free(&self) -> bool {
        let state = self.state.lock();
        let list = &state.checkpointing.list;
        !list.is_empty() || list.reclaimable() > 0
    }

    /// Leaves out parts of checkpointing from now on. For measurements: nothing becomes unsafe,
    /// only slower.
    pub fn set_checkpoint_parts(&self, parts: CheckpointParts) {
        self.state.lock().checkpointing.parts = parts;
    }

    /// Without [`CheckpointParts::SUPERSEDE`]: commits the running transaction if it holds a block
    /// of the oldest one.
    fn close_newer_transaction(&self) -> Result<()> {
        let newest = {
            let state = self.state.lock();
            let checkpointing = &state.checkpointing;
            let oldest = || checkpointing.list.choose(1, |_| false).blocks;
            let waits = !checkpointing.parts.contains(CheckpointParts::SUPERSEDE)
                && oldest().iter().any(|(pba, _)| state.is_in_newer_transaction(*pba));
            waits.then(|| state.newest_tid())
        };
        newest.map_or(Ok(()), |tid| {
            self.stats.forced_to_close.add(1);
            self.commit_at_once(tid)
        })
    }

    fn try_checkpoint(&self, log_blocks: u32, who: Checkpointer) -> Result<Outcome> {
        {
            let mut state = self.state.lock();
            state.check_aborted()?;
            if !state.checkpointing.try_begin() {
                return Ok(Outcome::Busy);
            }
            if matches!(who, Checkpointer::Daemon { .. }) {
                let now = self.round_now(&state);
                state.checkpointing.pace.begin_round(now);
            }
        }
        let started = self.runtime.monotonic();
        let done = self.do_checkpoint(log_blocks, who);
        {
            let mut state = self.state.lock();
            state.checkpointing.end();
            let now = self.round_now(&state);
            state.checkpointing.pace.end_round(now);
        }
        let took = self.runtime.monotonic().saturating_sub(started);
        self.stats.checkpoint_ns.add(nanoseconds(took));
        tracing::debug!(
            "checkpointed: {} blocks of the log are free, {} us",
            self.free_blocks(),
            took.as_micros()
        );
        if let Err(error) = &done {
            self.abort(&format!("checkpointing failed: {error}"));
        }
        self.changed.notify();
        if who == Checkpointer::Waiter {
            self.wake_checkpoint_daemon();
        }
        done
    }

    fn round_now(&self, state: &State) -> Began {
        Began {
            at: self.runtime.monotonic(),
            allocated: state.log.allocated(),
            written: state.checkpointing.list.queued(),
        }
    }

    fn do_checkpoint(&self, log_blocks: u32, who: Checkpointer) -> Result<Outcome> {
        let (mut chosen, across) = {
            let state = self.state.lock();
            let list = &state.checkpointing.list;
            let across = state.checkpointing.parts.contains(CheckpointParts::ACROSS);
            let log_blocks = if across { log_blocks.saturating_sub(list.reclaimable()) } else { 1 };
            let skip_busy = matches!(who, Checkpointer::Daemon { skip_busy: true, .. });
            let chosen =
                list.choose(log_blocks, |pba| skip_busy && state.is_in_newer_transaction(pba));
            self.stats.left_out.add(chosen.left_out as u64);
            (chosen.blocks, across)
        };
        let some = !chosen.is_empty();
        chosen.sort_unstable_by_key(|(pba, _)| *pba);
        for chunk in chosen.chunks(if across { CHUNK } else { SMALL_CHUNK }) {
            self.write_chunk(chunk, who)?;
        }
        if matches!(who, Checkpointer::Daemon { flush: false, .. }) {
            return Ok(if some { Outcome::Progress } else { Outcome::NothingToDo });
        }
        self.flush_checkpoint()?;
        let updated = self.update_log_tail()?;
        Ok(if some || updated { Outcome::Progress } else { Outcome::NothingToDo })
    }

    fn write_chunk(&self, chunk: &[(Pba, Tid)], who: Checkpointer) -> Result<()> {
        let images: Vec<(Pba, Tid, Image)> = {
            let mut guard = self.state.lock();
            let state = &mut *guard;
            state.check_aborted()?;
            let list = &mut state.checkpointing.list;
            let image = |(pba, tid): &(Pba, Tid)| Some((*pba, *tid, list.frozen_data(*pba, *tid)?));
            let images: Vec<_> = chunk.iter().filter_map(image).collect();
            let homes: HashSet<Pba> = images.iter().map(|(pba, _, _)| *pba).collect();
            state.checkpointing.begin_write(homes);
            images
        };
        let blocks = images.iter().map(|(pba, _, image)| (*pba, image.clone()));
        let written = home::write(&**self.buffers.device(), self.area.block_size, blocks);
        {
            let mut state = self.state.lock();
            state.checkpointing.end_write();
            if written.is_ok() {
                state
                    .checkpointing
                    .list
                    .queue_completions(images.iter().map(|(pba, tid, _)| (*pba, *tid)));
            }
        }
        // A commit that revokes one of the blocks may wait for this write.
        self.changed.notify();
        written?;
        let blocks = images.len() as u64;
        self.stats.checkpoint_blocks.add(blocks);
        match who {
            Checkpointer::Waiter => self.stats.sync_blocks.add(blocks),
            Checkpointer::Daemon { .. } => self.stats.async_blocks.add(blocks),
        }
        Ok(())
    }

    /// Makes checkpoint writes durable, unless a commit's flush has done so.
    fn flush_checkpoint(&self) -> Result<()> {
        let queued = {
            let state = self.state.lock();
            let list = &state.checkpointing.list;
            list.needs_flush().then(|| list.queued())
        };
        if queued.is_some() && !Safeguard::CheckpointFlush.is_off() {
            self.buffers.device().flush()?;
        }
        let mut state = self.state.lock();
        // The error that aborted the journal may concern these blocks.
        state.check_aborted()?;
        let cleaned = state.checkpointing.complete_flushed(queued.unwrap_or(0));
        self.stats.count_cleaning(&cleaned);
        Ok(())
    }
}
