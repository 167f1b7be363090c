//! The checkpoint daemon (mount option `async_checkpoint`): keeps part of the log free, so that
//! handles need not wait for a checkpoint. It exists only while the option is on.
//!
//! Commits, other checkpointers and a change of the option wake the daemon. It continues by itself
//! while too little of the log is free and there is something to write.
//!
//! While at least half of what it keeps is free, it leaves out blocks that a newer transaction will
//! supersede. Below that it writes their committed versions, so that it waits for no commit.
//!
//! **Flushes.** With [`KeepFree::AsNeeded`], the next commit's flush covers what the daemon has
//! written, and a commit updates the log tail: a flush of its own would delay the commits. The
//! daemon flushes itself if the log is nearly full, or after a rest, when no commit follows.

use std::sync::{Arc, Weak};
use std::time::Duration;

use cairn_base::runtime::{Daemon, Progress};

use super::keep_free::{KeepFree, ROUND_MAX, round_of};
use super::{Checkpointer, Outcome};
use crate::error::Result;
use crate::journal::Journal;
use crate::state::State;

/// The daemon's body. It does not keep the journal in memory.
struct CheckpointDaemon(Weak<Journal>);

impl Daemon for CheckpointDaemon {
    fn step(&self) -> Progress {
        let Some(journal) = self.0.upgrade() else { return Progress::Done };
        journal.checkpoint_in_background()
    }
}

/// What the daemon does next.
enum Next {
    /// Frees log blocks.
    Round { log_blocks: u32, skip_busy: bool, flush: bool },
    /// Nothing, or nothing before this time has passed.
    Wait(Progress),
}

impl Journal {
    /// Starts the checkpoint daemon, stops it, or changes what it keeps free of the log. Takes
    /// effect at once, also under load.
    ///
    /// # Errors
    /// The percentage is not 1 to 99, or the system has no thread for the daemon.
    pub fn set_async_checkpoint(self: &Arc<Self>, keep: Option<KeepFree>) -> Result<()> {
        KeepFree::check(keep)?;
        let stopped = {
            let mut daemon = self.checkpoint_daemon.lock();
            let open = {
                let mut state = self.state.lock();
                state.checkpointing.keep_free = keep;
                state.aborted.is_none()
            };
            match keep {
                None => daemon.take(),
                Some(_) => {
                    if daemon.is_none() && open {
                        let body = Arc::new(CheckpointDaemon(Arc::downgrade(self)));
                        let started = self.runtime.spawn(
                            "jbd2-checkpoint",
                            self.checkpoint_wake.clone(),
                            body,
                        );
                        *daemon =
                            Some(started.inspect_err(|_| {
                                self.state.lock().checkpointing.keep_free = None
                            })?);
                    }
                    None
                }
            }
        };
        if let Some(daemon) = stopped {
            daemon.stop();
        }
        self.checkpoint_wake.notify();
        Ok(())
    }

    /// What the daemon keeps free of the log. `None` if there is no daemon.
    #[must_use]
    pub fn async_checkpoint(&self) -> Option<KeepFree> {
        self.state.lock().checkpointing.keep_free
    }

    pub(crate) fn stop_checkpoint_daemon(&self) {
        let daemon = self.checkpoint_daemon.lock().take();
        if let Some(daemon) = daemon {
            daemon.stop();
        }
    }

    /// Wakes the daemon if it has something to do.
    pub(crate) fn wake_checkpoint_daemon(&self) {
        let wakes = {
            let state = self.state.lock();
            let checkpointing = &state.checkpointing;
            let (blocks, free) = (state.log.blocks(), state.log.free());
            checkpointing.keep_free.is_some_and(|keep| match keep {
                KeepFree::Percent(_) => free < keep.most(blocks),
                // It looks after a rest by itself, once it has begun to wait for one.
                KeepFree::AsNeeded => {
                    let rests = free >= keep.most(blocks) || checkpointing.waits_for_rest;
                    !rests || need(&state) != Need::Nothing
                }
            })
        };
        if wakes {
            self.checkpoint_wake.notify();
        }
    }

