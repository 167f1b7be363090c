//! Blocks that are being read from the device, and the next readahead window of a reader.
//!
//! A block is read by one reader at a time. Other readers that need it wait for that read only.
//!
//! Locking: the table of reads has rank Cache. It is held for look-ups only, never across I/O.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use cairn_base::ranked_lock::{Rank, assert_may_wait};

use super::folio::Folio;
use super::index::FileState;

/// Blocks that this reader reads from the device. Dropping it ends the read and wakes the waiters.
#[must_use = "dropping it ends the read"]
pub(super) struct Reading<'a> {
    file: &'a FileState,
    pub(super) blocks: Range<u64>,
}

impl Reading<'_> {
    /// Shortens the read: other readers may read the blocks from `end` on.
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
    /// Enters the head of the range into the table of reads, up to the next block that another
    /// reader reads. `None` if another reader reads the first block.
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

    /// End of the read that covers `block`; `None` if there is none.
    pub(super) fn reading_until(&self, block: u64) -> Option<u64> {
        let reading = self.reading.lock();
        let (_, end) = reading.range(..=block).next_back()?;
        Some(*end).filter(|end| *end > block)
    }

    fn is_reading(&self, block: u64) -> bool {
        self.reading_until(block).is_some()
    }

    /// Waits for the read that covers `block`. False if there is none.
    pub(super) fn wait_reading(&self, block: u64) -> bool {
        if !self.is_reading(block) {
            return false;
        }
        assert_may_wait(Rank::Operation);
        self.cache.counters().readahead_waits.add(1);
        self.cache.runtime.wait_until(&self.read_done, &mut || !self.is_reading(block));
        true
    }

    /// Most blocks that a readahead window may have now.
    pub(super) fn window_limit(&self) -> u64 {
        let cache = &self.cache;
        if !cache.readahead.is_served() || self.dirty.owner.get().is_none() {
            return 0;
        }
        (cache.options().max_readahead as u64).min(cache.budget().limit() / 8) >> self.shift
    }

    /// Queues a window for the readahead daemon.
    pub(super) fn queue_window(&self, blocks: Option<Range<u64>>) {
        if let (Some(blocks), Some(owner)) = (blocks, self.dirty.owner.get()) {
            self.cache.readahead.push(owner.clone(), blocks);
        }
    }

    /// Marks the folio at `block`: its next reader starts the next window.
    pub(super) fn mark(&self, block: u64) {
        if let Some(folio) = self.find(block) {
            folio.marked.store(true, Ordering::Relaxed);
        }
    }

    /// Starts the next window, because a marked folio is being read.
    #[cold]
    pub(super) fn reach_mark(self: &Arc<Self>, folio: &Folio) {
        if folio.marked.swap(false, Ordering::Relaxed) {
            let window =
                self.streams.lock().marked(&(folio.start..folio.end()), self.window_limit());
            self.queue_window(window);
        }
    }
}
