//! The commit daemon (jbd2's `kjournald2`): commits the running transaction when it is old enough,
//! or when [`Journal::request_commit`] asks for it.

use std::sync::{Arc, Weak};
use std::time::Duration;

use cairn_base::Tid;
use cairn_base::runtime::{Daemon, Progress};

use crate::journal::Journal;

/// A postponed commit is due again after this long.
const POSTPONED: Duration = Duration::from_secs(1);

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

    /// The daemon's step.
    fn commit_if_due(&self) -> Progress {
        let now = self.runtime.monotonic();
        let (tid, due_in) = {
            let mut guard = self.state.lock();
            let state = &mut *guard;
            let aborted = state.aborted.is_some();
            let Some(running) = state.running.transaction().filter(|_| !aborted) else {
                return Progress::Idle(state.running.daemon_rests());
            };
            let age = now.saturating_sub(running.started);
            let left = state.running.commit_interval.saturating_sub(age);
            (running.tid, if running.commit_requested { Duration::ZERO } else { left })
        };
        if due_in > Duration::ZERO {
            return Progress::Idle(Some(due_in));
        }
        if self.postpones_commits.get().is_some_and(|postpones| postpones()) {
            return Progress::Idle(Some(POSTPONED));
        }
        // An error has aborted the journal. The next caller gets it.
        let _ = self.commit_by_age(tid);
        Progress::Worked
    }
}
