//! [`PageCache`]: the page cache of one volume, with its memory, eviction by clock, and counters.
//!
//! Every new folio enters the clock's queue. The hand gives a used folio another round and evicts a
//! clean one. A dirty folio leaves the queue and enters it again when it has been written, so that
//! the hand does not visit dirty folios repeatedly.
//!
//! Locking: the queue has rank Cache and is never held together with another lock.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use cairn_base::ranked_lock::{Mutex, Rank};
use cairn_base::runtime::Runtime;
use cairn_base::stats::Report;
use cairn_block::BlockDevice;

use super::counters::CacheCounters;
use super::error::CacheError;
use super::folio::{Folio, FolioState};
use super::options::{BufferedMode, MAX_FOLIO, MIN_FOLIO, PageCacheOptions};
use super::order::{MAX_SLAB, PAGE, charged, order_of};
use super::readahead_queue::ReadaheadQueue;
use super::reservation::ReservingFiles;
use super::slab::{RawSlab, Slab, SlabPool};
use crate::budget::{Budget, Reclaim};
use crate::writeback::{DirtyFile, DirtyFiles, Expired, Flushable, NoRoom};

fn valid_folio(bytes: usize) -> usize {
    assert!(
        bytes.is_power_of_two() && (MIN_FOLIO..=MAX_FOLIO).contains(&bytes),
        "folios of {bytes} bytes"
    );
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
    pub(crate) no_room: NoRoom,
    pub(super) readahead: ReadaheadQueue,
    pub(super) reserving: ReservingFiles,
    clock: Mutex<VecDeque<Weak<Folio>>>,
    /// Number of folios. The clock's queue is purged of dead entries when it is much longer.
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
    /// Creates a cache for the files of `device` that shares `budget`.
    /// [`PageCache::start_writeback`] starts its daemon.
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
        let readahead = ReadaheadQueue::new();
        let cache = Arc::new(Self {
            pool: SlabPool::new(budget.clone(), counters.clone(), readahead.wake()),
            dirty: DirtyFiles::new(),
            no_room: NoRoom::default(),
            readahead,
            reserving: ReservingFiles::new(),
            clock: Mutex::new(Rank::Cache, VecDeque::new()),
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

    /// The counters of the cache.
    #[must_use]
    pub(crate) fn counters(&self) -> &CacheCounters {
        &self.counters
    }

    /// The counters and memory of the cache, for the section `cache` of a volume's report.
    #[must_use]
    pub fn report(&self) -> Report {
        let memory = self.budget.report();
        let memory = memory.with("dirty_bytes", self.dirty_bytes());
        let memory = memory.with("free_bytes", self.pool.free_bytes());
        self.counters.report().with("budget", memory)
    }

    /// The memory budget.
    #[must_use]
    pub fn budget(&self) -> &Arc<Budget> {
        &self.budget
    }

    /// The options of the mount, as they were when the cache was created.
    #[must_use]
    pub(crate) fn options(&self) -> &PageCacheOptions {
        &self.options
    }

    /// How much one mapping and one folio of buffered I/O cover now.
    #[must_use]
    pub(crate) fn mode(&self) -> BufferedMode {
        if self.per_block.load(Ordering::Relaxed) {
            BufferedMode::PerBlock
        } else {
            BufferedMode::Extents
        }
    }

    /// Changes the mode. Existing folios keep their size; the next call of a mapper follows the new
    /// mode.
    pub fn set_mode(&self, mode: BufferedMode) {
        self.per_block.store(mode == BufferedMode::PerBlock, Ordering::Relaxed);
    }

    /// Changes the largest size of new folios.
    ///
    /// # Panics
    /// If it is not a power of two from `MIN_FOLIO` to [`MAX_FOLIO`].
    pub fn set_max_folio(&self, bytes: usize) {
        self.max_folio.store(valid_folio(bytes), Ordering::Relaxed);
    }

    /// The age at which dirty data is written.
    #[must_use]
    pub(crate) fn dirty_expire(&self) -> Duration {
        Duration::from_millis(self.dirty_expire.load(Ordering::Relaxed))
    }

    /// Changes the age at which dirty data is written. It applies to data that is dirty already,
    /// too.
    pub fn set_dirty_expire(&self, time: Duration) {
        self.dirty_expire.store(milliseconds(time), Ordering::Relaxed);
        self.dirty.wake.notify();
    }

    /// Sets what is told when files were written because of their age. Further calls change
    /// nothing.
    pub fn set_expired(&self, expired: Weak<dyn Expired>) {
        self.expired.get_or_init(|| expired);
    }

    /// Largest new folio in bytes: what the options say, but at most a sixteenth of the budget.
    pub(crate) fn max_folio(&self) -> usize {
        let fair = usize::try_from(self.budget.limit() / 16).unwrap_or(MAX_SLAB);
        let least = PAGE.max(self.options.block_size as usize);
        if self.mode() == BufferedMode::PerBlock {
            return least;
        }
        let most = self.max_folio.load(Ordering::Relaxed).min(fair).clamp(least, MAX_SLAB);
        1 << most.ilog2()
    }

    /// Allocates memory for a folio. It evicts clean folios while the budget is exceeded or the
    /// system has no memory. The caller holds no lock above inode.data.
    ///
    /// # Errors
    /// The system has no memory, and no folio is clean.
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
        self.budget.make_room(charged(bytes));
        Ok(self.pool.take_or_grow(bytes)?)
    }

    /// The bytes of a folio for changing. They are copied first if a write to the device pins them.
    ///
    /// # Errors
    /// The system has no memory for a copy.
    pub(crate) fn make_mut<'a>(
        &self,
        state: &'a mut FolioState,
        keep: bool,
    ) -> Result<&'a mut [u8], CacheError> {
        let before = state.slab.bytes().as_ptr();
        let bytes = state.slab.make_mut(&self.pool, keep)?;
        if bytes.as_ptr() != before {
            self.counters.copies.add(1);
        }
        Ok(bytes)
    }

    /// A new folio state over this memory, with no block up to date.
    pub(crate) fn folio_state(&self, raw: RawSlab, blocks: u32) -> FolioState {
        FolioState::new(Slab::new(&self.pool, raw), blocks)
    }

    /// Counts a new folio. Call it before the folio is in the index: another thread may remove it
    /// at once.
    pub(crate) fn folio_added(&self, bytes: usize) {
        self.counters.folios_by_order[order_of(bytes)].add(1);
        self.live.fetch_add(1, Ordering::Relaxed);
    }

    /// Appends a new folio to the clock's queue.
    pub(crate) fn folio_queued(&self, folio: &Arc<Folio>) {
        let mut clock = self.clock.lock();
        clock.push_back(Arc::downgrade(folio));
        if clock.len() > 2 * self.live.load(Ordering::Relaxed) + 1024 {
            clock.retain(|folio| folio.strong_count() > 0);
        }
    }

    /// Counts a folio that has left its index.
    pub(crate) fn folio_removed(&self, bytes: usize) {
        self.counters.folios_by_order[order_of(bytes)].add(-1);
        self.live.fetch_sub(1, Ordering::Relaxed);
    }

    /// Appends a clean folio to the clock's queue again. The caller holds the folio's lock.
    pub(crate) fn folio_evictable(&self, folio: &Arc<Folio>, state: &mut FolioState) {
        if !state.clocked && !state.removed {
            state.clocked = true;
            self.clock.lock().push_back(Arc::downgrade(folio));
        }
    }

    /// Evicts one clean folio that was not used since the hand passed it. It waits for no lock
    /// below CACHE. False if there is none.
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

    /// `None` if the folio is locked.
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

