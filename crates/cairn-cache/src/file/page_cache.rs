//! [`PageCache`]: the volume-wide part. Memory, eviction by clock, counters.
//!
//! Every folio enters the clock's queue when it is made. The hand gives a folio that was used another round and takes
//! one out that is clean; one that is dirty leaves the queue and comes back when it has been written, so that the hand
//! never walks over dirty folios again and again.
//!
//! Locking: the queue is of rank CACHE and never held together with another lock.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use cairn_base::ranked_lock::{Mutex, Rank};
use cairn_base::runtime::Runtime;
use cairn_base::stats::Report;
use cairn_block::BlockDevice;

use super::CacheError;
use super::ahead::Windows;
use super::counters::CacheCounters;
use super::folio::{Folio, FolioState};
use super::mapping::BufferedMode;
use super::promise::Promising;
use super::slab::{MAX_SLAB, PAGE, RawSlab, Slab, SlabPool, order_of};
use crate::budget::{Budget, Reclaim};
use crate::writeback::{DirtyFiles, Expired};

/// What a volume's mount options say about its cache.
#[derive(Clone, Debug)]
pub struct PageCacheOptions {
    /// The filesystem's block size in bytes, a power of two.
    pub block_size: u32,
    /// How coarsely buffered I/O works; see [`PageCache::set_mode`].
    pub mode: BufferedMode,
    /// Largest folio in bytes, a power of two from [`MIN_FOLIO`] to [`MAX_FOLIO`]; see [`PageCache::set_max_folio`].
    pub max_folio: usize,
    /// Most bytes read ahead of a sequential reader.
    pub max_readahead: usize,
    /// Share of the budget that may be dirty before the daemon writes, in percent.
    pub dirty_background_percent: u8,
    /// Share of the budget that may be dirty before writers must help, in percent.
    pub dirty_percent: u8,
    /// Dirty data is written after this long; see [`PageCache::set_dirty_expire`].
    pub dirty_expire: Duration,
}

impl PageCacheOptions {
    /// The defaults for a block size.
    #[must_use]
    pub fn new(block_size: u32) -> Self {
        Self {
            block_size,
            mode: BufferedMode::default(),
            max_folio: MAX_FOLIO,
            max_readahead: 2 << 20,
            dirty_background_percent: 15,
            dirty_percent: 40,
            dirty_expire: Duration::from_secs(30),
        }
    }
}

/// Smallest `max_folio`.
pub const MIN_FOLIO: usize = PAGE;
/// Largest `max_folio`.
pub const MAX_FOLIO: usize = MAX_SLAB;

fn valid_folio(bytes: usize) -> usize {
    assert!(bytes.is_power_of_two() && (MIN_FOLIO..=MAX_FOLIO).contains(&bytes), "folios of {bytes} bytes");
    bytes
}

/// The cache of file data of one volume.
pub struct PageCache {
    pub(crate) device: Arc<dyn BlockDevice>,
    pub(crate) budget: Arc<Budget>,
    pub(crate) options: PageCacheOptions,
    pub(crate) runtime: Arc<dyn Runtime>,
    pub(crate) pool: Arc<SlabPool>,
    pub(crate) dirty: DirtyFiles,
    pub(crate) windows: Windows,
    pub(super) promising: Promising,
    clock: Mutex<VecDeque<Weak<Folio>>>,
    /// Folios that exist; what the clock's queue has beyond a multiple of it is dead.
    live: AtomicUsize,
    counters: Arc<CacheCounters>,
    per_block: AtomicBool,
    max_folio: AtomicUsize,
    /// In milliseconds.
    dirty_expire: AtomicU64,
    pub(crate) expired: OnceLock<Weak<dyn Expired>>,
}

fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

