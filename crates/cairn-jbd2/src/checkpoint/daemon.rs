//! The checkpoint daemon (mount option `async_checkpoint`): keeps part of the log free, so that
//! handles need not wait for a checkpoint. It exists only while the option is on.
//!
//! Commits, other checkpointers and a change of the option wake the daemon. It continues by itself
//! while the log is below the threshold and there is something to write.
//!
//! While at least half of the threshold is free, it leaves out blocks that a newer transaction will
//! supersede. Below that it writes their committed versions, so that it waits for no commit.

use std::sync::{Arc, Weak};

use cairn_base::runtime::{Daemon, Progress};

use super::{Checkpointer, Outcome};
use crate::error::{Error, Result};
use crate::journal::Journal;

/// Percentage of the log that `async_checkpoint` without a value keeps free.
pub const DEFAULT_ASYNC_CHECKPOINT: u8 = 50;
/// Most log blocks freed with one flush and one superblock write.
const ROUND_MAX: u32 = 8192;

/// Refuses a percentage outside of 1 to 99.
pub(crate) fn check_percent(percent: Option<u8>) -> Result<()> {
    match percent {
        Some(percent) if !(1..=99).contains(&percent) => Err(Error::Threshold { percent }),
        _ => Ok(()),
    }
}

/// The daemon's body. It does not keep the journal in memory.
struct CheckpointDaemon(Weak<Journal>);

impl Daemon for CheckpointDaemon {
    fn step(&self) -> Progress {
        let Some(journal) = self.0.upgrade() else { return Progress::Done };
        journal.checkpoint_in_background()
    }
}

impl Journal {
    /// Starts the checkpoint daemon, stops it, or changes the percentage of the log that it keeps
    /// free. Takes effect at once, also under load.
    ///
    /// # Errors
    /// The percentage is not 1 to 99, or the system has no thread for the daemon.
    pub fn set_async_checkpoint(self: &Arc<Self>, percent: Option<u8>) -> Result<()> {
        check_percent(percent)?;
        let stopped = {
            let mut daemon = self.checkpoint_daemon.lock();
            let open = {
                let mut state = self.state.lock();
                state.checkpointing.async_percent = percent;
                state.aborted.is_none()
            };
            match percent {
                None => daemon.take(),
                Some(_) => {
                    if daemon.is_none() && open {
                        let body = Arc::new(CheckpointDaemon(Arc::downgrade(self)));
                        let started = self.runtime.spawn(
                            "jbd2-checkpoint",
                            self.checkpoint_wake.clone(),
                            body,
                        );
                        *daemon = Some(started.inspect_err(|_| {
                            self.state.lock().checkpointing.async_percent = None
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

    /// The percentage of the log that the daemon keeps free. `None` if there is no daemon.
    #[must_use]
    pub fn async_checkpoint(&self) -> Option<u8> {
        self.state.lock().checkpointing.async_percent
    }

    pub(crate) fn stop_checkpoint_daemon(&self) {
        let daemon = self.checkpoint_daemon.lock().take();
        if let Some(daemon) = daemon {
            daemon.stop();
        }
    }

    /// Wakes the daemon if the log is below the threshold.
    pub(crate) fn wake_checkpoint_daemon(&self) {
        let below = {
            let state = self.state.lock();
            let threshold = state.checkpointing.threshold(state.log.blocks());
            threshold.is_some_and(|threshold| state.log.free() < threshold)
        };
        if below {
            self.checkpoint_wake.notify();
        }
    }

    /// The daemon's step.
    fn checkpoint_in_background(&self) -> Progress {
        let (log_blocks, skip_busy) = {
            let state = self.state.lock();
            let blocks = state.log.blocks();
            let Some(threshold) = state.checkpointing.threshold(blocks) else {
                return Progress::Idle(None);
            };
            let free = state.log.free();
            if free >= threshold || state.aborted.is_some() {
                return Progress::Idle(None);
            }
            // At least an eighth of the log: each round costs a flush.
            let round = (blocks / 8).min(ROUND_MAX);
            ((threshold - free).clamp(round, ROUND_MAX.max(round)), free >= threshold / 2)
        };
        self.stats.async_runs.add(1);
        match self.try_checkpoint(log_blocks, Checkpointer::Daemon { skip_busy }) {
            Ok(Outcome::Progress) => Progress::Worked,
            // The next commit or the other checkpointer wakes the daemon.
            Ok(Outcome::NothingToDo | Outcome::Busy) => Progress::Idle(None),
            // The journal was aborted.
            Err(_) => Progress::Idle(None),
        }
    }
}
