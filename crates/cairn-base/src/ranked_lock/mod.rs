//! Locks with a place in the one lock order.
//!
//! A thread takes locks in strictly rising rank. Debug builds keep the ranks a thread holds on a
//! thread-local stack and panic when one is taken that is not above the highest held: an inversion
//! is found on the first run that takes both locks, not on the first run that deadlocks. Locks of
//! equal rank may nest only if both carry an order ([`Mutex::new_ordered`]) and it rises. `try_…`
//! cannot deadlock and is not checked, but what it took counts as held. A thread that waits half a
//! minute for a lock prints who holds what (`held::holders`). In release builds the locks and their
//! guards are those of `parking_lot`: they keep no rank and check nothing (`unchecked.rs`).

#[cfg(debug_assertions)]
mod held;
mod rank;
#[cfg(not(debug_assertions))]
mod unchecked;

use std::ops::{Deref, DerefMut};
use std::time::Duration;

use held::{Place, Position, acquire};
#[cfg(not(debug_assertions))]
use unchecked as held;

pub(crate) use held::isolated;
pub use held::{RankToken, assert_may_wait, enter};
pub use rank::Rank;

/// A mutual exclusion lock with a rank.
#[derive(Debug)]
pub struct Mutex<T: ?Sized> {
    position: Position,
    inner: parking_lot::Mutex<T>,
}

impl<T> Mutex<T> {
    /// A lock of this rank.
    pub const fn new(rank: Rank, value: T) -> Self {
        Self { position: Position::new(rank, None), inner: parking_lot::Mutex::new(value) }
    }

    /// A lock that may be taken while locks of the same rank and lower order are held.
    pub const fn new_ordered(rank: Rank, order: u64, value: T) -> Self {
        Self { position: Position::new(rank, Some(order)), inner: parking_lot::Mutex::new(value) }
    }

    /// Takes the value out.
    pub fn into_inner(self) -> T {
        self.inner.into_inner()
    }
}

impl<T: ?Sized> Mutex<T> {
    /// Takes the lock, waiting for it.
    ///
    /// # Panics
    /// In debug builds, if the lock order forbids it.
    #[cfg_attr(debug_assertions, track_caller)]
    pub fn lock(&self) -> MutexGuard<'_, T> {
        let place = Place::of(self.position, self);
        let inner = acquire(
            place,
            || self.inner.try_lock(),
            |time| self.inner.try_lock_for(time),
            || self.inner.lock(),
        );
        MutexGuard { inner, _token: RankToken::push(place) }
    }

    /// Takes the lock if it is free.
    #[cfg_attr(debug_assertions, track_caller)]
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        let inner = self.inner.try_lock()?;
        Some(MutexGuard { inner, _token: RankToken::push(Place::of(self.position, self)) })
    }

    /// The value, without locking: nobody else has a reference.
    pub fn get_mut(&mut self) -> &mut T {
        self.inner.get_mut()
    }
}

/// A reader-writer lock with a rank. Reading twice in one thread is an inversion too: a writer
/// between the two waits for the first and blocks the second.
#[derive(Debug)]
pub struct RwLock<T: ?Sized> {
    position: Position,
    inner: parking_lot::RwLock<T>,
}

impl<T> RwLock<T> {
    /// A lock of this rank.
    pub const fn new(rank: Rank, value: T) -> Self {
        Self { position: Position::new(rank, None), inner: parking_lot::RwLock::new(value) }
    }

    /// A lock that may be taken while locks of the same rank and lower order are held.
    pub const fn new_ordered(rank: Rank, order: u64, value: T) -> Self {
        Self { position: Position::new(rank, Some(order)), inner: parking_lot::RwLock::new(value) }
    }

    /// Takes the value out.
    pub fn into_inner(self) -> T {
        self.inner.into_inner()
    }
}

