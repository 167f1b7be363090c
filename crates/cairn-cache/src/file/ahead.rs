//! The readahead daemon, which also has slabs ready when nobody reads, and who is reading which blocks at the moment.
//!
//! One daemon for a volume takes windows from a queue. It reads like any reader, holding inode.data shared, for which it
//! only tries: a mapping it uses cannot change under it. A window is read in chunks; whoever needs a block of one waits
//! for that chunk and no further. A window that cannot be read (busy inode, failing device) is dropped: the reader will
//! read for itself and meet the error.
//!
//! Locking: queue and table are of rank CACHE and held for look-ups only.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use cairn_base::ranked_lock::{Mutex, Rank, assert_may_wait};
use cairn_base::runtime::{Daemon, DaemonHandle, Event, NoThread, Progress};

use super::folio::Folio;
use super::index::FileState;
use super::mapping::Via;
use super::{CacheError, FileCache, PageCache};
use crate::mapper::{FileMapper, Place};

/// Bytes that one device batch of the daemon reads.
pub(super) const CHUNK: u64 = 1 << 20;
/// Windows that wait at most; further ones are dropped.
const MOST_WINDOWS: usize = 64;

/// Windows that nobody has begun to read.
pub(crate) struct Windows {
    queue: Mutex<VecDeque<(Weak<FileState>, Range<u64>)>>,
    wake: Arc<Event>,
    /// The daemon runs.
    served: AtomicBool,
}

impl Windows {
    pub(crate) fn new() -> Self {
        let queue = Mutex::new(Rank::CACHE, VecDeque::new());
        Self { queue, wake: Arc::new(Event::new()), served: AtomicBool::new(false) }
    }

    /// Wakes the daemon.
    pub(crate) fn wake(&self) -> Arc<Event> {
        self.wake.clone()
    }
}

struct Readahead {
    cache: Weak<PageCache>,
}

impl Daemon for Readahead {
    fn step(&self) -> Progress {
        let Some(cache) = self.cache.upgrade() else { return Progress::Done };
        let Some((file, blocks)) = cache.windows.queue.lock().pop_front() else {
            return if cache.pool.prepare() { Progress::Worked } else { Progress::Idle(None) };
        };
        let owner = file.upgrade().and_then(|file| file.owner.get().and_then(Weak::upgrade));
        if let Some(owner) = owner {
            owner.read_ahead(blocks);
        }
        Progress::Worked
    }
}

impl PageCache {
    /// Starts reading ahead. The volume keeps the handle and stops it before it closes.
    ///
    /// # Errors
    /// The system has no thread for it.
    pub fn start_readahead(self: &Arc<Self>) -> Result<DaemonHandle, NoThread> {
        let daemon = Arc::new(Readahead { cache: Arc::downgrade(self) });
        let handle = self.runtime.spawn("readahead", self.windows.wake.clone(), daemon)?;
        self.windows.served.store(true, Ordering::Relaxed);
        Ok(handle)
    }

    fn enqueue_window(&self, file: &Arc<FileState>, blocks: Range<u64>) {
        let mut queue = self.windows.queue.lock();
        if queue.len() < MOST_WINDOWS {
            queue.push_back((Arc::downgrade(file), blocks));
            drop(queue);
            self.windows.wake.notify();
        }
    }
}

impl FileCache {
    /// Reads blocks of a file of `size` bytes into the cache, as far as they have data. For
    /// [`crate::writeback::Flushable::read_ahead`], which holds inode.data shared.
    pub fn read_ahead(&self, mapper: &dyn FileMapper, size: u64, blocks: Range<u64>) {
        let file = &self.state;
        let end = blocks.end.min(file.blocks_for(size));
        let mut cursor = blocks.start;
        while cursor < end {
            match self.read_chunk(mapper, size, cursor..end) {
                Ok(next) => cursor = next,
                Err(error) => {
                    tracing::debug!(block = cursor, %error, "readahead ended");
                    return;
                }
            }
        }
        file.mark(blocks.start);
    }