impl PageCache {
    /// A cache for files of `device` that shares `budget`. Start its daemon with [`PageCache::start_writeback`].
    ///
    /// # Panics
    /// If the block size is not a power of two of at most 2 MiB.
    #[must_use]
    pub fn new(
        device: Arc<dyn BlockDevice>,
        budget: Arc<Budget>,
        options: PageCacheOptions,
        runtime: Arc<dyn Runtime>,
    ) -> Arc<Self> {
        let block_size = options.block_size as usize;
        assert!(block_size.is_power_of_two() && block_size <= MAX_SLAB, "block size {block_size}");
        let counters = Arc::new(CacheCounters::default());
        let windows = Windows::new();
        let cache = Arc::new(Self {
            pool: SlabPool::new(budget.clone(), counters.clone(), windows.wake()),
            dirty: DirtyFiles::new(),
            windows,
            promising: Promising::new(),
            clock: Mutex::new(Rank::CACHE, VecDeque::new()),
            live: AtomicUsize::new(0),
            counters,
            per_block: AtomicBool::new(options.mode == BufferedMode::PerBlock),
            max_folio: AtomicUsize::new(valid_folio(options.max_folio)),
            dirty_expire: AtomicU64::new(milliseconds(options.dirty_expire)),
            expired: OnceLock::new(),
            device,
            budget,
            options,
            runtime,
        });
        let hook: Weak<dyn Reclaim> = Arc::downgrade(&(cache.clone() as Arc<dyn Reclaim>));
        cache.budget.add_reclaim(hook);
        let spare: Weak<dyn Reclaim> = Arc::downgrade(&(cache.pool.clone() as Arc<dyn Reclaim>));
        cache.budget.add_spare(spare);
        cache
    }

    /// What it has done so far.
    #[must_use]
    pub fn counters(&self) -> &CacheCounters {
        &self.counters
    }

    /// Its counters and memory, for the section `cache` of a volume's report.
    #[must_use]
    pub fn report(&self) -> Report {
        let memory = Report::new()
            .with("limit_bytes", self.budget.limit())
            .with("used_bytes", self.budget.used())
            .with("peak_bytes", self.budget.peak())
            .with("dirty_bytes", self.dirty_bytes());
        self.counters.report().with("budget", memory)
    }

    /// The memory budget.
    #[must_use]
    pub fn budget(&self) -> &Arc<Budget> {
        &self.budget
    }

    /// The options it was made with.
    #[must_use]
    pub fn options(&self) -> &PageCacheOptions {
        &self.options
    }

    /// How coarsely buffered I/O works now.
    #[must_use]
    pub fn mode(&self) -> BufferedMode {
        if self.per_block.load(Ordering::Relaxed) { BufferedMode::PerBlock } else { BufferedMode::Extents }
    }

    /// Changes the mode. Folios that exist stay as they are; mappings are asked for in the new way at once.
    pub fn set_mode(&self, mode: BufferedMode) {
        self.per_block.store(mode == BufferedMode::PerBlock, Ordering::Relaxed);
    }

    /// Changes the largest size of folios to come.
    ///
    /// # Panics
    /// If it is not a power of two from [`MIN_FOLIO`] to [`MAX_FOLIO`].
    pub fn set_max_folio(&self, bytes: usize) {
        self.max_folio.store(valid_folio(bytes), Ordering::Relaxed);
    }

    /// How long data stays dirty.
    #[must_use]
    pub fn dirty_expire(&self) -> Duration {
        Duration::from_millis(self.dirty_expire.load(Ordering::Relaxed))
    }

    /// From now on dirty data is written after this long, also what is dirty already.
    pub fn set_dirty_expire(&self, time: Duration) {
        self.dirty_expire.store(milliseconds(time), Ordering::Relaxed);
        self.dirty.wake.notify();
    }

    /// Whom to tell when files were written because they had been dirty for so long. The first one stays.
    pub fn set_expired(&self, expired: Weak<dyn Expired>) {
        self.expired.get_or_init(|| expired);
    }

    /// Largest folio in bytes: as the options say, but a small budget holds at least 16.
    pub(crate) fn max_folio(&self) -> usize {
        let fair = usize::try_from(self.budget.limit() / 16).unwrap_or(MAX_SLAB);
        let least = PAGE.max(self.options.block_size as usize);
        if self.mode() == BufferedMode::PerBlock {
            return least;
        }
        let most = self.max_folio.load(Ordering::Relaxed).min(fair).clamp(least, MAX_SLAB);
        1 << most.ilog2()
    }

