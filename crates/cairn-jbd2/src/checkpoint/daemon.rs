//! `async_checkpoint`: a daemon that keeps part of the log free, so that handles need not wait for it.
//!
//! It is woken by commits (which alone use up log space), by checkpoints of others and by the setter; while the log is below the
//! threshold and there is something to write it goes on by itself. It exists only while the option is on.
//!
//! What a transaction that is not durable yet will supersede is left alone as long as at least half of the threshold is free. Below that
//! it goes home as well: its committed version is held, so nobody's commit has to be waited for.

use std::sync::{Arc, Weak};

use cairn_base::runtime::{Daemon, Progress};

use super::{Behalf, Outcome};
use crate::error::{Error, Result};
use crate::journal::{Journal, State};

/// Percentage of the log that `async_checkpoint` without a value keeps free.
pub const DEFAULT_ASYNC_CHECKPOINT: u8 = 50;
/// Most log blocks freed with one flush and one superblock write.
const ROUND_MAX: u32 = 8192;

/// A log share that can be kept free: 1 to 99 percent.
pub(crate) fn check_threshold(percent: Option<u8>) -> Result<()> {
    match percent {
        Some(percent) if !(1..=99).contains(&percent) => Err(Error::Threshold { percent }),
        _ => Ok(()),
    }
}

struct CheckpointDaemon(Weak<Journal>);

impl Daemon for CheckpointDaemon {
    fn step(&self) -> Progress {
        let Some(journal) = self.0.upgrade() else { return Progress::Done };
        journal.checkpoint_ahead()
    }
}

impl State {
    /// Log blocks to be kept free.
    pub(crate) fn threshold(&self) -> Option<u32> {
        let percent = u64::from(self.async_checkpoint?);
        u32::try_from(u64::from(self.log.blocks()) * percent / 100).ok()
    }

    fn is_below_threshold(&self) -> bool {
        self.threshold().is_some_and(|threshold| self.log.free() < threshold)
    }
}

impl Journal {
    /// Switches asynchronous checkpointing on (keep so many percent of the log free), off, or to another threshold. Takes effect at
    /// once, also under load.
    ///
    /// # Errors
    /// The percentage is not 1 to 99, or the system has no thread for the daemon.
    pub fn set_async_checkpoint(self: &Arc<Self>, percent: Option<u8>) -> Result<()> {
        check_threshold(percent)?;
        let stopped = {
            let mut daemon = self.checkpoint_daemon.lock();
            let open = {
                let mut state = self.state.lock();
                state.async_checkpoint = percent;
                state.aborted.is_none()
            };
            match percent {
                None => daemon.take(),
                Some(_) => {
                    if daemon.is_none() && open {
                        let body = Arc::new(CheckpointDaemon(Arc::downgrade(self)));
                        let started = self.runtime.spawn("jbd2-checkpoint", self.checkpoint_wake.clone(), body);
                        *daemon = Some(started.inspect_err(|_| self.state.lock().async_checkpoint = None)?);
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

    /// The percentage of the log that is kept free, if it is.
    #[must_use]
    pub fn async_checkpoint(&self) -> Option<u8> {
        self.state.lock().async_checkpoint
    }

    pub(crate) fn stop_checkpointer(&self) {
        let daemon = self.checkpoint_daemon.lock().take();
        if let Some(daemon) = daemon {
            daemon.stop();
        }
    }

    /// Wakes the daemon if the log is too full.
    pub(crate) fn wake_checkpointer(&self) {
        if self.state.lock().is_below_threshold() {
            self.checkpoint_wake.notify();
        }
    }

    /// The daemon's step: one round.
    fn checkpoint_ahead(&self) -> Progress {
        let (log_blocks, patient) = {
            let state = self.state.lock();
            let Some(threshold) = state.threshold() else { return Progress::Idle(None) };
            let free = state.log.free();
            if free >= threshold || state.aborted.is_some() {
                return Progress::Idle(None);
            }
            // Not less than an eighth of the log: each round costs a flush.
            let round = (state.log.blocks() / 8).min(ROUND_MAX);
            ((threshold - free).clamp(round, ROUND_MAX.max(round)), free >= threshold / 2)
        };
        self.stats().async_runs.add(1);
        match self.try_checkpoint(log_blocks, Behalf::Daemon { patient }) {
            Ok(Outcome::Progress) => Progress::Worked,
            // The commit, or whoever checkpoints now, wakes us.
            Ok(Outcome::Nothing | Outcome::Busy) => Progress::Idle(None),
            // The journal has stopped.
            Err(_) => Progress::Idle(None),
        }
    }
}