impl<T: ?Sized> RwLock<T> {
    /// Shares the lock, waiting for it.
    ///
    /// # Panics
    /// In debug builds, if the lock order forbids it.
    #[cfg_attr(debug_assertions, track_caller)]
    pub fn read(&self) -> RwLockReadGuard<'_, T> {
        let place = Place::of(self.position, self);
        let inner = acquire(
            place,
            || self.inner.try_read(),
            |time| self.inner.try_read_for(time),
            || self.inner.read(),
        );
        RwLockReadGuard { inner, _token: RankToken::push(place) }
    }

    /// Takes the lock alone, waiting for it.
    ///
    /// # Panics
    /// In debug builds, if the lock order forbids it.
    #[cfg_attr(debug_assertions, track_caller)]
    pub fn write(&self) -> RwLockWriteGuard<'_, T> {
        let place = Place::of(self.position, self);
        let inner = acquire(
            place,
            || self.inner.try_write(),
            |time| self.inner.try_write_for(time),
            || self.inner.write(),
        );
        RwLockWriteGuard { inner, _token: RankToken::push(place) }
    }

    /// Shares the lock if no writer has it or waits for it.
    #[cfg_attr(debug_assertions, track_caller)]
    pub fn try_read(&self) -> Option<RwLockReadGuard<'_, T>> {
        let inner = self.inner.try_read()?;
        Some(RwLockReadGuard { inner, _token: RankToken::push(Place::of(self.position, self)) })
    }

    /// The value, without locking: nobody else has a reference.
    pub fn get_mut(&mut self) -> &mut T {
        self.inner.get_mut()
    }
}

macro_rules! guard {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[must_use = "the lock is released when the guard is dropped"]
        #[derive(Debug)]
        pub struct $name<'a, T: ?Sized> {
            // Released before the rank is: fields drop in order.
            inner: parking_lot::$name<'a, T>,
            _token: RankToken,
        }

        impl<T: ?Sized> Deref for $name<'_, T> {
            type Target = T;

            fn deref(&self) -> &T {
                &self.inner
            }
        }
    };
    ($(#[$doc:meta])* mut $name:ident) => {
        guard!($(#[$doc])* $name);

        impl<T: ?Sized> DerefMut for $name<'_, T> {
            fn deref_mut(&mut self) -> &mut T {
                &mut self.inner
            }
        }
    };
}

guard!(
    /// A held [`Mutex`].
    mut MutexGuard
);
guard!(
    /// A shared [`RwLock`].
    RwLockReadGuard
);
guard!(
    /// A [`RwLock`] held alone.
    mut RwLockWriteGuard
);

impl<'a, T: ?Sized> RwLockWriteGuard<'a, T> {
    /// Lets readers in without letting a writer between.
    pub fn downgrade(guard: Self) -> RwLockReadGuard<'a, T> {
        let Self { inner, _token } = guard;
        RwLockReadGuard { inner: parking_lot::RwLockWriteGuard::downgrade(inner), _token }
    }
}

/// A condition variable for [`Mutex`], for conditions that another *thread* makes true. To wait for
/// a daemon use [`crate::runtime::Runtime::wait_until`]: only then can the simulator run it.
#[derive(Debug, Default)]
pub struct Condvar(parking_lot::Condvar);

impl Condvar {
    /// A condition without waiters.
    #[must_use]
    pub const fn new() -> Self {
        Self(parking_lot::Condvar::new())
    }

    /// Releases the lock, waits to be notified, takes the lock again.
    pub fn wait<T: ?Sized>(&self, guard: &mut MutexGuard<'_, T>) {
        self.0.wait(&mut guard.inner);
    }

    /// Like [`Condvar::wait`], for at most `timeout`. True if notified.
    pub fn wait_for<T: ?Sized>(&self, guard: &mut MutexGuard<'_, T>, timeout: Duration) -> bool {
        !self.0.wait_for(&mut guard.inner, timeout).timed_out()
    }

    /// Wakes one waiter.
    pub fn notify_one(&self) {
        self.0.notify_one();
    }

    /// Wakes all waiters.
    pub fn notify_all(&self) {
        self.0.notify_all();
    }
}

#[cfg(not(debug_assertions))]
const _: () = {
    assert!(size_of::<Mutex<u64>>() == size_of::<parking_lot::Mutex<u64>>());
    assert!(size_of::<RwLock<u64>>() == size_of::<parking_lot::RwLock<u64>>());
    assert!(size_of::<MutexGuard<'_, u64>>() == size_of::<parking_lot::MutexGuard<'_, u64>>());
    assert!(size_of::<RankToken>() == 0);
};

#[cfg(test)]
mod tests;
