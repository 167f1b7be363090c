//! Who commits: whoever waits for a commit leads it if nobody else does, and the daemon commits what has become old.
//!
//! **Sharing.** Whoever led at once would commit for himself alone while all others wait for the next commit. So where the last commit was
//! shared, or others were waited for, the leader first lets those come who were there the last time, as long as they keep coming
//! and not longer than [`GATHER_MAX`]. A lone caller never waits. Who cannot go on without the commit does not wait for this either.

use std::sync::Arc;
use std::time::Duration;

use cairn_base::Tid;
use cairn_base::runtime::{Daemon, Progress};

use crate::error::{Error, Result};
use crate::journal::{Journal, State};
use crate::log_space;
use crate::transaction::Running;

/// Longest time a leader waits for others: jbd2's `max_batch_time`.
const GATHER_MAX: Duration = Duration::from_millis(15);
/// Waiting takes about this long itself: commits that are faster are not worth it.
const GATHER_MIN: Duration = Duration::from_micros(50);

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

/// Where a caller stands on the way to its commit.
#[derive(Clone, Copy)]
struct Turn {
    wanted: Wanted,
    /// It has waited for somebody else's commit.
    contended: bool,
    /// It has let others come, or need not.
    gathered: bool,
}

enum Lead {
    Done,
    /// Somebody else commits.
    Wait,
    /// The caller is to let others come first.
    Gather,
    /// Somebody else lets others come.
    Gathering,
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
        let mut turn = Turn { wanted, contended: false, gathered: wanted != Wanted::Durable };
        if wanted == Wanted::Durable {
            self.register_waiter(tid);
        }
        loop {
            match self.try_lead(tid, turn) {
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
                    turn.contended = true;
                    self.wait(|state| {
                        state.aborted.is_some() || state.committed.is_at_or_after(tid) || can_lead(state)
                    });
                }
                Lead::Gather => {
                    self.gather(tid);
                    turn.gathered = true;
                }
                Lead::Gathering => {
                    let mut over = || {
                        let state = self.state.lock();
                        state.aborted.is_some() || state.committed.is_at_or_after(tid) || state.gathering.is_none()
                    };
                    turn.gathered |= !self.runtime.wait_until_timeout(&self.changed, GATHER_MAX, &mut over);
                }
            }
        }
    }

    fn register_waiter(&self, tid: Tid) {
        let complete = {
            let mut state = self.state.lock();
            let expected = state.gathering;
            let Some(running) = state.running.as_mut().filter(|running| running.tid == tid) else { return };
            running.waiters += 1;
            expected.is_some_and(|expected| running.waiters >= expected)
        };
        if complete {
            self.arrived.notify();
        }
    }

    /// Lets others join and ask for this commit, too: all that were there the last time, or as many as keep coming.
    fn gather(&self, tid: Tid) {
        let started = self.runtime.monotonic();
        let mut seen = 0;
        loop {
            let (waiters, expected, patience) = {
                let state = self.state.lock();
                let waiters =
                    state.running.as_ref().filter(|running| running.tid == tid).map(|running| running.waiters);
                (waiters, state.gathering, state.commit_mean.min(GATHER_MAX))
            };
            let (Some(waiters), Some(expected)) = (waiters, expected) else { break };
            let over = self.runtime.monotonic().saturating_sub(started) >= GATHER_MAX;
            if waiters >= expected || waiters == seen || over {
                break;
            }
            seen = waiters;
            self.runtime.wait_until_timeout(&self.arrived, patience, &mut || {
                let state = self.state.lock();
                let running = state.running.as_ref().filter(|running| running.tid == tid && !running.locked);
                state.aborted.is_some() || running.is_none_or(|running| running.waiters >= expected)
            });
        }
        self.state.lock().gathering = None;
    }

    /// Asks for a commit without waiting for it.
    pub fn request_commit(&self, tid: Tid) {
        {
            let now = self.runtime.monotonic();
            let mut state = self.state.lock();
            match &mut state.running {
                Some(running) if running.tid == tid => {
                    running.requested.get_or_insert(now);
                    running.for_daemon = true;
                }
                _ => return,
            }
        }
        self.wake.notify();
    }

    /// Makes everything durable that was changed so far.
    ///
    /// # Errors
    /// The journal has stopped.
    pub fn force_commit(&self) -> Result<()> {
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
                    (running.tid, if running.for_daemon { Duration::ZERO } else { left })
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

    fn try_lead(&self, tid: Tid, turn: Turn) -> Lead {
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
            && turn.wanted != Wanted::ByAge
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
        if !turn.gathered {
            if state.gathering.is_some() {
                return Lead::Gathering;
            }
            let others = if turn.contended || state.last_waiters > 1 { state.last_waiters } else { 0 };
            let expected = if turn.contended { running.waiters + others } else { others };
            if running.waiters < expected && state.commit_mean >= GATHER_MIN {
                state.gathering = Some(expected);
                return Lead::Gather;
            }
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
            (running.revoke_blocks, running.waiters, running.for_daemon) = (0, 0, false);
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
