//! Callers that share a commit (jbd2's transaction batching).
//!
//! A leader that committed at once would commit for itself alone, and all other callers would wait
//! for the next commit. If the last commit was shared, the leader therefore waits until as many
//! callers wait for this one. A lone caller never waits.

use std::time::Duration;

/// Longest time that a leader waits for other callers (`j_max_batch_time`).
pub(crate) const MAX_BATCH_TIME: Duration = Duration::from_millis(15);
/// Commits that are faster than this are not worth a wait, which takes about as long itself.
const MIN_BATCH_TIME: Duration = Duration::from_micros(50);

/// What past commits tell about the next one.
#[derive(Default)]
pub(crate) struct Batching {
    /// Waiters that a leader waits for at this moment.
    target: Option<u32>,
    /// Callers that the last commit was made for.
    last_waiters: u32,
    /// Weighted mean of the last commits' times (`j_average_commit_time`).
    average_commit_time: Duration,
}

impl Batching {
    /// Waiters that a leader waits for at this moment.
    pub(crate) fn target(&self) -> Option<u32> {
        self.target
    }

    /// Longest time between two arrivals.
    pub(crate) fn patience(&self) -> Duration {
        self.average_commit_time.min(MAX_BATCH_TIME)
    }

    /// Begins a wait for other callers, if it is worthwhile. `waiters` wait for the commit already;
    /// `contended`: the leader has itself waited for another commit.
    #[must_use]
    pub(crate) fn try_begin(&mut self, waiters: u32, contended: bool) -> bool {
        debug_assert!(self.target.is_none(), "two leaders wait for other callers");
        let target = match (contended, self.last_waiters) {
            (true, last) => waiters.saturating_add(last),
            (false, last @ 2..) => last,
            (false, _) => 0,
        };
        let worthwhile = waiters < target && self.average_commit_time >= MIN_BATCH_TIME;
        if worthwhile {
            self.target = Some(target);
        }
        worthwhile
    }

    /// The leader stops waiting.
    pub(crate) fn end(&mut self) {
        debug_assert!(self.target.is_some(), "no leader waits for other callers");
        self.target = None;
    }

    /// A commit for so many waiters took this long.
    pub(crate) fn record(&mut self, waiters: u32, took: Duration) {
        let average = self.average_commit_time;
        self.average_commit_time = if average.is_zero() { took } else { (average * 3 + took) / 4 };
        self.last_waiters = waiters;
    }
}
