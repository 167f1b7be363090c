//! [`Progress`]: what a walk has done of its phase, for whom it may concern.
//!
//! Threads of a walk call [`Progress::advance`]. It tells the observer about every hundredth of a
//! phase, so that an observer may be slow.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// A part of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Phase {
    /// Its number, from 1.
    pub number: u32,
    /// Number of phases.
    pub of: u32,
    /// What is checked: `inodes`, `directories`.
    pub what: &'static str,
    /// Steps of the phase, which take about equal time.
    pub total: u64,
}

/// Who wants to know how far the check is. Called by several threads.
pub trait Observer: Send + Sync {
    /// A phase begins.
    fn begin(&self, phase: Phase);

    /// So many steps of the phase are done.
    fn done(&self, steps: u64);

    /// True if the user wants the check to end.
    fn is_cancelled(&self) -> bool {
        false
    }
}

/// Nobody wants to know.
impl Observer for () {
    fn begin(&self, _: Phase) {}

    fn done(&self, _: u64) {}
}

/// Counts the steps of a phase. Threads share it.
pub struct Progress {
    observer: Arc<dyn Observer>,
    phases: u32,
    phase: AtomicU64,
    /// Steps between two calls of the observer.
    stride: AtomicU64,
    done: AtomicU64,
}

impl Progress {
    /// A check with this number of phases.
    #[must_use]
    pub fn new(observer: Arc<dyn Observer>, phases: u32) -> Self {
        let zero = || AtomicU64::new(0);
        Self { observer, phases, phase: zero(), stride: AtomicU64::new(1), done: zero() }
    }

    /// Begins the next phase.
    pub fn begin(&self, what: &'static str, total: u64) {
        let number = self.phase.fetch_add(1, Relaxed).saturating_add(1);
        self.stride.store(total.div_euclid(100).max(1), Relaxed);
        self.done.store(0, Relaxed);
        let number = u32::try_from(number).unwrap_or(u32::MAX);
        self.observer.begin(Phase { number, of: self.phases, what, total });
    }

    /// Adds steps that are done.
    pub fn advance(&self, steps: u64) {
        let before = self.done.fetch_add(steps, Relaxed);
        let after = before.saturating_add(steps);
        let stride = self.stride.load(Relaxed).max(1);
        if before.div_euclid(stride) != after.div_euclid(stride) {
            self.observer.done(after);
        }
    }

    /// True if the user wants the check to end. A walk asks in each of its loops over groups,
    /// blocks of inodes or directories.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.observer.is_cancelled()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cairn_base::ranked_lock::{Mutex, Rank};

    struct Log(Mutex<Vec<String>>);

    impl Observer for Log {
        fn begin(&self, phase: Phase) {
            let Phase { number, of, what, total } = phase;
            self.0.lock().push(format!("{number}/{of} {what} {total}"));
        }

        fn done(&self, steps: u64) {
            self.0.lock().push(steps.to_string());
        }
    }

    #[test]
    fn an_observer_hears_of_each_hundredth() {
        let log = Arc::new(Log(Mutex::new(Rank::Leaf, Vec::new())));
        let progress = Progress::new(log.clone(), 2);
        progress.begin("inodes", 1000);
        (0..1000).for_each(|_| progress.advance(1));
        progress.begin("directories", 3);
        progress.advance(3);
        let lines = log.0.lock();
        assert_eq!(lines.len(), 103);
        assert_eq!((&*lines[0], &*lines[100]), ("1/2 inodes 1000", "1000"));
        assert_eq!((&*lines[101], &*lines[102]), ("2/2 directories 3", "3"));
    }
}
