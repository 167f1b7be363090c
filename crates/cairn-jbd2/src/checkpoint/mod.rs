//! Checkpointing: committed blocks go home, are flushed, and only then does the tail of the log move.
//!
//! **Who.** A handle that finds the log full ([`Journal::checkpoint`]), and, with `async_checkpoint`, a [daemon](daemon) that
//! keeps it from filling. One at a time (`State::checkpointing`); blocks are chosen across transactions, written in order of address
//! in chunks, and one flush and one superblock write serve all of them. If a commit flushes meanwhile, that one serves.
//!
//! **Invariants.** A chunk's contents are taken under the lock just before it is written: what was superseded or freed until then
//! is left out, and who frees a block waits while it is in `State::going_home`. No lock is held while the device works. The tail moves
//! (one mover at a time, `State::moving_tail`) past transactions only that the [list](list) has let go. After an error nothing
//! leaves the list, and the tail stays.

pub mod daemon;
pub mod list;
#[cfg(test)]
mod tests;

use std::collections::HashSet;
use std::time::Duration;

use cairn_base::{Pba, Tid};
use cairn_cache::block::Image;

use crate::error::{Error, Result};
use crate::format::superblock::Superblock;
use crate::home;
use crate::journal::{Journal, State};
use crate::recovery::write_superblock;
use crate::stats::nanoseconds;

/// Blocks between two looks at what has been superseded meanwhile.
const CHUNK: usize = 512;

/// On whose behalf blocks go home.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Behalf {
    /// Somebody waits for room.
    Handle,
    /// The daemon; `patient`: what a newer transaction is about to supersede is left alone.
    Daemon { patient: bool },
}

/// What came of an attempt.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// Blocks were written or the tail was moved.
    Progress,
    /// There is nothing to do but wait for the commit of what was left out.
    Nothing,
    /// Somebody else is at it.
    Busy,
}

impl Journal {
    /// Frees at least `log_blocks` of the log if there is that much to free, oldest transactions first. If somebody else is at it,
    /// waits until they have freed something.
    ///
    /// # Errors
    /// The journal has stopped, or the device failed (which stops it).
    pub fn checkpoint(&self, log_blocks: u32) -> Result<()> {
        if self.try_checkpoint(log_blocks, Behalf::Handle)? == Outcome::Busy {
            let free = self.free_blocks();
            self.wait(|state| !state.checkpointing || state.log.free() > free);
        }
        Ok(())
    }

    /// Brings everything committed home.
    ///
    /// # Errors
    /// As [`Journal::checkpoint`].
    pub fn checkpoint_all(&self) -> Result<()> {
        while self.has_log_to_free() {
            self.checkpoint(u32::MAX)?;
        }
        Ok(())
    }

    /// True if a checkpoint would free something of the log.
    pub(crate) fn has_log_to_free(&self) -> bool {
        let state = self.state.lock();
        !state.checkpoint.is_empty() || state.checkpoint.reclaimable() > 0
    }

    pub(crate) fn try_checkpoint(&self, log_blocks: u32, behalf: Behalf) -> Result<Outcome> {
        {
            let mut state = self.state.lock();
            if let Some(reason) = &state.aborted {
                return Err(Error::Aborted(reason.clone()));
            }
            if state.checkpointing {
                return Ok(Outcome::Busy);
            }
            state.checkpointing = true;
        }
        let started = self.runtime.monotonic();
        let done = self.checkpoint_alone(log_blocks, behalf);
        {
            let mut state = self.state.lock();
            state.checkpointing = false;
            state.going_home = HashSet::new();
        }
        self.stats().checkpoint_ns.add(nanoseconds(self.runtime.monotonic().saturating_sub(started)));
        if let Err(error) = &done {
            self.abort(&format!("writing blocks home failed: {error}"));
        }
        self.changed.notify();
        if behalf == Behalf::Handle {
            self.wake_checkpointer();
        }
        done
    }

    fn checkpoint_alone(&self, log_blocks: u32, behalf: Behalf) -> Result<Outcome> {
        let mut chosen = {
            let state = self.state.lock();
            let log_blocks = log_blocks.saturating_sub(state.checkpoint.reclaimable());
            let patient = behalf == Behalf::Daemon { patient: true };
            let chosen = state.checkpoint.choose(log_blocks, |pba| patient && will_be_superseded(&state, pba));
            self.stats().left_out.add(chosen.left_out as u64);
            chosen.blocks
        };
        let some = !chosen.is_empty();
        chosen.sort_unstable_by_key(|(pba, _)| *pba);
        for chunk in chosen.chunks(CHUNK) {
            self.write_chunk(chunk, behalf)?;
        }
        self.flush_home()?;
        let moved = self.move_tail()?;
        Ok(if some || moved { Outcome::Progress } else { Outcome::Nothing })
    }