impl PageCache {
    /// Bytes of this volume's files that are dirty or being written.
    #[must_use]
    pub fn dirty_bytes(&self) -> u64 {
        self.dirty.bytes()
    }

    /// The files of this volume with data that is dirty or being written, for sync.
    #[must_use]
    pub fn dirty_files(&self) -> Vec<Arc<dyn Flushable>> {
        self.dirty.list().iter().filter_map(|file| file.upgrade_owner()).collect()
    }

    /// Bytes of memory that dirty data keeps. The last folio of a dirty file is a page with maybe
    /// one dirty block, so a page is added for each file.
    pub(crate) fn kept_by_dirty(&self) -> u64 {
        self.dirty_bytes() + (self.dirty.files() * PAGE) as u64
    }

    fn share(&self, percent: u8) -> u64 {
        self.budget.limit() / 100 * u64::from(percent)
    }

    /// True if so much is dirty that the write-back daemon starts to write.
    pub(crate) fn is_over_background(&self) -> bool {
        self.kept_by_dirty() > self.share(self.options.dirty_background_percent)
    }

    /// True if so much is dirty that the daemon, once it writes for that reason, goes on. It stops
    /// well below where it starts: otherwise each further write would wake it for one file.
    pub(crate) fn is_over_low_mark(&self) -> bool {
        let background = self.share(self.options.dirty_background_percent);
        self.kept_by_dirty() > background - background / 4
    }

    /// True if so much is dirty that writers should call [`PageCache::balance`].
    pub(crate) fn is_over_limit(&self) -> bool {
        self.kept_by_dirty() > self.share(self.options.dirty_percent)
    }

    /// Counts blocks of `file` that became dirty, of `bytes` bytes. The caller holds a folio's
    /// lock.
    pub(crate) fn dirtied(&self, file: &Arc<DirtyFile>, blocks: u64, bytes: u64) {
        let was_over = self.is_over_background();
        self.dirty.add(file, blocks, bytes);
        // While the queue is empty the daemon sleeps without a time limit.
        let first = !file.is_queued() && self.dirty.push(file, self.runtime.monotonic());
        if first || (!was_over && self.is_over_background()) {
            self.dirty.wake.notify();
        }
    }

    /// Counts blocks of `file` that became clean or were dropped.
    pub(crate) fn cleaned(&self, file: &DirtyFile, blocks: u64, bytes: u64) {
        self.dirty.sub(file, blocks, bytes);
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
