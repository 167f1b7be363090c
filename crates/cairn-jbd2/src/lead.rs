//! Who commits: whoever waits for a commit leads it if nobody else does, and the daemon commits what has become old.

use std::sync::Arc;
use std::time::Duration;

use cairn_base::Tid;
use cairn_base::runtime::{Daemon, Progress};

use crate::error::{Error, Result};
use crate::journal::{Journal, State};
use crate::log_space;
use crate::transaction::Running;

/// Commits the running transaction when it is old enough.
pub(crate) struct CommitDaemon(pub std::sync::Weak<Journal>);

impl Daemon for CommitDaemon {
    fn step(&self) -> Progress {
        let Some(journal) = self.0.upgrade() else { return Progress::Done };
        journal.commit_if_due()
    }
}

/// Why a commit is wanted.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Wanted {
    /// Somebody wants the transaction to be durable.
    Durable,
    /// Somebody needs the next transaction, or the room.
    Urgently,
    /// It is old.
    ByAge,
}

enum Lead {
    Done,
    Wait,
    Empty,
    Mine(Running),
    Aborted(Arc<str>),
}

fn can_lead(state: &State) -> bool {
    state.committing.is_none()
}

impl Journal {
    /// Makes a transaction durable. The caller leads the commit if nobody else does. Returns at once if it is already durable.
    ///
    /// # Errors
    /// The journal has stopped.
    pub fn commit_and_wait(&self, tid: Tid) -> Result<()> {
        self.commit_for(tid, Wanted::Durable)
    }

    /// The same, on behalf of somebody who cannot go on before.
    pub(crate) fn commit_urgently(&self, tid: Tid) -> Result<()> {
        self.commit_for(tid, Wanted::Urgently)
    }

    fn commit_for(&self, tid: Tid, wanted: Wanted) -> Result<()> {
        if wanted == Wanted::Durable {
            self.register_waiter(tid);
        }
        loop {
            match self.try_lead(tid, wanted) {
                Lead::Done => return Ok(()),
                Lead::Aborted(reason) => return Err(Error::Aborted(reason)),
                // Nothing to log; file data written so far is still to be made durable.
                Lead::Empty => {
                    return self.buffers.device().flush().map_err(|error| {
                        self.abort(&format!("flush failed: {error}"));
                        Error::from(error)
                    });
                }
                Lead::Mine(running) => self.commit(running)?,
                Lead::Wait => {
                    self.wait(|state| {
                        state.aborted.is_some() || state.committed.is_at_or_after(tid) || can_lead(state)
                    });
                }
            }
        }
    }

    fn register_waiter(&self, tid: Tid) {
        let mut state = self.state.lock();
        if let Some(running) = state.running.as_mut().filter(|running| running.tid == tid) {
            running.waiters += 1;
        }
    }

    /// Asks for a commit without waiting for it.
    pub fn request_commit(&self, tid: Tid) {
        {
            let now = self.runtime.monotonic();
            let mut state = self.state.lock();
            match &mut state.running {
                Some(running) if running.tid == tid => running.requested.get_or_insert(now),
                _ => return,
            };
        }
        self.wake.notify();
    }

    /// Makes everything durable that was changed so far.
    ///
    /// # Errors
    /// The journal has stopped.
    pub fn commit_running(&self) -> Result<()> {
        let tid = {
            let state = self.state.lock();
            if let Some(reason) = &state.aborted {
                return Err(Error::Aborted(reason.clone()));
            }
            match (&state.running, state.committing) {
                (Some(running), _) => running.tid,
                (None, Some(tid)) => tid,
                (None, None) => return Ok(()),
            }
        };
        self.commit_urgently(tid)
    }

    /// The commit daemon's step: commits what is old enough or was asked for.
    fn commit_if_due(&self) -> Progress {
        let now = self.runtime.monotonic();
        let (tid, due) = {
            let state = self.state.lock();
            match &state.running {
                _ if state.aborted.is_some() => return Progress::Idle(None),
                Some(running) => {
                    let age = now.saturating_sub(running.started);
                    let left = state.commit_interval.saturating_sub(age);
                    (running.tid, if running.requested.is_some() { Duration::ZERO } else { left })
                }
                None => return Progress::Idle(None),
            }
        };
        if due > Duration::ZERO {
            return Progress::Idle(Some(due));
        }
        // An error has latched; whoever asks next is told.
        let _ = self.commit_for(tid, Wanted::ByAge);
        Progress::Worked
    }

    fn try_lead(&self, tid: Tid, wanted: Wanted) -> Lead {
        let now = self.runtime.monotonic();
        let mut guard = self.state.lock();
        let state = &mut *guard;
        if state.committed.is_at_or_after(tid) {
            return Lead::Done;
        }
        if let Some(reason) = &state.aborted {
            return Lead::Aborted(reason.clone());
        }
        if let Some(running) = state.running.as_mut().filter(|running| running.tid == tid)
            && wanted != Wanted::ByAge
        {
            running.requested.get_or_insert(now);
        }
        if !can_lead(state) {
            return Lead::Wait;
        }
        let Some(running) = &mut state.running else { return Lead::Done };
        if running.tid.is_after(tid) {
            return Lead::Done;
        }
        running.locked = true;
        running.closed = now;
        let tid = running.tid;
        state.committing = Some(tid);
        drop(guard);
        // Handles that are open may finish; new ones wait.
        self.wait(|state| state.aborted.is_some() || state.running.as_ref().is_none_or(|running| running.handles == 0));
        self.take_locked()
    }

    /// The leader takes the locked transaction, unless there is nothing in it.
    fn take_locked(&self) -> Lead {
        let mut guard = self.state.lock();
        let state = &mut *guard;
        if let Some(reason) = &state.aborted {
            return Lead::Aborted(reason.clone());
        }
        let running = state.running.as_mut().expect("the leader alone takes the locked transaction");
        if running.buffers.is_empty() && running.revokes.is_empty() && running.hooks.is_empty() {
            // It stays open, as if it had just begun.
            (running.locked, running.requested, running.started) = (false, None, self.runtime.monotonic());
            (running.revoke_blocks, running.waiters) = (0, 0);
            state.committing = None;
            drop(guard);
            self.changed.notify();
            return Lead::Empty;
        }
        let running = state.running.take().expect("it is there");
        state.committing_needs = log_space::needed(&self.layout, running.copies(), running.revoke_count());
        state.pinning = true;
        Lead::Mine(running)
    }
}
