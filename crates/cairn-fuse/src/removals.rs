//! What removed names have taken, on its way back.
//!
//! A removed inode is deleted only when the kernel forgets it, which it tells after it has answered
//! whoever removed the name; and to delete it may have to wait for the disk. Whoever finds no space
//! meanwhile tries again once it has been done.

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rustix::io::Errno;

/// So long after a name was removed the kernel may still be about to forget its inode. It does not,
/// if the file is open.
const GRACE: Duration = Duration::from_millis(500);
/// Longest wait for an inode that is being deleted: only a disk that does not answer takes as long.
const LONGEST: Duration = Duration::from_secs(10);
const LOOK_AGAIN: Duration = Duration::from_millis(1);

pub(crate) struct Removals {
    started: Instant,
    /// When a name was removed last: milliseconds after `started`, and one. Zero: never, or a wait
    /// for it was in vain.
    removed: AtomicU64,
    /// Forgetting requests taken up, and carried out.
    begun: AtomicU64,
    done: AtomicU64,
}

impl Removals {
    pub(crate) fn new() -> Self {
        let (removed, begun, done) = (AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0));
        Self { started: Instant::now(), removed, begun, done }
    }

    /// Something that was removed may be about to be forgotten.
    #[cfg(test)]
    pub(crate) fn is_expected(&self) -> bool {
        self.removed.load(Ordering::Relaxed) != 0
    }

    /// A name was removed, and perhaps the last one of an inode.
    pub(crate) fn note(&self) {
        let now = u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.removed.store(now.saturating_add(1), Ordering::Relaxed);
    }

    /// Carries out what the kernel forgets.
    pub(crate) fn forgetting(&self, forget: impl FnOnce()) {
        self.begun.fetch_add(1, Ordering::Release);
        forget();
        self.done.fetch_add(1, Ordering::Release);
    }

    /// Carries out what takes space, again when space may have come back since it found none.
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

    /// Waits until something has been forgotten beyond `seen`. False if that is not to be expected.
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
                    // The file that was removed is open. Of this removal nothing more is expected.
                    let _ = self.removed.compare_exchange(
                        removed,
                        0,
                        Ordering::Relaxed,
                        Ordering::Relaxed,
                    );
                    return false;
                }
                // Others go on removing.
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