    fn write_chunk(&self, chunk: &[(Pba, Tid)], behalf: Behalf) -> Result<()> {
        let images: Vec<(Pba, Tid, Image)> = {
            let mut guard = self.state.lock();
            let state = &mut *guard;
            if let Some(reason) = &state.aborted {
                return Err(Error::Aborted(reason.clone()));
            }
            let image = |(pba, tid): &(Pba, Tid)| state.checkpoint.image(*pba, *tid).map(|image| (*pba, *tid, image));
            let images: Vec<_> = chunk.iter().filter_map(image).collect();
            state.going_home = images.iter().map(|(pba, _, _)| *pba).collect();
            images
        };
        let written =
            home::write(&**self.buffers.device(), self.area.block_size, images.iter().map(|(p, _, i)| (*p, i.clone())));
        {
            let mut state = self.state.lock();
            state.going_home = HashSet::new();
            if written.is_ok() {
                state.checkpoint.queue_completions(images.iter().map(|(pba, tid, _)| (*pba, *tid)));
            }
        }
        // Who freed one of them may go on.
        self.changed.notify();
        written?;
        self.stats().count_home_writes(images.len() as u64, behalf);
        Ok(())
    }

    /// Makes what was written home durable, unless a commit's flush has done so.
    fn flush_home(&self) -> Result<()> {
        let upto = {
            let state = self.state.lock();
            state.checkpoint.needs_flush().then(|| state.checkpoint.queued())
        };
        if upto.is_some() {
            self.buffers.device().flush()?;
        }
        let mut state = self.state.lock();
        // An error elsewhere may have been about these very blocks: the tail stays.
        if let Some(reason) = &state.aborted {
            return Err(Error::Aborted(reason.clone()));
        }
        self.settle(&mut state, upto.unwrap_or(0));
        Ok(())
    }

    /// A flush has covered the completions up to `flushed`: lets go of the transactions that are done.
    pub(crate) fn settle(&self, state: &mut State, flushed: u64) {
        let mode = state.clean;
        state.checkpoint.drain_completions(flushed, mode);
        let cleaned = state.checkpoint.clean(mode);
        self.stats().count_cleaning(&cleaned);
    }

    /// Moves the tail past all that the list has let go. False if there is nothing of that kind.
    ///
    /// # Errors
    /// The journal has stopped, or the device failed (which stops it).
    pub(crate) fn move_tail(&self) -> Result<bool> {
        let (superblock, freed) = loop {
            let mut guard = self.state.lock();
            let state = &mut *guard;
            if let Some(reason) = &state.aborted {
                return Err(Error::Aborted(reason.clone()));
            }
            if !state.moving_tail {
                if state.checkpoint.reclaimable() == 0 {
                    return Ok(false);
                }
                break take_tail(state);
            }
            drop(guard);
            self.wait(|state| !state.moving_tail);
        };
        // Freed blocks may not be overwritten before the tail on the medium has passed them.
        let written = write_superblock(&self.area, &superblock);
        {
            let mut state = self.state.lock();
            state.moving_tail = false;
            if written.is_ok() {
                state.superblock.start = superblock.start;
                state.superblock.sequence = superblock.sequence;
                state.log.advance_tail(superblock.start, superblock.sequence, freed);
            }
        }
        written.inspect_err(|error| self.abort(&format!("moving the tail of the log failed: {error}")))?;
        self.stats().tail_moves.add(1);
        self.changed.notify();
        Ok(true)
    }

    /// After a commit: moves the tail if that gives back much, so that few have to wait for it. The daemon does it where there is one.
    pub(crate) fn tidy(&self) {
        let worth_it = {
            let state = self.state.lock();
            let worth_it = state.checkpoint.reclaimable() >= state.log.blocks() / 4;
            worth_it && !state.moving_tail && state.async_checkpoint.is_none()
        };
        if worth_it {
            // An error has latched; this commit is durable all the same.
            let _ = self.move_tail();
        }
        self.wake_checkpointer();
    }

    /// Counts the time somebody waited because the log was full.
    pub(crate) fn count_stall(&self, since: Duration) {
        self.stats().stall_ns.record(nanoseconds(self.runtime.monotonic().saturating_sub(since)));
    }
}

/// The superblock that says where the log begins once what is done has been given back, and how much that is.
fn take_tail(state: &mut State) -> (Superblock, u32) {
    let freed = state.checkpoint.take_reclaimable();
    let mut superblock = state.superblock.clone();
    // Nothing left to replay: the tail is where the next transaction will be, and it has the next number after the last
    // one committed.
    (superblock.sequence, superblock.start) =
        state.checkpoint.front().unwrap_or_else(|| (state.committed.next(), state.committing_start()));
    state.moving_tail = true;
    (superblock, freed)
}

/// True if a transaction that is not durable yet holds the block, too.
fn will_be_superseded(state: &State, pba: Pba) -> bool {
    state.committing_blocks.binary_search(&pba).is_ok()
        || state.running.as_ref().is_some_and(|running| running.buffers.contains_key(&pba))
}
