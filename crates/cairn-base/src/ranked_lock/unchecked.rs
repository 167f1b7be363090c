//! Release builds: the interface of `held` without records. Everything here is empty, so that a
//! lock with a rank costs what the bare lock costs.

use std::marker::PhantomData;
use std::time::Duration;

use super::Rank;

/// Where a lock stands in the lock order: not kept.
#[derive(Clone, Copy, Debug)]
pub(super) struct Position;

impl Position {
    pub(super) const fn new(_rank: Rank, _order: Option<u64>) -> Self {
        Self
    }
}

/// A lock that is taken: not kept.
#[derive(Clone, Copy)]
pub(super) struct Place;

impl Place {
    #[inline]
    pub(super) fn of<T: ?Sized>(_position: Position, _lock: &T) -> Self {
        Self
    }
}

/// Marks a rank as held until dropped. It belongs to its thread.
#[must_use = "the rank is held as long as the token lives"]
#[derive(Debug)]
pub struct RankToken {
    not_send: PhantomData<*const ()>,
}

impl RankToken {
    #[inline]
    pub(super) fn push(_place: Place) -> Self {
        Self { not_send: PhantomData }
    }
}

/// Marks `rank` as held without a lock object. Debug builds check the order.
#[inline]
pub fn enter(_rank: Rank) -> RankToken {
    RankToken::push(Place)
}

/// Debug builds panic if the calling thread holds `rank` or a higher one.
#[inline]
pub fn assert_may_wait(_rank: Rank) {}

/// Runs `work`. Debug builds hide the locks of the thread from it.
#[inline]
pub(crate) fn isolated<T>(work: impl FnOnce() -> T) -> T {
    work()
}

/// Takes a lock.
#[inline]
pub(super) fn acquire<G>(
    _place: Place,
    _at_once: impl FnOnce() -> Option<G>,
    _attempt: impl FnOnce(Duration) -> Option<G>,
    block: impl FnOnce() -> G,
) -> G {
    block()
}

/// What each thread holds and waits for: debug builds know it.
#[cfg(test)]
pub(super) fn holders() -> String {
    String::new()
}
