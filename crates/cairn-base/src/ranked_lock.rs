//! Locks with a place in the one lock order.
//!
//! A thread takes locks in strictly rising rank. Debug builds keep the ranks a thread holds on a
//! thread-local stack and panic when one is taken that is not above the highest held: an inversion
//! is found on the first run that takes both locks, not on the first run that deadlocks. Locks of
//! equal rank may nest only if both carry an order ([`Mutex::new_ordered`]) and it rises. `try_…`
//! cannot deadlock and is not checked, but what it took counts as held. Release builds carry the
//! ranks and check nothing.

use std::cell::RefCell;
use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::time::Duration;

/// A place in the lock order; a greater rank is taken later.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Rank(pub u16);

impl Rank {
    /// Write access to a volume: shared by each call that may change it, alone while it turns
    /// read-only or back, or freezes.
    pub const VOLUME: Self = Self(50);
    /// Directory and rename locks.
    pub const NAMESPACE: Self = Self(100);
    /// An inode's data and size.
    pub const INODE_DATA: Self = Self(200);
    /// What a file has reserved beyond its data.
    pub const RESERVATIONS: Self = Self(250);
    /// A journal handle (ext4), the operation lock (F2FS). No lock object: see [`enter`].
    pub const OPERATION: Self = Self(300);
    /// A folio's contents and state.
    pub const FOLIO: Self = Self(400);
    /// A file's extent tree.
    pub const MAPPING: Self = Self(500);
    /// Block and inode allocation.
    pub const ALLOCATOR: Self = Self(600);
    /// A metadata buffer.
    pub const BUFFER: Self = Self(700);
    /// The journal's lists.
    pub const JOURNAL: Self = Self(800);
    /// Cache indexes and LRU lists.
    pub const CACHE: Self = Self(900);
    /// Device queues.
    pub const DEVICE: Self = Self(1000);
    /// Held for a few instructions, with nothing taken inside.
    pub const LEAF: Self = Self(u16::MAX);
}

#[derive(Clone, Copy, PartialEq, Eq)]
struct Place {
    rank: Rank,
    order: Option<u64>,
    /// Tells which lock it is; 0 for a rank entered without a lock.
    address: usize,
}

impl Place {
    fn of<T: ?Sized>(rank: Rank, order: Option<u64>, lock: &T) -> Self {
        Self { rank, order, address: std::ptr::from_ref(lock).addr() }
    }

    fn may_follow(self, held: Self) -> bool {
        self.rank > held.rank
            || (self.rank == held.rank
                && held.order.zip(self.order).is_some_and(|(held, new)| new > held))
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rank {}", self.rank.0)?;
        self.order.map_or(Ok(()), |order| write!(f, " order {order}"))
    }
}

#[derive(Default)]
struct Held {
    /// What the running piece of work holds.
    now: Vec<Place>,
    /// What the pieces of work below it on this thread's stack hold (see [`isolated`]).
    suspended: Vec<Place>,
}

thread_local! {
    static HELD: RefCell<Held> = RefCell::default();
}

/// Marks a rank as held until dropped. It belongs to its thread.
#[must_use = "the rank is held as long as the token lives"]
#[derive(Debug)]
pub struct RankToken {
    place: Option<(Rank, Option<u64>, usize)>,
    not_send: PhantomData<*const ()>,
}

impl RankToken {
    fn push(place: Place) -> Self {
        if !cfg!(debug_assertions) {
            return Self { place: None, not_send: PhantomData };
        }
        HELD.with_borrow_mut(|held| held.now.push(place));
        Self { place: Some((place.rank, place.order, place.address)), not_send: PhantomData }
    }
}

impl Drop for RankToken {
    #[inline]
    fn drop(&mut self) {
        if !cfg!(debug_assertions) {
            return;
        }
        let Some((rank, order, address)) = self.place else { return };
        let place = Place { rank, order, address };
        // A guard may outlive its thread's locals while the thread ends; there is nothing left to
        // check then.
        let _ = HELD.try_with(|held| {
            let mut held = held.borrow_mut();
            if let Some(index) = held.now.iter().rposition(|other| *other == place) {
                held.now.remove(index);
            }
        });
    }
}

/// Marks `rank` as held without a lock object: a journal handle enters [`Rank::OPERATION`].
///
/// # Panics
/// In debug builds, if the thread holds this rank or a higher one.
pub fn enter(rank: Rank) -> RankToken {
    let place = Place { rank, order: None, address: 0 };
    check(place);
    RankToken::push(place)
}

/// Panics in debug builds if the calling thread holds `rank` or a higher one: call it before
/// waiting for something that such a holder must finish.
pub fn assert_may_wait(rank: Rank) {
    check(Place { rank, order: None, address: 0 });
}

