//! Which calls may change a volume, and when.
//!
//! Every call that may change the volume holds [`WriteAccess::get`]. A remount or freeze holds
//! [`WriteAccess::exclusive`]: all earlier calls have ended, and later calls see the new state.
//! While the volume is frozen, calls that would change it wait until it is thawed. A call that
//! changes nothing on a read-only volume ([`WriteAccess::pass`]) does not wait.
//!
//! Locking: [`Rank::Volume`], below every other lock of a volume. A call that waits for the thaw
//! holds nothing.

use std::sync::atomic::{AtomicBool, Ordering};

use cairn_base::ranked_lock::{Condvar, Mutex, Rank, RwLock, RwLockReadGuard, RwLockWriteGuard};

use crate::error::{Error, Result};

/// Write access to one volume.
pub struct WriteAccess {
    lock: RwLock<()>,
    frozen: Mutex<Option<PriorState>>,
    thawed: Condvar,
    /// `frozen` has a state. This and the next change only under the exclusive lock.
    is_frozen: AtomicBool,
    /// The volume is frozen and was writable before.
    waits: AtomicBool,
}

/// State of a volume before it was frozen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PriorState {
    /// Writable; it is writable again when it is thawed.
    Writable,
    /// Read-only: changing calls fail at once, frozen or not.
    ReadOnly,
}

/// Exclusive access: no other call changes the volume until this is dropped.
#[must_use = "other calls continue when this is dropped"]
pub struct ExclusiveGuard<'a> {
    access: &'a WriteAccess,
    #[expect(dead_code, reason = "held, not read")]
    lock: RwLockWriteGuard<'a, ()>,
}

impl Default for WriteAccess {
    fn default() -> Self {
        Self {
            lock: RwLock::new(Rank::Volume, ()),
            frozen: Mutex::new(Rank::Leaf, None),
            thawed: Condvar::new(),
            is_frozen: AtomicBool::new(false),
            waits: AtomicBool::new(false),
        }
    }
}

impl WriteAccess {
    /// Access for a call that may change the volume. Waits while the volume is frozen.
    pub fn get(&self) -> RwLockReadGuard<'_, ()> {
        loop {
            let guard = self.lock.read();
            if !self.is_waiting() {
                return guard;
            }
            drop(guard);
            let mut frozen = self.frozen.lock();
            while self.is_waiting() {
                self.thawed.wait(&mut frozen);
            }
        }
    }

    /// Access for a call that changes something only if the volume is writable. It does not wait
    /// for a thaw.
    pub fn pass(&self) -> RwLockReadGuard<'_, ()> {
        self.lock.read()
    }

    /// Waits until no call changes the volume, and keeps new ones waiting.
    pub fn exclusive(&self) -> ExclusiveGuard<'_> {
        ExclusiveGuard { access: self, lock: self.lock.write() }
    }

    /// Checks that the volume is not frozen.
    ///
    /// # Errors
    /// [`Error::Frozen`].
    pub fn check(&self) -> Result<()> {
        self.frozen.lock().map_or(Ok(()), |_| Err(Error::Frozen))
    }

    /// True if the volume is frozen.
    #[must_use]
    pub fn is_frozen(&self) -> bool {
        self.is_frozen.load(Ordering::Acquire)
    }

    /// True if changing calls wait for a thaw. On a volume that was read-only they fail at once.
    #[must_use]
    pub fn is_waiting(&self) -> bool {
        self.waits.load(Ordering::Acquire)
    }
}

impl ExclusiveGuard<'_> {
    /// Freezes the volume. Everything has been written to the disk before.
    pub fn freeze(&self, prior: PriorState) {
        *self.access.frozen.lock() = Some(prior);
        self.access.is_frozen.store(true, Ordering::Release);
        self.access.waits.store(prior == PriorState::Writable, Ordering::Release);
    }

    /// The state before the volume was frozen.
    ///
    /// # Errors
    /// [`Error::NotFrozen`].
    pub fn prior_state(&self) -> Result<PriorState> {
        self.access.frozen.lock().ok_or(Error::NotFrozen)
    }

    /// Thaws the volume: waiting calls continue.
    pub fn thaw(&self) {
        let mut frozen = self.access.frozen.lock();
        *frozen = None;
        self.access.is_frozen.store(false, Ordering::Release);
        self.access.waits.store(false, Ordering::Release);
        self.access.thawed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU64;

    use super::*;

    /// While frozen nothing changes, and after the thaw every writer wakes.
    #[test]
    fn nothing_changes_while_frozen_and_a_thaw_wakes_all_waiters() {
        let (access, changes, passed, over) =
            (WriteAccess::default(), AtomicU64::new(0), AtomicU64::new(0), AtomicBool::new(false));
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    while !over.load(Ordering::SeqCst) {
                        let _open = access.get();
                        assert!(!access.is_waiting());
                        changes.fetch_add(1, Ordering::SeqCst);
                    }
                });
            }
            scope.spawn(|| {
                while !over.load(Ordering::SeqCst) {
                    let _open = access.pass();
                    passed.fetch_add(1, Ordering::SeqCst);
                }
            });
            for round in 0..300 {
                access.exclusive().freeze(PriorState::Writable);
                let (seen, went) = (changes.load(Ordering::SeqCst), passed.load(Ordering::SeqCst));
                assert!(matches!(access.check(), Err(Error::Frozen)));
                while passed.load(Ordering::SeqCst) == went {
                    std::thread::yield_now();
                }
                assert_eq!(changes.load(Ordering::SeqCst), seen, "round {round}");
                assert_eq!(access.exclusive().prior_state().unwrap(), PriorState::Writable);
                access.exclusive().thaw();
                while changes.load(Ordering::SeqCst) == seen {
                    std::thread::yield_now();
                }
            }
            over.store(true, Ordering::SeqCst);
        });
        assert!(matches!(access.exclusive().prior_state(), Err(Error::NotFrozen)));
    }

    #[test]
    fn a_volume_that_was_read_only_lets_calls_fail_at_once() {
        let access = WriteAccess::default();
        access.exclusive().freeze(PriorState::ReadOnly);
        assert!(access.is_frozen() && !access.is_waiting());
        drop(access.get());
        assert!(matches!(access.check(), Err(Error::Frozen)));
        access.exclusive().thaw();
        assert!(!access.is_frozen() && access.check().is_ok());
    }
}
