//! One memory budget for everything a volume caches: file folios and metadata buffers.
//!
//! Charging never blocks and never fails: memory that must be had (a copy of a pinned block, a journal's image) is
//! had, and the budget is over for a while. Whoever allocates what *can* wait makes room first.
//!
//! Locking: counters are atomics; the list of hooks is a leaf that is not held while a hook runs.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use cairn_base::memory::{self, Holder};
use cairn_base::ranked_lock::{Mutex, Rank};

/// However little memory the system has, a cache keeps this share of what it was given.
const LEAST_SHARE: u64 = 32;

/// Somebody who holds memory that can be had again.
pub trait Reclaim: Send + Sync {
    /// Frees up to about `bytes` of clean memory and returns how much was freed.
    ///
    /// Called with any lock below [`Rank::CACHE`] held: take those only by `try_lock`, and do no I/O.
    fn reclaim(&self, bytes: u64) -> u64;
}

/// A number of bytes that the caches of a volume share.
pub struct Budget {
    limit: AtomicU64,
    /// What was asked for: the limit never falls below a share of it.
    wished: AtomicU64,
    used: AtomicU64,
    peak: AtomicU64,
    hooks: Mutex<Vec<Weak<dyn Reclaim>>>,
}

impl Budget {
    /// A budget of `limit` bytes, all free.
    #[must_use]
    pub fn new(limit: u64) -> Arc<Self> {
        let budget = Arc::new(Self {
            limit: AtomicU64::new(limit),
            wished: AtomicU64::new(limit),
            used: AtomicU64::new(0),
            peak: AtomicU64::new(0),
            hooks: Mutex::new(Rank::LEAF, Vec::new()),
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

    /// Changes the limit; takes effect with the next allocations.
    pub fn set_limit(&self, limit: u64) {
        self.limit.store(limit, Ordering::Relaxed);
        self.wished.store(limit, Ordering::Relaxed);
    }

    /// Bytes in use now.
    #[must_use]
    pub fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }

    /// Most bytes that were ever in use.
    #[must_use]
    pub fn peak(&self) -> u64 {
        self.peak.load(Ordering::Relaxed)
    }

    /// Counts `bytes` as used.
    pub fn charge(&self, bytes: u64) {
        let used = self.used.fetch_add(bytes, Ordering::Relaxed) + bytes;
        if used > self.peak.load(Ordering::Relaxed) {
            self.peak.fetch_max(used, Ordering::Relaxed);
        }
    }

    /// Gives `bytes` back.
    pub fn uncharge(&self, bytes: u64) {
        let before = self.used.fetch_sub(bytes, Ordering::Relaxed);
        assert!(before >= bytes, "budget: {bytes} bytes given back of {before} charged");
    }

    /// Like [`Budget::charge`]; the result gives the bytes back when it is dropped.
    #[must_use]
    pub fn hold(self: &Arc<Self>, bytes: u64) -> Charge {
        self.charge(bytes);
        Charge { budget: self.clone(), bytes }
    }

    /// As [`Budget::hold`], unless that would exceed the limit: for who can do without. Callers at the same time do not exceed it together.
    #[must_use]
    pub fn try_hold(self: &Arc<Self>, bytes: u64) -> Option<Charge> {
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
    pub fn has_room(&self, bytes: u64) -> bool {
        self.used().saturating_add(bytes) <= self.limit()
    }

    /// Adds somebody to ask when memory is short; forgotten when dropped.
    pub fn add_reclaim(&self, hook: Weak<dyn Reclaim>) {
        self.hooks.lock().push(hook);
    }

    /// Adds somebody who holds memory that nobody uses: asked before all others.
    pub fn add_spare(&self, hook: Weak<dyn Reclaim>) {
        self.hooks.lock().insert(0, hook);
    }

    /// Asks the hooks, spare memory first and then in the order they were added, until `bytes` are free within the limit or none can give more.
    /// The caller holds no lock of rank [`Rank::CACHE`] or above. True if there is room now.
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
    /// The system has less than the limit says: what is used now, and a quarter less than that, is what there is from here on.
    fn give_up(&self) {
        let least = self.wished.load(Ordering::Relaxed) / LEAST_SHARE;
        let limit = (self.used() / 4 * 3).clamp(least, self.limit().max(least));
        self.limit.store(limit, Ordering::Relaxed);
        self.make_room(0);
    }
}

/// Bytes of a [`Budget`], given back on drop.
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
        let hoard = Arc::new(Hoard { budget: budget.clone(), held: Mutex::new(Rank::BUFFER, held) });
        let hook: Weak<dyn Reclaim> = Arc::downgrade(&(hoard.clone() as Arc<dyn Reclaim>));
        budget.add_reclaim(hook);
        assert!(budget.make_room(25));
        assert_eq!(budget.used(), 70);
        assert!(!budget.make_room(101));
        drop(hoard);
        assert!(budget.make_room(100));
    }
}
