//! Debug builds: which thread holds which locks, taken where, and what it waits for.
//!
//! A thread that waits long for a lock prints the records of all threads ([`acquire`]). Release
//! builds have the module `unchecked` in its place.
//!
//! Locking: a record is locked for a few instructions, with nothing taken inside; the list of
//! threads is locked before a record.

use std::fmt::{self, Write};
use std::marker::PhantomData;
use std::panic::Location;
use std::sync::{Arc, Weak};
use std::time::Duration;

use super::Rank;

/// How long a thread waits for a lock before it prints who holds what.
const STALL: Duration = Duration::from_secs(30);

/// Where a lock stands in the lock order.
#[derive(Clone, Copy, Debug)]
pub(super) struct Position {
    rank: Rank,
    order: Option<u64>,
}

impl Position {
    pub(super) const fn new(rank: Rank, order: Option<u64>) -> Self {
        Self { rank, order }
    }
}

/// A lock that is taken, or about to be.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    rank: Rank,
    order: Option<u64>,
    /// Tells which lock it is; 0 for a rank entered without a lock.
    address: usize,
    taken_at: &'static Location<'static>,
}

impl Place {
    #[track_caller]
    pub(super) fn of<T: ?Sized>(position: Position, lock: &T) -> Self {
        let Position { rank, order } = position;
        let address = std::ptr::from_ref(lock).addr();
        Self { rank, order, address, taken_at: Location::caller() }
    }

    #[track_caller]
    pub(super) const fn without_lock(rank: Rank) -> Self {
        Self { rank, order: None, address: 0, taken_at: Location::caller() }
    }

    fn may_follow(self, held: Self) -> bool {
        self.rank > held.rank
            || (self.rank == held.rank
                && held.order.zip(self.order).is_some_and(|(held, new)| new > held))
    }

    fn is(self, other: Self) -> bool {
        (self.rank, self.order, self.address) == (other.rank, other.order, other.address)
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.rank)?;
        self.order.map_or(Ok(()), |order| write!(f, " {order}"))
    }
}

#[derive(Default)]
struct Held {
    /// What the running piece of work holds.
    now: Vec<Place>,
    /// What the pieces of work below it on this thread's stack hold (see [`isolated`]).
    suspended: Vec<Place>,
    /// The lock that the thread waits for.
    awaited: Option<Place>,
}

struct Thread {
    name: String,
    held: parking_lot::Mutex<Held>,
}

static THREADS: parking_lot::Mutex<Vec<Weak<Thread>>> = parking_lot::Mutex::new(Vec::new());

thread_local! {
    static THIS: Arc<Thread> = register();
}

fn register() -> Arc<Thread> {
    let current = std::thread::current();
    let name = current.name().map_or_else(|| format!("{:?}", current.id()), str::to_owned);
    let thread = Arc::new(Thread { name, held: parking_lot::Mutex::default() });
    let mut threads = THREADS.lock();
    threads.retain(|thread| thread.strong_count() > 0);
    threads.push(Arc::downgrade(&thread));
    thread
}

fn with_held<T>(work: impl FnOnce(&mut Held) -> T) -> T {
    THIS.with(|this| work(&mut this.held.lock()))
}

/// Marks a rank as held until dropped. It belongs to its thread.
#[must_use = "the rank is held as long as the token lives"]
#[derive(Debug)]
pub struct RankToken {
    place: Place,
    not_send: PhantomData<*const ()>,
}

impl RankToken {
    pub(super) fn push(place: Place) -> Self {
        with_held(|held| held.now.push(place));
        Self { place, not_send: PhantomData }
    }
}

impl Drop for RankToken {
    fn drop(&mut self) {
        // A guard may outlive its thread's record while the thread ends; there is nothing left to
        // check then.
        let _ = THIS.try_with(|this| {
            let now = &mut this.held.lock().now;
            if let Some(index) = now.iter().rposition(|other| other.is(self.place)) {
                now.remove(index);
            }
        });
    }
}

/// Marks `rank` as held without a lock object: a journal handle enters [`Rank::Operation`].
///
/// # Panics
/// In debug builds, if the thread holds this rank or a higher one.
#[track_caller]
pub fn enter(rank: Rank) -> RankToken {
    let place = Place::without_lock(rank);
    check(place);
    RankToken::push(place)
}

/// Panics in debug builds if the calling thread holds `rank` or a higher one: call it before
/// waiting for something that such a holder must finish.
#[track_caller]
pub fn assert_may_wait(rank: Rank) {
    check(Place::without_lock(rank));
}

/// Runs `work` as if on a fresh thread: the simulator steps a daemon on the stack of a waiting
/// thread, whose locks are not the daemon's. Taking a lock that a suspended piece of work holds
/// panics instead of hanging.
pub(crate) fn isolated<T>(work: impl FnOnce() -> T) -> T {
    struct Restore(Vec<Place>);
    impl Drop for Restore {
        fn drop(&mut self) {
            with_held(|held| {
                held.now = std::mem::take(&mut self.0);
                let below = held.suspended.len() - held.now.len();
                held.suspended.truncate(below);
            });
        }
    }
    let restore = with_held(|held| {
        let now = std::mem::take(&mut held.now);
        held.suspended.extend_from_slice(&now);
        Restore(now)
    });
    let result = work();
    drop(restore);
    result
}

fn check(place: Place) {
    let offender =
        with_held(|held| held.now.iter().copied().find(|other| !place.may_follow(*other)));
    if let Some(other) = offender {
        panic!(
            "lock order: {place} taken at {} while {other} is held, taken at {}",
            place.taken_at, other.taken_at
        );
    }
}

/// Takes a lock. `at_once` takes it if it is free, `attempt` waits for at most the time that it is
/// given, `block` without limit.
///
/// # Panics
/// The lock order forbids it, or this thread holds the lock further down its stack: it would wait
/// for ever.
pub(super) fn acquire<G>(
    place: Place,
    at_once: impl FnOnce() -> Option<G>,
    attempt: impl FnOnce(Duration) -> Option<G>,
    block: impl FnOnce() -> G,
) -> G {
    struct Waiting;
    impl Drop for Waiting {
        fn drop(&mut self) {
            with_held(|held| held.awaited = None);
        }
    }
    check(place);
    if let Some(guard) = at_once() {
        return guard;
    }
    let ours = with_held(|held| held.suspended.iter().any(|other| other.address == place.address));
    assert!(!ours, "simulated deadlock: {place} is held by the work that waits for this step");
    with_held(|held| held.awaited = Some(place));
    let _waiting = Waiting;
    attempt(STALL).unwrap_or_else(|| {
        eprintln!("a lock was not free for {} s:\n{}", STALL.as_secs(), holders());
        block()
    })
}

/// What each thread holds and waits for, one line a lock.
#[must_use]
pub(crate) fn holders() -> String {
    let threads: Vec<_> = THREADS.lock().iter().filter_map(Weak::upgrade).collect();
    let mut text = String::new();
    for thread in threads {
        let held = thread.held.lock();
        for place in held.suspended.iter().chain(&held.now) {
            let _ = writeln!(text, "{} holds {place}, taken at {}", thread.name, place.taken_at);
        }
        if let Some(place) = held.awaited {
            let _ = writeln!(text, "{} waits for {place} at {}", thread.name, place.taken_at);
        }
    }
    text
}
