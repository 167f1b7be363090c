//! One memory budget for everything that a volume caches: file folios and metadata buffers.
//!
//! A charge never blocks and never fails: memory that is required (a copy of a pinned block, a
//! journal's frozen buffer) may exceed the limit for a while. A caller whose allocation can wait
//! makes room first.
//!
//! Locking: the counters are atomics. The list of hooks has rank Leaf and is not held while a hook
//! runs.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use cairn_base::memory::{self, Holder};
use cairn_base::ranked_lock::{Mutex, Rank};

/// A shortage of memory lowers the limit to no less than the requested limit divided by this.
const LEAST_SHARE: u64 = 32;

/// A holder of memory that can be freed on demand: Linux's shrinker.
pub trait Reclaim: Send + Sync {
    /// Frees up to about `bytes` of clean memory and returns how much was freed.
    ///
    /// The caller may hold any lock below [`Rank::Cache`]. So an implementation takes those by
    /// `try_lock` only, and does no I/O.
    fn reclaim(&self, bytes: u64) -> u64;
}

/// A number of bytes that the caches of a volume share.
pub struct Budget {
    limit: AtomicU64,
    /// The limit that was asked for. The limit in force never falls below a share of it.
    requested: AtomicU64,
    used: AtomicU64,
    peak: AtomicU64,
    hooks: Mutex<Vec<Weak<dyn Reclaim>>>,
}

impl Budget {
    /// Creates a budget of `limit` bytes, all free.
    #[must_use]
    pub fn new(limit: u64) -> Arc<Self> {
        let budget = Arc::new(Self {
            limit: AtomicU64::new(limit),
            requested: AtomicU64::new(limit),
            used: AtomicU64::new(0),
            peak: AtomicU64::new(0),
            hooks: Mutex::new(Rank::Leaf, Vec::new()),
        });
        let holder: Weak<dyn Holder> = Arc::downgrade(&(budget.clone() as Arc<dyn Holder>));
        memory::on_shortage(holder);
        budget
    }

    /// Bytes that may be used.
    #[must_use]
    pub fn limit(&self) -> u64 {
        self.limit.load(Ordering::Relaxed)
    }

    /// Changes the limit. The next allocations follow it.
    pub fn set_limit(&self, limit: u64) {
        self.limit.store(limit, Ordering::Relaxed);
        self.requested.store(limit, Ordering::Relaxed);
    }

    /// Bytes in use now.
    #[must_use]
    pub fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }

    /// Most bytes that were in use at any time.
    #[must_use]
    pub(crate) fn peak(&self) -> u64 {
        self.peak.load(Ordering::Relaxed)
    }

    /// Counts `bytes` as used.
    pub fn charge(&self, bytes: u64) {
        let used = self.used.fetch_add(bytes, Ordering::Relaxed) + bytes;
        if used > self.peak.load(Ordering::Relaxed) {
            self.peak.fetch_max(used, Ordering::Relaxed);
        }
    }

    /// Counts `bytes` as free.
    ///
    /// # Panics
    /// If fewer bytes are charged.
    pub fn uncharge(&self, bytes: u64) {
        let before = self.used.fetch_sub(bytes, Ordering::Relaxed);
        assert!(before >= bytes, "budget: {bytes} bytes freed of {before} charged");
    }

    /// Charges `bytes` until the result is dropped.
    pub fn hold(self: &Arc<Self>, bytes: u64) -> Charge {
        self.charge(bytes);
        Charge { budget: self.clone(), bytes }
    }

    /// As [`Budget::hold`], unless that exceeds the limit. Concurrent callers do not exceed it
    /// together.
    pub(crate) fn try_hold(self: &Arc<Self>, bytes: u64) -> Option<Charge> {
        let within = |used: u64| used.checked_add(bytes).filter(|used| *used <= self.limit());
        let before = self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, within).ok()?;
        self.peak.fetch_max(before + bytes, Ordering::Relaxed);
        Some(Charge { budget: self.clone(), bytes })
    }

    /// Bytes used beyond the limit.
    #[must_use]
    pub fn over(&self) -> u64 {
        self.used().saturating_sub(self.limit())
    }

    /// True if `bytes` more would not exceed the limit.
    #[must_use]
    pub(crate) fn has_room(&self, bytes: u64) -> bool {
        self.used().saturating_add(bytes) <= self.limit()
    }

    /// Adds a hook that is asked when memory is short. A dropped hook is removed.
    pub fn add_reclaim(&self, hook: Weak<dyn Reclaim>) {
        self.hooks.lock().push(hook);
    }

    /// Adds a hook for memory that is not in use. It is asked before all others.
    pub(crate) fn add_spare(&self, hook: Weak<dyn Reclaim>) {
        self.hooks.lock().insert(0, hook);
    }

    /// Asks the hooks until `bytes` are free within the limit, or no hook frees more: first those
    /// of spare memory, then the others in the order they were added. True if there is room now.
    /// The caller holds no lock of rank [`Rank::Cache`] or above.
    pub fn make_room(&self, bytes: u64) -> bool {
        if self.has_room(bytes) {
            return true;
        }
        let hooks = {
            let mut hooks = self.hooks.lock();
            hooks.retain(|hook| hook.strong_count() > 0);
            hooks.clone()
        };
        for hook in hooks.iter().filter_map(Weak::upgrade) {
            let missing = self.used().saturating_add(bytes).saturating_sub(self.limit());
            if missing == 0 {
                return true;
            }
            hook.reclaim(missing);
        }
        self.has_room(bytes)
    }
}

