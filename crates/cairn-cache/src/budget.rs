//! One memory budget for everything that a volume caches: see [`Use`].
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
use cairn_base::stats::Report;

/// A shortage of memory lowers the limit to no less than the requested limit divided by this.
const LEAST_SHARE: u64 = 32;

/// Inodes may take the limit divided by this.
const INODE_SHARE: u64 = 4;

/// A holder of memory that can be freed on demand: Linux's shrinker.
pub trait Reclaim: Send + Sync {
    /// Frees up to about `bytes` of clean memory and returns how much was freed.
    ///
    /// The caller may hold any lock below [`Rank::Cache`]. So an implementation takes those by
    /// `try_lock` only, and does no I/O.
    fn reclaim(&self, bytes: u64) -> u64;
}

/// [`Reclaim::reclaim`] for inodes of `each` bytes. `evict` evicts up to about so many, and returns
/// how many.
pub fn reclaim_inodes(bytes: u64, each: u64, evict: impl FnOnce(usize) -> usize) -> u64 {
    let count = usize::try_from(bytes.div_ceil(each)).unwrap_or(usize::MAX);
    (evict(count) as u64).saturating_mul(each)
}

/// The limit divided by this is set aside for what no charge counts: buffers of requests and of
/// threads, and what the allocator keeps between small objects.
const OVERHEAD_SHARE: u64 = 8;

/// What memory is used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Use {
    /// Folios, and the slabs that are kept for them.
    FileData,
    /// Metadata buffers; nodes of F2FS.
    Metadata,
    /// Blocks of entries that are cached by directory.
    Directories,
    /// Inodes, without what they cache.
    Inodes,
}

impl Use {
    const COUNT: usize = 4;

    /// Every use, and its name in reports.
    const NAMES: [(Self, &'static str); Self::COUNT] = [
        (Self::FileData, "file_data_bytes"),
        (Self::Metadata, "metadata_bytes"),
        (Self::Directories, "directory_bytes"),
        (Self::Inodes, "inode_bytes"),
    ];
}

/// A number of bytes that the caches of a volume share.
pub struct Budget {
    limit: AtomicU64,
    /// The limit without a shortage. The limit in force never falls below a share of it.
    requested: AtomicU64,
    /// An [`OVERHEAD_SHARE`] of what is given is set aside.
    sets_aside: bool,
    /// Bytes that are set aside. The limits leave them out.
    overhead: AtomicU64,
    used: AtomicU64,
    used_for: [AtomicU64; Use::COUNT],
    peak: AtomicU64,
    hooks: Mutex<Vec<Weak<dyn Reclaim>>>,
}

impl Budget {
    /// Creates a budget of `limit` bytes, all free.
    #[must_use]
    pub fn new(limit: u64) -> Arc<Self> {
        Self::make(limit, false)
    }

    /// Creates a budget for all memory of a volume: an eighth of `bytes` is set aside for what the
    /// caches do not count.
    #[must_use]
    pub fn of_volume(bytes: u64) -> Arc<Self> {
        Self::make(bytes, true)
    }

    fn make(bytes: u64, sets_aside: bool) -> Arc<Self> {
        let budget = Arc::new(Self {
            limit: AtomicU64::new(0),
            requested: AtomicU64::new(0),
            sets_aside,
            overhead: AtomicU64::new(0),
            used: AtomicU64::new(0),
            used_for: Default::default(),
            peak: AtomicU64::new(0),
            hooks: Mutex::new(Rank::Leaf, Vec::new()),
        });
        budget.set_limit(bytes);
        let holder: Weak<dyn Holder> = Arc::downgrade(&(budget.clone() as Arc<dyn Holder>));
        memory::on_shortage(holder);
        budget
    }

    /// Bytes that may be used, without those that are set aside.
    #[must_use]
    pub fn limit(&self) -> u64 {
        self.limit.load(Ordering::Relaxed)
    }

