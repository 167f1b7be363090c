//! Slabs: the memory of folios.
//!
//! A slab is shared with the device while it is written ([`Slab::pin`]) and immutable as long as it
//! is shared: a writer gets a copy. Free slabs keep their pages and their charge, and are recycled.
//! They are the first memory that is freed when memory is short, and those that nobody needed for
//! a while are freed without that ([`SlabPool::rest`]).
//!
//! A slab can also be memory that a writer gave away ([`Slab::given`]). It never changes, and goes
//! back to its owner when the last reference is dropped.
//!
//! Locking: the free lists have rank Leaf, so that any thread may drop the last pin, the device's
//! thread included.

use std::ops::Range;
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::Bytes;
use cairn_base::memory::NoMemory;
use cairn_base::ranked_lock::{Mutex, Rank};
use cairn_base::runtime::Event;
use cairn_block::IoBuf;

use super::counters::CacheCounters;
use super::order::{ORDERS, PAGE, charged, order_of};
use crate::budget::{Budget, Charge, Reclaim, Use};

/// Slabs of this size and more are prepared before they are needed.
const PREPARED: usize = 64 << 10;
/// Number of slabs of each size that are prepared.
const READY: usize = 8;
/// Slabs that were free for so long are freed.
const SURPLUS: Duration = Duration::from_secs(2);

/// Memory that is not shared yet. Its contents are arbitrary.
pub(crate) struct RawSlab {
    pub(crate) buf: IoBuf,
    pub(crate) charge: Charge,
}

/// Free slabs.
struct Free {
    by_order: [Vec<RawSlab>; ORDERS],
    /// Fewest free slabs since `since`: nobody needed so many.
    least: [usize; ORDERS],
    since: Duration,
    /// [`SlabPool::rest`] found none and is not called before `wake`.
    resting: bool,
}

/// Recycles slabs and charges them to the budget.
pub(crate) struct SlabPool {
    budget: Arc<Budget>,
    counters: Arc<CacheCounters>,
    free: Mutex<Free>,
    /// A bit for each order of which a slab was needed while none was free.
    growing: AtomicU16,
    /// Wakes the daemon that calls [`SlabPool::prepare`].
    wake: Arc<Event>,
}

impl SlabPool {
    pub(crate) fn new(
        budget: Arc<Budget>,
        counters: Arc<CacheCounters>,
        wake: Arc<Event>,
    ) -> Arc<Self> {
        let by_order = std::array::from_fn(|_| Vec::new());
        let free = Free { by_order, least: [0; ORDERS], since: Duration::ZERO, resting: false };
        let free = Mutex::new(Rank::Leaf, free);
        Arc::new(Self { budget, counters, free, growing: AtomicU16::new(0), wake })
    }

    /// A recycled slab of this size.
    pub(crate) fn take(&self, bytes: usize) -> Option<RawSlab> {
        let order = order_of(bytes);
        let (raw, left) = {
            let mut free = self.free.lock();
            let raw = free.by_order[order].pop()?;
            let left = free.by_order[order].len();
            free.least[order] = free.least[order].min(left);
            (raw, left)
        };
        if left == READY / 2 && self.growing.load(Ordering::Relaxed) >> order & 1 == 1 {
            self.wake.notify();
        }
        self.counters.slabs_recycled.add(1);
        Some(raw)
    }

    /// A recycled or new slab, even if that exceeds the budget.
    ///
    /// # Errors
    /// The system has no memory.
    pub(crate) fn take_or_grow(&self, bytes: usize) -> Result<RawSlab, NoMemory> {
        match self.take(bytes) {
            Some(raw) => Ok(raw),
            None => self.fresh(bytes, self.budget.hold(Use::FileData, charged(bytes))),
        }
    }

    /// A new slab, unless that exceeds the budget or the system has no memory.
    pub(crate) fn try_grow(&self, bytes: usize) -> Option<RawSlab> {
        self.fresh(bytes, self.budget.try_hold(Use::FileData, charged(bytes))?).ok()
    }

    fn fresh(&self, bytes: usize, charge: Charge) -> Result<RawSlab, NoMemory> {
        let buf = IoBuf::try_zeroed(bytes)?;
        self.counters.slabs_fresh.add(1);
        if bytes >= PREPARED {
            self.growing.fetch_or(1 << order_of(bytes), Ordering::Relaxed);
            self.wake.notify();
        }
        Ok(RawSlab { charge, buf })
    }