impl Holder for Budget {
    /// The system has less memory than the limit says: three quarters of what is used now become
    /// the limit.
    fn give_up(&self) {
        let least = self.requested.load(Ordering::Relaxed) / LEAST_SHARE;
        let limit = (self.used() / 4 * 3).clamp(least, self.limit().max(least));
        self.limit.store(limit, Ordering::Relaxed);
        self.make_room(0);
    }
}

/// Charged bytes of a [`Budget`]. Dropping it uncharges them.
#[must_use = "dropping a charge uncharges it"]
pub struct Charge {
    budget: Arc<Budget>,
    bytes: u64,
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.budget.uncharge(self.bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Hoard {
        budget: Arc<Budget>,
        held: Mutex<Vec<Charge>>,
    }

    impl Reclaim for Hoard {
        fn reclaim(&self, bytes: u64) -> u64 {
            let before = self.budget.used();
            while before - self.budget.used() < bytes && self.held.lock().pop().is_some() {}
            before - self.budget.used()
        }
    }

    #[test]
    fn a_charge_is_given_back() {
        let budget = Budget::new(100);
        let held = budget.hold(120);
        assert_eq!((budget.used(), budget.over(), budget.has_room(0)), (120, 20, false));
        drop(held);
        assert_eq!((budget.used(), budget.over(), budget.has_room(100)), (0, 0, true));
        assert_eq!(budget.peak(), 120);
    }

    #[test]
    fn threads_that_hold_what_fits_never_exceed_the_limit_together() {
        let budget = Budget::new(100);
        assert!(budget.try_hold(101).is_none() && budget.try_hold(100).is_some());
        std::thread::scope(|scope| {
            for bytes in [30, 40, 50, 60] {
                let budget = &budget;
                scope.spawn(move || (0..20_000).for_each(|_| drop(budget.try_hold(bytes))));
            }
        });
        assert_eq!((budget.used(), budget.peak()), (0, 100));
    }

    #[test]
    fn room_is_made_by_the_hooks_and_only_as_much_as_needed() {
        let budget = Budget::new(100);
        let held = (0..10).map(|_| budget.hold(10)).collect();
        let hoard =
            Arc::new(Hoard { budget: budget.clone(), held: Mutex::new(Rank::Buffer, held) });
        let hook: Weak<dyn Reclaim> = Arc::downgrade(&(hoard.clone() as Arc<dyn Reclaim>));
        budget.add_reclaim(hook);
        assert!(budget.make_room(25));
        assert_eq!(budget.used(), 70);
        assert!(!budget.make_room(101));
        drop(hoard);
        assert!(budget.make_room(100));
    }
}