    /// The daemon's step.
    fn checkpoint_in_background(&self) -> Progress {
        let (log_blocks, skip_busy, flush) = match self.next_round() {
            Next::Round { log_blocks, skip_busy, flush } => (log_blocks, skip_busy, flush),
            Next::Wait(progress) => return progress,
        };
        self.stats.async_runs.add(1);
        match self.try_checkpoint(log_blocks, Checkpointer::Daemon { skip_busy, flush }) {
            Ok(Outcome::Progress) => Progress::Worked,
            // The next commit or the other checkpointer wakes the daemon.
            Ok(Outcome::NothingToDo | Outcome::Busy) => self.wait_for_rest(),
            // The journal was aborted.
            Err(_) => Progress::Idle(None),
        }
    }

    fn next_round(&self) -> Next {
        let now = self.runtime.monotonic();
        let mut guard = self.state.lock();
        let state = &mut *guard;
        state.checkpointing.waits_for_rest = false;
        let (blocks, free) = (state.log.blocks(), state.log.free());
        let Some(keep) = state.checkpointing.keep_free else {
            return Next::Wait(Progress::Idle(None));
        };
        let most = keep.most(blocks);
        let enough = free >= most && (keep != KeepFree::AsNeeded || need(state) == Need::Nothing);
        if enough || state.aborted.is_some() {
            return Next::Wait(Progress::Idle(None));
        }
        let round = round_of(blocks);
        let until_rest = match keep {
            KeepFree::AsNeeded => until_rest(state, now),
            KeepFree::Percent(_) => Duration::ZERO,
        };
        if until_rest.is_zero() {
            let log_blocks = most.saturating_sub(free).clamp(round, ROUND_MAX.max(round));
            return Next::Round { log_blocks, skip_busy: free >= most / 2, flush: true };
        }
        let need = need(state);
        if need == Need::Nothing {
            state.checkpointing.waits_for_rest = true;
            return Next::Wait(Progress::Idle(Some(until_rest)));
        }
        let least = state.checkpointing.least_free(blocks, free);
        let log_blocks = (least + round - free.min(least)).min(ROUND_MAX.max(round));
        let flush = need == Need::Now;
        Next::Round { log_blocks, skip_busy: !flush, flush }
    }

    /// Nothing can be done now. With [`KeepFree::AsNeeded`], what was written must be flushed after
    /// a rest.
    fn wait_for_rest(&self) -> Progress {
        let now = self.runtime.monotonic();
        let mut state = self.state.lock();
        let until_rest = until_rest(&state, now);
        let lazy = state.checkpointing.keep_free == Some(KeepFree::AsNeeded);
        state.checkpointing.waits_for_rest = lazy && !until_rest.is_zero();
        Progress::Idle(state.checkpointing.waits_for_rest.then_some(until_rest))
    }
}

/// How long it takes until the log rests.
fn until_rest(state: &State, now: Duration) -> Duration {
    let running = state.running.transaction().is_some() || !state.committing.is_idle();
    state.checkpointing.pace.until_rest(running, now)
}

/// What the next commits need of the daemon.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Need {
    /// Enough of the log is free, or will be soon.
    Nothing,
    /// More blocks written home, in time for the flush of a commit.
    Blocks,
    /// Free log blocks, before commits have flushed.
    Now,
}

fn need(state: &State) -> Need {
    let (list, pace) = (&state.checkpointing.list, &state.checkpointing.pace);
    let (blocks, free) = (state.log.blocks(), state.log.free());
    let coming = list.reclaimable().saturating_add(list.written_log_blocks());
    let low = free.saturating_add(coming) < state.checkpointing.least_free(blocks, free);
    match free < pace.urgent() {
        true if low || coming > 0 => Need::Now,
        false if low => Need::Blocks,
        _ => Need::Nothing,
    }
}