    /// Prepares one slab of a size that was short, so that no writer waits for its page faults.
    /// False if there is nothing to do.
    pub(crate) fn prepare(&self) -> bool {
        let growing = self.growing.load(Ordering::Relaxed);
        for order in (0..ORDERS).filter(|order| growing >> order & 1 == 1) {
            let bytes = PAGE << order;
            if !self.budget.has_room(READY as u64 * charged(bytes)) {
                self.growing.fetch_and(!(1 << order), Ordering::Relaxed);
            } else if self.free.lock().by_order[order].len() < READY
                && let Some(charge) = self.budget.try_hold(Use::FileData, charged(bytes))
                && let Ok(buf) = IoBuf::try_zeroed(bytes)
            {
                self.counters.slabs_prepared.add(1);
                self.put(RawSlab { charge, buf });
                return true;
            }
        }
        false
    }

    /// Frees the largest free slab. Returns its size in bytes, or 0 if there is none.
    pub(crate) fn trim(&self) -> u64 {
        let largest = {
            let mut free = self.free.lock();
            free.by_order.iter_mut().rev().find_map(Vec::pop)
        };
        largest.map_or(0, |raw| raw.buf.len() as u64)
    }

    /// Frees slabs that nobody needed for [`SURPLUS`]. Call it again after the returned time, if
    /// there is one.
    pub(crate) fn rest(&self, now: Duration) -> Option<Duration> {
        let mut surplus = Vec::new();
        let mut free = self.free.lock();
        let Free { by_order, least, since, resting } = &mut *free;
        let left = (*since + SURPLUS).saturating_sub(now);
        if left > Duration::ZERO {
            *resting = by_order.iter().all(Vec::is_empty);
            return (!*resting).then_some(left);
        }
        for (order, (slabs, least)) in by_order.iter_mut().zip(least).enumerate() {
            let unneeded = (*least).min(slabs.len());
            // The oldest: the others may be in the processor's caches.
            surplus.extend(slabs.drain(..unneeded));
            *least = slabs.len();
            if unneeded > 0 {
                self.growing.fetch_and(!(1 << order), Ordering::Relaxed);
            }
        }
        *since = now;
        *resting = by_order.iter().all(Vec::is_empty);
        let again = (!*resting).then_some(SURPLUS);
        drop(free);
        drop(surplus);
        again
    }

    /// Bytes of free slabs.
    pub(crate) fn free_bytes(&self) -> u64 {
        let free = self.free.lock();
        let orders = free.by_order.iter().enumerate();
        orders.map(|(order, slabs)| (slabs.len() * (PAGE << order)) as u64).sum()
    }

    fn put(&self, raw: RawSlab) {
        if self.budget.over() > 0 {
            return;
        }
        let order = order_of(raw.buf.len());
        let mut free = self.free.lock();
        free.by_order[order].push(raw);
        if std::mem::take(&mut free.resting) {
            drop(free);
            self.wake.notify();
        }
    }
}

impl Reclaim for SlabPool {
    fn reclaim(&self, bytes: u64) -> u64 {
        let mut freed = 0;
        while freed < bytes {
            match self.trim() {
                0 => break,
                more => freed += more,
            }
        }
        freed
    }
}

/// A folio's memory.
#[derive(Clone)]
pub(crate) struct Slab(Arc<Shared>);

enum Shared {
    /// From the pool, to which it returns. Only `drop` takes `raw`.
    Pooled {
        raw: Option<RawSlab>,
        pool: Weak<SlabPool>,
    },
    Given {
        bytes: Bytes,
        _charge: Charge,
    },
}

impl Drop for Shared {
    fn drop(&mut self) {
        if let Self::Pooled { raw, pool } = self
            && let (Some(raw), Some(pool)) = (raw.take(), pool.upgrade())
        {
            pool.put(raw);
        }
    }
}

impl Shared {
    fn bytes(&self) -> &[u8] {
        match self {
            Self::Pooled { raw, .. } => &raw.as_ref().expect("present until dropped").buf,
            Self::Given { bytes, .. } => bytes,
        }
    }
}

impl Slab {
    pub(crate) fn new(pool: &Arc<SlabPool>, raw: RawSlab) -> Self {
        Self(Arc::new(Shared::Pooled { raw: Some(raw), pool: Arc::downgrade(pool) }))
    }

    /// A slab of bytes that do not change. They are charged to the budget like any other.
    pub(crate) fn given(bytes: Bytes, charge: Charge) -> Self {
        Self(Arc::new(Shared::Given { bytes, _charge: charge }))
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        self.0.bytes()
    }

