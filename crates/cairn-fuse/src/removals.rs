//! Space of removed inodes that are not deleted yet.
//!
//! A removed inode is deleted when the kernel sends FORGET. That is after the caller of unlink has
//! got its answer, and the deletion may wait for the disk. An operation that finds no space
//! meanwhile is tried again after the deletion.

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rustix::io::Errno;

/// The kernel may still send FORGET this long after a name was removed. It does not send it while
/// the file is open.
const GRACE: Duration = Duration::from_millis(500);
/// Longest wait for an inode that is being deleted. Only a disk that does not respond takes this
/// long.
const LONGEST: Duration = Duration::from_secs(10);
const LOOK_AGAIN: Duration = Duration::from_millis(1);

pub(crate) struct Removals {
    started: Instant,
    /// When a name was removed last: milliseconds after `started`, and one. Zero: never, or the
    /// wait for it timed out.
    removed: AtomicU64,
    /// FORGET requests that have begun, and that are done.
    begun: AtomicU64,
    done: AtomicU64,
}

impl Removals {
    pub(crate) fn new() -> Self {
        let (removed, begun, done) = (AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0));
        Self { started: Instant::now(), removed, begun, done }
    }

    /// A removed inode may be forgotten soon.
    #[cfg(test)]
    pub(crate) fn is_expected(&self) -> bool {
        self.removed.load(Ordering::Relaxed) != 0
    }

    /// Notes that a name was removed, perhaps the last one of its inode.
    pub(crate) fn note(&self) {
        let now = u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.removed.store(now.saturating_add(1), Ordering::Relaxed);
    }

    /// Carries out a FORGET.
    pub(crate) fn forgetting(&self, forget: impl FnOnce()) {
        self.begun.fetch_add(1, Ordering::Release);
        forget();
        self.done.fetch_add(1, Ordering::Release);
    }

    /// Carries out an operation that takes space. Tries again if it finds none and space may have
    /// been freed since.
    pub(crate) fn taking_space<T>(
        &self,
        mut operation: impl FnMut() -> Result<T, Errno>,
    ) -> Result<T, Errno> {
        let mut refused = None;
        loop {
            let seen = self.done.load(Ordering::Acquire);
            match operation() {
                Err(Errno::NOSPC)
                    if self.comes_back(seen, *refused.get_or_insert_with(Instant::now)) => {}
                done => return done,
            }
        }
    }

    /// Waits until more than `seen` FORGETs are done. False if none is expected.
    fn comes_back(&self, seen: u64, refused: Instant) -> bool {
        loop {
            let waited = refused.elapsed();
            let done = self.done.load(Ordering::Acquire);
            if waited > LONGEST {
                return false;
            }
            if done != seen {
                return true;
            }
            if self.begun.load(Ordering::Acquire) == done {
                let removed = self.removed.load(Ordering::Relaxed);
                let since = removed
                    .checked_sub(1)
                    .map(|at| self.started.elapsed().saturating_sub(Duration::from_millis(at)));
                if since.is_none_or(|since| since > GRACE) {
                    // The removed file is open: no FORGET is expected for it.
                    let _ = self.removed.compare_exchange(
                        removed,
                        0,
                        Ordering::Relaxed,
                        Ordering::Relaxed,
                    );
                    return false;
                }
                // Other threads continue to remove files.
                if waited > GRACE {
                    return false;
                }
            }
            thread::sleep(LOOK_AGAIN);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;
    use std::sync::mpsc;

    use super::*;

    /// The space is there, or there is none.
    fn take(free: &AtomicBool) -> Result<(), Errno> {
        free.load(Ordering::SeqCst).then_some(()).ok_or(Errno::NOSPC)
    }

    /// The request to forget had been taken up before another thread asked for the space, and took
    /// longer than that was willing to wait.
    #[test]
    fn an_inode_that_is_being_deleted_is_waited_for() {
        let (removals, free) = (Removals::new(), AtomicBool::new(false));
        removals.note();
        let (begun, hear) = mpsc::channel();
        thread::scope(|scope| {
            scope.spawn(|| {
                removals.forgetting(|| {
                    begun.send(()).unwrap();
                    thread::sleep(GRACE * 2);
                    free.store(true, Ordering::SeqCst);
                });
            });
            hear.recv().unwrap();
            assert_eq!(removals.taking_space(|| take(&free)), Ok(()));
        });
    }

    #[test]
    fn an_inode_that_is_yet_to_be_forgotten_is_waited_for() {
        let (removals, free) = (Removals::new(), AtomicBool::new(false));
        let (refused, hear) = mpsc::channel();
        removals.note();
        thread::scope(|scope| {
            let (removals, free) = (&removals, &free);
            scope.spawn(move || {
                hear.recv().unwrap();
                removals.forgetting(|| free.store(true, Ordering::SeqCst));
            });
            let taken =
                removals.taking_space(|| take(free).inspect_err(|_| refused.send(()).unwrap()));
            assert_eq!(taken, Ok(()));
        });
    }

    #[test]
    fn a_full_volume_is_full() {
        let removals = Removals::new();
        let mut tries = 0;
        let mut full = || {
            tries += 1;
            Err::<(), _>(Errno::NOSPC)
        };
        assert_eq!(removals.taking_space(&mut full), Err(Errno::NOSPC));
        removals.forgetting(|| {});
        removals.note();
        assert_eq!(removals.taking_space(&mut full), Err(Errno::NOSPC));
        assert_eq!(removals.removed.load(Ordering::SeqCst), 0, "one wait for one removal");
        assert_eq!(tries, 2);
        assert_eq!(removals.taking_space(|| Err::<(), _>(Errno::IO)), Err(Errno::IO));
    }
}
