//! Who may change a volume, and when.
//!
//! Every call that may change the volume has [`WriteAccess::get`] while it lasts. Whoever turns the volume read-only or back, or
//! freezes it, has the access [alone](WriteAccess::alone): what began before is over, what comes after finds the new state. While
//! the volume is frozen, calls that would change it wait until it is thawed; those that change nothing on a volume that cannot be
//! written ([`WriteAccess::pass`]) go on.
//!
//! Locking: [`Rank::VOLUME`], below every other lock of a volume; nothing is held while a call waits to be thawed.

use std::sync::atomic::{AtomicBool, Ordering};

use cairn_base::ranked_lock::{Condvar, Mutex, Rank, RwLock, RwLockReadGuard, RwLockWriteGuard};

use crate::error::{Error, Result};

/// See the module.
pub struct WriteAccess {
    lock: RwLock<()>,
    frozen: Mutex<Option<Before>>,
    thawed: Condvar,
    /// Frozen, and writable before. Changes only under the lock held alone.
    waits: AtomicBool,
}

/// What a volume was before it was frozen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Before {
    /// It could be written, and can again when it is thawed.
    Writable,
    /// Nothing is different: calls that change fail at once.
    ReadOnly,
}

/// Nobody else may change the volume until this is dropped.
#[must_use = "the others go on when this is dropped"]
pub struct Alone<'a> {
    access: &'a WriteAccess,
    #[expect(dead_code, reason = "held, not read")]
    lock: RwLockWriteGuard<'a, ()>,
}

impl Default for WriteAccess {
    fn default() -> Self {
        Self {
            lock: RwLock::new(Rank::VOLUME, ()),
            frozen: Mutex::new(Rank::LEAF, None),
            thawed: Condvar::new(),
            waits: AtomicBool::new(false),
        }
    }
}

impl WriteAccess {
    /// For a call that may change the volume. Waits while it is frozen.
    pub fn get(&self) -> RwLockReadGuard<'_, ()> {
        loop {
            let guard = self.lock.read();
            if !self.is_frozen() {
                return guard;
            }
            drop(guard);
            let mut frozen = self.frozen.lock();
            while self.is_frozen() {
                self.thawed.wait(&mut frozen);
            }
        }
    }

    /// For a call that changes only what can be written, and else nothing.
    pub fn pass(&self) -> RwLockReadGuard<'_, ()> {
        self.lock.read()
    }

    /// Waits until no call changes anything and lets none begin.
    pub fn alone(&self) -> Alone<'_> {
        Alone { access: self, lock: self.lock.write() }
    }

    /// Fails while the volume is frozen, whatever it was before.
    ///
    /// # Errors
    /// [`Error::Frozen`].
    pub fn check(&self) -> Result<()> {
        self.frozen.lock().map_or(Ok(()), |_| Err(Error::Frozen))
    }

    /// Do calls wait to be thawed?
    #[must_use]
    pub fn is_frozen(&self) -> bool {
        self.waits.load(Ordering::Acquire)
    }
}

impl Alone<'_> {
    /// From here on calls wait. The volume has been brought to the disk and nothing writes to it any more.
    pub fn freeze(&self, before: Before) {
        *self.access.frozen.lock() = Some(before);
        self.access.waits.store(before == Before::Writable, Ordering::Release);
    }

    /// What a frozen volume is to be again.
    ///
    /// # Errors
    /// [`Error::Invalid`] if it is not frozen.
    pub fn before(&self) -> Result<Before> {
        self.access.frozen.lock().ok_or(Error::Invalid("the volume is not frozen"))
    }

    /// Lets the calls go on that waited.
    pub fn thaw(&self) {
        let mut frozen = self.access.frozen.lock();
        *frozen = None;
        self.access.waits.store(false, Ordering::Release);
        self.access.thawed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU64;

    use super::*;

    /// Writers contend with a thread that freezes and thaws: while frozen nothing changes, and nobody sleeps for ever.
    #[test]
    fn nothing_changes_while_frozen_and_everybody_wakes() {
        let (access, changes, passed, over) =
            (WriteAccess::default(), AtomicU64::new(0), AtomicU64::new(0), AtomicBool::new(false));
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    while !over.load(Ordering::SeqCst) {
                        let _open = access.get();
                        assert!(!access.is_frozen());
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
                access.alone().freeze(Before::Writable);
                let (seen, went) = (changes.load(Ordering::SeqCst), passed.load(Ordering::SeqCst));
                assert!(matches!(access.check(), Err(Error::Frozen)));
                while passed.load(Ordering::SeqCst) == went {
                    std::thread::yield_now();
                }
                assert_eq!(changes.load(Ordering::SeqCst), seen, "round {round}");
                assert_eq!(access.alone().before().unwrap(), Before::Writable);
                access.alone().thaw();
                while changes.load(Ordering::SeqCst) == seen {
                    std::thread::yield_now();
                }
            }
            over.store(true, Ordering::SeqCst);
        });
        assert!(matches!(access.alone().before(), Err(Error::Invalid(_))));
    }

    #[test]
    fn a_volume_that_was_read_only_lets_calls_fail_at_once() {
        let access = WriteAccess::default();
        access.alone().freeze(Before::ReadOnly);
        assert!(!access.is_frozen());
        drop(access.get());
        assert!(matches!(access.check(), Err(Error::Frozen)));
        access.alone().thaw();
        assert!(access.check().is_ok());
    }
}