    /// The contents for changing. They are copied first if they are pinned or were given; with
    /// `keep` false the copy starts with arbitrary contents.
    ///
    /// # Errors
    /// The contents must be copied, and the system has no memory for that.
    pub(crate) fn make_mut(
        &mut self,
        pool: &Arc<SlabPool>,
        keep: bool,
    ) -> Result<&mut [u8], NoMemory> {
        if !matches!(Arc::get_mut(&mut self.0), Some(Shared::Pooled { .. })) {
            let mut raw = pool.take_or_grow(self.bytes().len())?;
            if keep {
                raw.buf.copy_from_slice(self.bytes());
            }
            *self = Self::new(pool, raw);
        }
        match Arc::get_mut(&mut self.0) {
            Some(Shared::Pooled { raw: Some(raw), .. }) => Ok(&mut raw.buf),
            _ => unreachable!("the copy is from the pool and not shared"),
        }
    }

    /// A part of the contents as they are now. They do not change until the result is dropped.
    pub(crate) fn pin(&self, range: Range<usize>) -> Bytes {
        Bytes::from_owner(Pin { shared: self.0.clone(), range })
    }
}

struct Pin {
    shared: Arc<Shared>,
    range: Range<usize>,
}

impl AsRef<[u8]> for Pin {
    fn as_ref(&self) -> &[u8] {
        &self.shared.bytes()[self.range.clone()]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pinned_slab_is_copied_and_freed_ones_are_used_again() {
        let budget = Budget::new(1 << 20);
        let pool = SlabPool::new(budget.clone(), Arc::default(), Arc::new(Event::new()));
        let mut slab = Slab::new(&pool, pool.take_or_grow(PAGE).unwrap());
        slab.make_mut(&pool, true).unwrap().fill(1);
        let address = slab.bytes().as_ptr();
        let pin = slab.pin(100..200);
        slab.make_mut(&pool, true).unwrap()[150] = 2;
        assert_eq!((pin[50], slab.bytes()[150], slab.bytes()[151]), (1, 2, 1));
        assert_eq!(budget.used(), 2 * charged(PAGE));
        drop(pin);
        assert_eq!(pool.take(PAGE).expect("the pinned one came back").buf.as_ptr(), address);
        drop((slab, pool));
        assert_eq!(budget.used(), 0);
    }

    #[test]
    fn an_exhausted_budget_keeps_nothing() {
        let budget = Budget::new(PAGE as u64);
        let pool = SlabPool::new(budget.clone(), Arc::default(), Arc::new(Event::new()));
        drop(Slab::new(&pool, pool.take_or_grow(2 * PAGE).unwrap()));
        assert_eq!((budget.used(), pool.trim()), (0, 0));
    }

    #[test]
    fn slabs_that_nobody_needs_for_a_while_are_freed() {
        let budget = Budget::new(64 << 20);
        let pool = SlabPool::new(budget.clone(), Arc::default(), Arc::new(Event::new()));
        assert_eq!(pool.rest(SURPLUS), None, "there are none");
        let slabs: Vec<Slab> =
            (0..10).map(|_| Slab::new(&pool, pool.take_or_grow(PAGE).unwrap())).collect();
        drop(slabs);
        let full = 10 * PAGE as u64;
        let mut now = SURPLUS + Duration::from_millis(1);
        assert_eq!((pool.rest(now), pool.free_bytes()), (Some(2 * SURPLUS - now), full));
        now = 2 * SURPLUS;
        assert_eq!((pool.rest(now), pool.free_bytes()), (Some(SURPLUS), full), "they are new");
        // Three are needed at the same time.
        let slabs: Vec<Slab> =
            (0..3).map(|_| Slab::new(&pool, pool.take_or_grow(PAGE).unwrap())).collect();
        drop(slabs);
        now += SURPLUS;
        assert_eq!((pool.rest(now), pool.free_bytes()), (Some(SURPLUS), 3 * PAGE as u64));
        now += SURPLUS;
        assert_eq!((pool.rest(now), pool.free_bytes(), budget.used()), (None, 0, 0));
    }

    #[test]
    fn sizes_that_run_short_are_made_ready_within_the_budget() {
        let budget = Budget::new(17 << 20);
        let counters: Arc<CacheCounters> = Arc::default();
        let pool = SlabPool::new(budget.clone(), counters.clone(), Arc::new(Event::new()));
        assert!(!pool.prepare());
        let first = pool.take_or_grow(1 << 20).unwrap();
        while pool.prepare() {}
        assert_eq!(
            (budget.used(), counters.slabs_fresh.get(), counters.slabs_prepared.get()),
            (9 * charged(1 << 20), 1, 8)
        );
        let taken: Vec<RawSlab> = (0..8).map(|_| pool.take(1 << 20).expect("ready")).collect();
        while pool.prepare() {}
        assert!(pool.take(1 << 20).is_none(), "eight more would not fit");
        drop((first, taken));
        assert!(budget.peak() <= 17 << 20);
    }
}