    /// Memory for a folio. Evicts clean folios as long as the budget is exceeded, or the system has no more. Call it with no lock above
    /// inode.data.
    ///
    /// # Errors
    /// The system has no memory, and nothing is clean.
    pub(crate) fn allocate(&self, bytes: usize) -> Result<RawSlab, CacheError> {
        loop {
            if let Some(raw) = self.pool.take(bytes) {
                return Ok(raw);
            }
            if let Some(raw) = self.pool.try_grow(bytes) {
                return Ok(raw);
            }
            if self.pool.trim() == 0 && !self.evict_one() {
                break;
            }
        }
        self.budget.make_room(bytes as u64);
        Ok(self.pool.take_or_grow(bytes)?)
    }

    /// The folio's bytes for changing, copied first if they are pinned by a write.
    ///
    /// # Errors
    /// The system has no memory for a copy.
    pub(crate) fn make_mut<'a>(&self, state: &'a mut FolioState, keep: bool) -> Result<&'a mut [u8], CacheError> {
        let before = state.slab.bytes().as_ptr();
        let bytes = state.slab.make_mut(&self.pool, keep)?;
        if bytes.as_ptr() != before {
            self.counters.copies.add(1);
        }
        Ok(bytes)
    }

    /// Empty folio contents around this memory.
    pub(crate) fn folio_state(&self, raw: RawSlab, blocks: u32) -> FolioState {
        FolioState::new(Slab::new(&self.pool, raw), blocks)
    }

    /// Counts a folio, before others can find it: they may remove it at once.
    pub(crate) fn folio_added(&self, bytes: usize) {
        self.counters.folios_by_order[order_of(bytes)].add(1);
        self.live.fetch_add(1, Ordering::Relaxed);
    }

    /// Puts a new folio into the clock's queue.
    pub(crate) fn folio_queued(&self, folio: &Arc<Folio>) {
        let mut clock = self.clock.lock();
        clock.push_back(Arc::downgrade(folio));
        if clock.len() > 2 * self.live.load(Ordering::Relaxed) + 1024 {
            clock.retain(|folio| folio.strong_count() > 0);
        }
    }

    pub(crate) fn folio_removed(&self, bytes: usize) {
        self.counters.folios_by_order[order_of(bytes)].add(-1);
        self.live.fetch_sub(1, Ordering::Relaxed);
    }

    /// Back into the clock's queue, under the folio's lock.
    pub(crate) fn folio_evictable(&self, folio: &Arc<Folio>, state: &mut FolioState) {
        if !state.clocked && !state.removed {
            state.clocked = true;
            self.clock.lock().push_back(Arc::downgrade(folio));
        }
    }

    /// Throws out one clean folio that was not used lately. Waits for no lock below CACHE.
    pub(crate) fn evict_one(&self) -> bool {
        let mut left = 2 * self.clock.lock().len() + 1;
        while left > 0 {
            left -= 1;
            let Some(folio) = self.clock.lock().pop_front() else { return false };
            let Some(folio) = folio.upgrade() else { continue };
            if folio.referenced.swap(false, Ordering::Relaxed) {
                self.clock.lock().push_back(Arc::downgrade(&folio));
                continue;
            }
            match self.try_evict(&folio) {
                Some(true) => return true,
                Some(false) => {}
                None => self.clock.lock().push_back(Arc::downgrade(&folio)),
            }
        }
        false
    }

    /// None if the folio is in use right now.
    fn try_evict(&self, folio: &Arc<Folio>) -> Option<bool> {
        let mut state = folio.state.try_lock()?;
        state.clocked = false;
        let Some(file) = folio.file.upgrade().filter(|_| !state.removed && state.is_clean()) else {
            return Some(false);
        };
        file.remove(folio, &mut state);
        self.counters.evictions.add(1);
        Some(true)
    }
}

impl Reclaim for PageCache {
    fn reclaim(&self, bytes: u64) -> u64 {
        let before = self.budget.used();
        loop {
            let freed = before.saturating_sub(self.budget.used());
            if freed >= bytes || (self.pool.trim() == 0 && !self.evict_one()) {
                return freed;
            }
        }
    }
}
