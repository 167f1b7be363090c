//! Slabs: the memory of folios. A slab is shared with the device while it is written ([`Slab::pin`]) and immutable as
//! long as it is; a writer then gets a copy. Freed slabs keep their faulted-in pages and are used again.
//!
//! Locking: the free lists are a leaf, so that the last pin may be dropped anywhere, the device's thread included.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use bytes::Bytes;
use cairn_base::ranked_lock::{Mutex, Rank};
use cairn_block::IoBuf;

use super::counters::CacheCounters;
use crate::budget::{Budget, Charge};

/// Smallest slab and folio.
pub(crate) const PAGE: usize = 4096;
/// Sizes are `PAGE << order`; the largest is 2 MiB.
pub const ORDERS: usize = 10;
/// Largest slab and folio.
pub(crate) const MAX_SLAB: usize = PAGE << (ORDERS - 1);

/// The order of a slab size.
pub(crate) fn order_of(bytes: usize) -> usize {
    debug_assert!(bytes.is_power_of_two() && (PAGE..=MAX_SLAB).contains(&bytes), "{bytes} is no slab size");
    (bytes / PAGE).trailing_zeros() as usize
}

/// Memory that nobody shares yet. Its contents are arbitrary.
pub(crate) struct RawSlab {
    pub(crate) buf: IoBuf,
    pub(crate) charge: Charge,
}

/// Recycles slabs and charges them.
pub(crate) struct SlabPool {
    budget: Arc<Budget>,
    counters: Arc<CacheCounters>,
    /// Bytes kept for later at most.
    most: u64,
    kept: AtomicU64,
    free: Mutex<[Vec<RawSlab>; ORDERS]>,
}

impl SlabPool {
    pub(crate) fn new(budget: Arc<Budget>, counters: Arc<CacheCounters>) -> Arc<Self> {
        let most = budget.limit() / 4;
        let free = Mutex::new(Rank::LEAF, std::array::from_fn(|_| Vec::new()));
        Arc::new(Self { budget, counters, most, kept: AtomicU64::new(0), free })
    }

    /// A recycled slab of this size.
    pub(crate) fn take(&self, bytes: usize) -> Option<RawSlab> {
        let raw = self.free.lock()[order_of(bytes)].pop()?;
        self.kept.fetch_sub(bytes as u64, Ordering::Relaxed);
        self.counters.slabs_recycled.add(1);
        Some(raw)
    }

    /// A slab in any case, beyond the budget if need be.
    pub(crate) fn take_or_grow(&self, bytes: usize) -> RawSlab {
        self.take(bytes).unwrap_or_else(|| {
            self.counters.slabs_fresh.add(1);
            RawSlab { charge: self.budget.hold(bytes as u64), buf: IoBuf::zeroed(bytes) }
        })
    }

    /// Frees one recycled slab, the largest. Returns its bytes, 0 if there was none.
    pub(crate) fn trim(&self) -> u64 {
        let Some(raw) = self.free.lock().iter_mut().rev().find_map(Vec::pop) else { return 0 };
        let bytes = raw.buf.len() as u64;
        self.kept.fetch_sub(bytes, Ordering::Relaxed);
        bytes
    }

    fn put(&self, raw: RawSlab) {
        let bytes = raw.buf.len() as u64;
        let kept = self.kept.fetch_add(bytes, Ordering::Relaxed) + bytes;
        if kept > self.most || self.budget.over() > 0 {
            self.kept.fetch_sub(bytes, Ordering::Relaxed);
            return;
        }
        let order = order_of(raw.buf.len());
        self.free.lock()[order].push(raw);
    }
}

/// A folio's memory.
#[derive(Clone)]
pub(crate) struct Slab(Arc<Shared>);

struct Shared {
    /// Taken by `drop` only.
    raw: Option<RawSlab>,
    pool: Weak<SlabPool>,
}

impl Drop for Shared {
    fn drop(&mut self) {
        if let (Some(raw), Some(pool)) = (self.raw.take(), self.pool.upgrade()) {
            pool.put(raw);
        }
    }
}

impl Shared {
    fn bytes(&self) -> &[u8] {
        &self.raw.as_ref().expect("present until dropped").buf
    }
}

impl Slab {
    pub(crate) fn new(pool: &Arc<SlabPool>, raw: RawSlab) -> Self {
        Self(Arc::new(Shared { raw: Some(raw), pool: Arc::downgrade(pool) }))
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        self.0.bytes()
    }

    /// The contents for changing; copied first if they are pinned. `keep` false: the old contents do not matter.
    pub(crate) fn make_mut(&mut self, pool: &Arc<SlabPool>, keep: bool) -> &mut [u8] {
        if Arc::get_mut(&mut self.0).is_none() {
            let mut raw = pool.take_or_grow(self.bytes().len());
            if keep {
                raw.buf.copy_from_slice(self.bytes());
            }
            *self = Self::new(pool, raw);
        }
        let shared = Arc::get_mut(&mut self.0).expect("nobody else has the copy");
        &mut shared.raw.as_mut().expect("present until dropped").buf
    }

    /// A part of the contents as they are now, for as long as anybody wants them.
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
        let pool = SlabPool::new(budget.clone(), Arc::default());
        let mut slab = Slab::new(&pool, pool.take_or_grow(PAGE));
        slab.make_mut(&pool, true).fill(1);
        let address = slab.bytes().as_ptr();
        let pin = slab.pin(100..200);
        slab.make_mut(&pool, true)[150] = 2;
        assert_eq!((pin[50], slab.bytes()[150], slab.bytes()[151]), (1, 2, 1));
        assert_eq!(budget.used(), 2 * PAGE as u64);
        drop(pin);
        assert_eq!(pool.take(PAGE).expect("the pinned one came back").buf.as_ptr(), address);
        drop((slab, pool));
        assert_eq!(budget.used(), 0);
    }

    #[test]
    fn an_exhausted_budget_keeps_nothing() {
        let budget = Budget::new(PAGE as u64);
        let pool = SlabPool::new(budget.clone(), Arc::default());
        drop(Slab::new(&pool, pool.take_or_grow(2 * PAGE)));
        assert_eq!((budget.used(), pool.trim()), (0, 0));
    }
}