    /// Reads the head of the range, or steps over what is there. Returns where to go on.
    fn read_chunk(&self, mapper: &dyn FileMapper, size: u64, blocks: Range<u64>) -> Result<u64, CacheError> {
        let file = &self.state;
        if let Some(end) = file.cached_until(blocks.start) {
            return Ok(end);
        }
        if let Some(end) = file.reading_until(blocks.start) {
            return Ok(end);
        }
        let most = (CHUNK >> file.shift).max(1);
        let until = file.missing_until(blocks.start..blocks.end.min(blocks.start + most));
        let Some(mut reading) = file.begin_reading(blocks.start..until) else { return Ok(blocks.start) };
        let until = reading.blocks.end;
        let mapping = self.lookup(Via::Cache, mapper, blocks.start, until - blocks.start)?;
        let Place::Mapped(pba) = mapping.place else { return Ok(blocks.start + mapping.run.len) };
        reading.end_at(self.extend(mapper, &mapping, until)?);
        let blocks = reading.blocks.clone();
        self.read_extent(blocks.clone(), pba, size, 0, &mut [])?;
        file.cache.counters().readahead_bytes.add((blocks.end - blocks.start) << file.shift);
        Ok(blocks.end)
    }
}

/// Blocks that somebody is reading from the device; ends when dropped.
pub(super) struct Reading<'a> {
    file: &'a FileState,
    pub(super) blocks: Range<u64>,
}

impl Reading<'_> {
    /// Leaves what is behind `end` to others.
    pub(super) fn end_at(&mut self, end: u64) {
        if end < self.blocks.end {
            self.blocks.end = end;
            self.file.reading.lock().insert(self.blocks.start, end);
            self.file.read_done.notify();
        }
    }
}

impl Drop for Reading<'_> {
    fn drop(&mut self) {
        self.file.reading.lock().remove(&self.blocks.start);
        self.file.read_done.notify();
    }
}

impl FileState {
    /// Says that the head of the range is being read, as far as nobody else reads it; `None` if its first block is.
    pub(super) fn begin_reading(&self, blocks: Range<u64>) -> Option<Reading<'_>> {
        let mut reading = self.reading.lock();
        let before = reading.range(..=blocks.start).next_back();
        if before.is_some_and(|(_, end)| *end > blocks.start) {
            return None;
        }
        let next = reading.range(blocks.start..blocks.end).next().map(|(start, _)| *start);
        let blocks = blocks.start..next.unwrap_or(blocks.end);
        reading.insert(blocks.start, blocks.end);
        drop(reading);
        Some(Reading { file: self, blocks })
    }

    /// The end of what somebody is reading there, if somebody is.
    fn reading_until(&self, block: u64) -> Option<u64> {
        let reading = self.reading.lock();
        let (_, end) = reading.range(..=block).next_back()?;
        Some(*end).filter(|end| *end > block)
    }

    fn is_reading(&self, block: u64) -> bool {
        self.reading_until(block).is_some()
    }

    /// If somebody is reading the block, waits for that and says so.
    pub(super) fn wait_reading(&self, block: u64) -> bool {
        if !self.is_reading(block) {
            return false;
        }
        assert_may_wait(Rank::GATE);
        self.cache.counters().readahead_waits.add(1);
        self.cache.runtime.wait_until(&self.read_done, &mut || !self.is_reading(block));
        true
    }

    /// Blocks that a window may have now.
    pub(super) fn window_limit(&self) -> u64 {
        let cache = &self.cache;
        if !cache.windows.served.load(Ordering::Relaxed) || self.owner.get().is_none() {
            return 0;
        }
        (cache.options().max_readahead as u64).min(cache.budget().limit() / 8) >> self.shift
    }

    pub(super) fn read_later(self: &Arc<Self>, blocks: Option<Range<u64>>) {
        if let Some(blocks) = blocks {
            self.cache.enqueue_window(self, blocks);
        }
    }

    /// Whoever reads the folio at `block` sets the next window going.
    pub(super) fn mark(&self, block: u64) {
        if let Some(folio) = self.find(block) {
            folio.marked.store(true, Ordering::Relaxed);
        }
    }

    /// A marked folio is being read.
    #[cold]
    pub(super) fn reach_mark(self: &Arc<Self>, folio: &Folio) {
        if folio.marked.swap(false, Ordering::Relaxed) {
            let window = self.streams.lock().marked(&(folio.start..folio.end()), self.window_limit());
            self.read_later(window);
        }
    }
}