    /// Changes the limit. The next allocations follow it.
    pub fn set_limit(&self, bytes: u64) {
        let overhead = if self.sets_aside { bytes / OVERHEAD_SHARE } else { 0 };
        self.overhead.store(overhead, Ordering::Relaxed);
        self.limit.store(bytes - overhead, Ordering::Relaxed);
        self.requested.store(bytes - overhead, Ordering::Relaxed);
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

    /// Bytes in use now, by use.
    #[must_use]
    pub(crate) fn used_for(&self, purpose: Use) -> u64 {
        self.used_for[purpose as usize].load(Ordering::Relaxed)
    }

    /// The section `budget` of a report. What is set aside counts as used.
    #[must_use]
    pub(crate) fn report(&self) -> Report {
        let overhead = self.overhead.load(Ordering::Relaxed);
        let mut report = Report::new()
            .with("limit_bytes", self.limit() + overhead)
            .with("used_bytes", self.used() + overhead)
            .with("peak_bytes", self.peak() + overhead)
            .with("overhead_bytes", overhead);
        for (purpose, name) in Use::NAMES {
            report.set(name, self.used_for(purpose));
        }
        report
    }

    /// Counts `bytes` as used.
    pub fn charge(&self, purpose: Use, bytes: u64) {
        self.used_for[purpose as usize].fetch_add(bytes, Ordering::Relaxed);
        let used = self.used.fetch_add(bytes, Ordering::Relaxed) + bytes;
        if used > self.peak.load(Ordering::Relaxed) {
            self.peak.fetch_max(used, Ordering::Relaxed);
        }
    }

    /// Counts `bytes` as free.
    ///
    /// # Panics
    /// If fewer bytes are charged.
    pub fn uncharge(&self, purpose: Use, bytes: u64) {
        self.used_for[purpose as usize].fetch_sub(bytes, Ordering::Relaxed);
        let before = self.used.fetch_sub(bytes, Ordering::Relaxed);
        assert!(before >= bytes, "budget: {bytes} bytes freed of {before} charged");
    }

    /// Charges `bytes` until the result is dropped.
    pub fn hold(self: &Arc<Self>, purpose: Use, bytes: u64) -> Charge {
        self.charge(purpose, bytes);
        Charge { budget: self.clone(), purpose, bytes }
    }

    /// As [`Budget::hold`], unless that exceeds the limit. Concurrent callers do not exceed it
    /// together.
    pub(crate) fn try_hold(self: &Arc<Self>, purpose: Use, bytes: u64) -> Option<Charge> {
        let within = |used: u64| used.checked_add(bytes).filter(|used| *used <= self.limit());
        let before = self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, within).ok()?;
        self.peak.fetch_max(before + bytes, Ordering::Relaxed);
        self.used_for[purpose as usize].fetch_add(bytes, Ordering::Relaxed);
        Some(Charge { budget: self.clone(), purpose, bytes })
    }

    /// Bytes used beyond the limit.
    #[must_use]
    pub fn over(&self) -> u64 {
        self.used().saturating_sub(self.limit())
    }

    /// How many inodes of `bytes` each may be in memory: they take a quarter of the budget.
    ///
    /// # Panics
    /// `bytes` is 0.
    #[must_use]
    pub fn inode_limit(&self, bytes: u64) -> usize {
        usize::try_from(self.limit() / INODE_SHARE / bytes).unwrap_or(usize::MAX)
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
    purpose: Use,
    bytes: u64,
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.budget.uncharge(self.purpose, self.bytes);
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
        let held = budget.hold(Use::FileData, 120);
        assert_eq!((budget.used(), budget.over(), budget.has_room(0)), (120, 20, false));
        drop(held);
        assert_eq!((budget.used(), budget.over(), budget.has_room(100)), (0, 0, true));
        assert_eq!(budget.peak(), 120);
    }

    #[test]
    fn bytes_are_counted_by_use() {
        let budget = Budget::new(100);
        let held = [budget.hold(Use::Inodes, 7), budget.hold(Use::Metadata, 30)];
        let more = budget.try_hold(Use::Inodes, 60);
        let by_use = || Use::NAMES.map(|(purpose, _)| budget.used_for(purpose));
        assert_eq!((by_use(), budget.used()), ([0, 30, 0, 67], 97));
        assert!(budget.try_hold(Use::FileData, 4).is_none());
        drop((held, more));
        assert_eq!((by_use(), budget.used()), ([0; 4], 0));
    }

    /// What follows from the limit, such as how much may be dirty, leaves out what is set aside.
    #[test]
    fn a_volume_sets_an_eighth_aside_whatever_its_limit_becomes() {
        let budget = Budget::of_volume(800);
        assert_eq!((budget.limit(), budget.used()), (700, 0));
        for limit in [80, 1600] {
            budget.set_limit(limit);
            assert_eq!(
                (budget.limit(), budget.has_room(limit / 8 * 7 + 1)),
                (limit / 8 * 7, false)
            );
        }
    }

    #[test]
    fn threads_that_hold_what_fits_never_exceed_the_limit_together() {
        let budget = Budget::new(100);
        assert!(
            budget.try_hold(Use::FileData, 101).is_none()
                && budget.try_hold(Use::FileData, 100).is_some()
        );
        std::thread::scope(|scope| {
            for bytes in [30, 40, 50, 60] {
                let budget = &budget;
                scope.spawn(move || {
                    (0..20_000).for_each(|_| drop(budget.try_hold(Use::FileData, bytes)))
                });
            }
        });
        assert_eq!((budget.used(), budget.peak()), (0, 100));
    }

    #[test]
    fn room_is_made_by_the_hooks_and_only_as_much_as_needed() {
        let budget = Budget::new(100);
        let held = (0..10).map(|_| budget.hold(Use::FileData, 10)).collect();
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
