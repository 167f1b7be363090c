//! Data that a cache above this one holds, too (Linux's `RWF_DONTCACHE`): it is written back early
//! and dropped, so that a stream uses the same few slabs again and again while they are in the
//! processor's caches.

use std::ops::Range;

use super::file_cache::FileCache;

/// Dirty bytes of a file at which a write that is not to be cached writes them back. Blocks are
/// allocated for all of them together, so concurrent streams get extents of this size.
const WRITE_BEHIND: u64 = 8 << 20;
/// At most this share of the budget.
const SHARE: u64 = 16;

impl FileCache {
    /// The blocks that a writer should write back after a write that is not to be cached; they then
    /// leave the cache. `None` while few blocks are dirty.
    #[must_use]
    pub fn write_behind(&self) -> Option<Range<u64>> {
        let limit = WRITE_BEHIND.min(self.state.cache.budget().limit() / SHARE);
        if self.dirty_bytes() < limit {
            return None;
        }
        let runs = self.dirty_ranges(0..u64::MAX);
        let (first, last) = (runs.first()?, runs.last()?);
        Some(first.start.get()..last.start.get() + last.len)
    }

    /// Drops the clean blocks of `blocks` from the cache. Blocks that are dirty or being written
    /// stay.
    pub fn invalidate(&self, blocks: Range<u64>) {
        self.state.drop_blocks(blocks, true);
    }

    /// As [`FileCache::invalidate`], for the blocks that hold `len` bytes at `offset`.
    pub fn invalidate_bytes(&self, offset: u64, len: usize) {
        let end = offset.saturating_add(len as u64);
        self.invalidate(self.state.block_of(offset)..self.state.blocks_for(end));
    }
}