/// Runs `work` as if on a fresh thread: the simulator steps a daemon on the stack of whoever waits,
/// whose locks are not the daemon's. Taking a lock that a suspended piece of work holds panics
/// instead of hanging.
pub fn isolated<T>(work: impl FnOnce() -> T) -> T {
    struct Restore(Vec<Place>);
    impl Drop for Restore {
        fn drop(&mut self) {
            HELD.with_borrow_mut(|held| {
                held.now = std::mem::take(&mut self.0);
                let below = held.suspended.len() - held.now.len();
                held.suspended.truncate(below);
            });
        }
    }
    let restore = HELD.with_borrow_mut(|held| {
        let now = std::mem::take(&mut held.now);
        held.suspended.extend_from_slice(&now);
        Restore(now)
    });
    let result = work();
    drop(restore);
    result
}

fn check(place: Place) {
    if !cfg!(debug_assertions) {
        return;
    }
    let offender =
        HELD.with_borrow(|held| held.now.iter().copied().find(|other| !place.may_follow(*other)));
    if let Some(other) = offender {
        panic!("lock order: {place} taken while {other} is held");
    }
}

/// Called when a lock is not free: it never will be if this very thread holds it further down its
/// stack.
fn check_not_ours(place: Place) {
    let ours =
        HELD.with_borrow(|held| held.suspended.iter().any(|other| other.address == place.address));
    assert!(!ours, "simulated deadlock: {place} is held by the work that waits for this step");
}

/// A mutual exclusion lock with a rank.
#[derive(Debug)]
pub struct Mutex<T: ?Sized> {
    rank: Rank,
    order: Option<u64>,
    inner: parking_lot::Mutex<T>,
}

impl<T> Mutex<T> {
    /// A lock of this rank.
    pub const fn new(rank: Rank, value: T) -> Self {
        Self { rank, order: None, inner: parking_lot::Mutex::new(value) }
    }

    /// A lock that may be taken while locks of the same rank and lower order are held.
    pub const fn new_ordered(rank: Rank, order: u64, value: T) -> Self {
        Self { rank, order: Some(order), inner: parking_lot::Mutex::new(value) }
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
    pub fn lock(&self) -> MutexGuard<'_, T> {
        let place = Place::of(self.rank, self.order, self);
        check(place);
        let inner = self.inner.try_lock().unwrap_or_else(|| {
            check_not_ours(place);
            self.inner.lock()
        });
        MutexGuard { inner, _token: RankToken::push(place) }
    }

    /// Takes the lock if it is free.
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        let inner = self.inner.try_lock()?;
        Some(MutexGuard { inner, _token: RankToken::push(Place::of(self.rank, self.order, self)) })
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
    rank: Rank,
    order: Option<u64>,
    inner: parking_lot::RwLock<T>,
}

impl<T> RwLock<T> {
    /// A lock of this rank.
    pub const fn new(rank: Rank, value: T) -> Self {
        Self { rank, order: None, inner: parking_lot::RwLock::new(value) }
    }

    /// A lock that may be taken while locks of the same rank and lower order are held.
    pub const fn new_ordered(rank: Rank, order: u64, value: T) -> Self {
        Self { rank, order: Some(order), inner: parking_lot::RwLock::new(value) }
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
    pub fn read(&self) -> RwLockReadGuard<'_, T> {
        let place = Place::of(self.rank, self.order, self);
        check(place);
        let inner = self.inner.try_read().unwrap_or_else(|| {
            check_not_ours(place);
            self.inner.read()
        });
        RwLockReadGuard { inner, _token: RankToken::push(place) }
    }

    /// Takes the lock alone, waiting for it.
    ///
    /// # Panics
    /// In debug builds, if the lock order forbids it.
    pub fn write(&self) -> RwLockWriteGuard<'_, T> {
        let place = Place::of(self.rank, self.order, self);
        check(place);
        let inner = self.inner.try_write().unwrap_or_else(|| {
            check_not_ours(place);
            self.inner.write()
        });
        RwLockWriteGuard { inner, _token: RankToken::push(place) }
    }

    /// Shares the lock if no writer has it or waits for it.
    pub fn try_read(&self) -> Option<RwLockReadGuard<'_, T>> {
        let inner = self.inner.try_read()?;
        Some(RwLockReadGuard {
            inner,
            _token: RankToken::push(Place::of(self.rank, self.order, self)),
        })
    }

    /// Takes the lock alone if it is free.
    pub fn try_write(&self) -> Option<RwLockWriteGuard<'_, T>> {
        let inner = self.inner.try_write()?;
        Some(RwLockWriteGuard {
            inner,
            _token: RankToken::push(Place::of(self.rank, self.order, self)),
        })
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

/// A condition variable for [`Mutex`]. Only for what another *thread* makes true within its own
/// locks: waiting for a daemon goes through [`crate::runtime::Runtime::wait_until`], or the
/// simulator cannot run that daemon.
#[derive(Debug, Default)]
pub struct Condvar(parking_lot::Condvar);

impl Condvar {
    /// A condition nobody waits for.
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

#[cfg(test)]
mod tests;
