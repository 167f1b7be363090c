//! The commit daemon (jbd2's `kjournald2`): commits the running transaction when it is old enough,
//! or when [`Journal::request_commit`] asks for it.

use std::sync::{Arc, Weak};
use std::time::Duration;

use cairn_base::Tid;
use cairn_base::runtime::{Daemon, Progress};

use crate::journal::Journal;

/// A postponed commit is due again after this long.
const POSTPONED: Duration = Duration::from_secs(1);
/// A handle that waits longer than this for the daemon commits itself.
const PATIENCE: Duration = Duration::from_secs(1);

/// The daemon's body. It does not keep the journal in memory.
pub(crate) struct CommitDaemon(Weak<Journal>);

impl CommitDaemon {
    /// The daemon of this journal.
    pub(crate) fn new(journal: &Arc<Journal>) -> Self {
        Self(Arc::downgrade(journal))
    }
}

impl Daemon for CommitDaemon {
    fn step(&self) -> Progress {
        let Some(journal) = self.0.upgrade() else { return Progress::Done };
        journal.commit_if_due()
    }
}

impl Journal {
    /// Asks the commit daemon for a commit, without waiting for it (`jbd2_log_start_commit`).
    pub fn request_commit(&self, tid: Tid) {
        {
            let now = self.runtime.monotonic();
            let mut state = self.state.lock();
            let Some(running) = state.running.with_tid(tid) else { return };
            running.requested_at.get_or_insert(now);
            running.commit_requested = true;
        }
        self.commit_wake.notify();
    }

    /// Asks the commit daemon to commit a full transaction, and waits until handles can join the
    /// next one. The commit goes on meanwhile. False if the daemon has not begun it for long.
    pub(crate) fn close_full(&self, tid: Tid) -> bool {
        {
            let now = self.runtime.monotonic();
            let mut state = self.state.lock();
            let Some(running) = state.running.with_tid(tid) else { return true };
            running.requested_at.get_or_insert(now);
            (running.commit_requested, running.is_full) = (true, true);
        }
        self.commit_wake.notify();
        self.runtime.wait_until_timeout(&self.changed, PATIENCE, &mut || {
            let mut state = self.state.lock();
            state.aborted.is_some() || state.running.with_tid(tid).is_none()
        })
    }

    /// The daemon's step.
    fn commit_if_due(&self) -> Progress {
        let now = self.runtime.monotonic();
        let (tid, due_in, is_full) = {
            let mut guard = self.state.lock();
            let state = &mut *guard;
            let aborted = state.aborted.is_some();
            let Some(running) = state.running.transaction().filter(|_| !aborted) else {
                return Progress::Idle(state.running.daemon_rests());
            };
            let age = now.saturating_sub(running.started);
            let left = state.running.commit_interval.saturating_sub(age);
            let due_in = if running.commit_requested { Duration::ZERO } else { left };
            (running.tid, due_in, running.is_full)
        };
        if due_in > Duration::ZERO {
            return Progress::Idle(Some(due_in));
        }
        if !is_full && self.postpones_commits.get().is_some_and(|postpones| postpones()) {
            return Progress::Idle(Some(POSTPONED));
        }
        // An error has aborted the journal. The next caller gets it.
        let _ = self.commit_by_age(tid);
        Progress::Worked
    }
}
