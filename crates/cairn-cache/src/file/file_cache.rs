//! [`FileCache`]: the cached data of one file.

use std::ops::Range;
use std::sync::{Arc, Weak};

use cairn_base::FileBlock;

use super::index::FileState;
use super::page_cache::PageCache;
use crate::mapper::Run;
use crate::writeback::{DirtyFile, ErrorSequence, Flushable};

/// The cached data of one file.
///
/// Dropping it drops the cached data, dirty or not. It does not release reservations: the owner
/// calls [`FileCache::truncate`] or [`FileCache::drop_all`] before.
pub struct FileCache {
    pub(crate) state: Arc<FileState>,
}

impl FileCache {
    /// Bytes that the cache of a file takes without its contents.
    pub const BYTES: usize = size_of::<FileState>() + size_of::<DirtyFile>() + 4 * size_of::<u64>();

    /// Creates an empty cache.
    ///
    /// # Panics
    /// If `block_size` is not the volume's.
    #[must_use]
    pub fn new(cache: &Arc<PageCache>, block_size: u32) -> Self {
        assert_eq!(block_size, cache.options().block_size, "one block size for a volume");
        Self { state: Arc::new(FileState::new(cache.clone(), block_size)) }
    }

    /// Sets the inode that writes this file back when memory is short or the data is old. Call it
    /// once, before the first write.
    ///
    /// # Panics
    /// If the file has an owner.
    pub fn set_owner(&self, owner: Weak<dyn Flushable>) {
        let first = self.state.dirty.owner.set(owner).is_ok();
        assert!(first, "a file has one owner");
    }

    /// Write-back errors of this file, for fsync.
    #[must_use]
    pub fn errors(&self) -> &ErrorSequence {
        &self.state.errors
    }

    /// True if any block is dirty or being written.
    #[must_use]
    pub fn has_dirty(&self) -> bool {
        self.state.has_unstable()
    }

    /// Bytes of the blocks that are dirty or being written.
    pub(crate) fn dirty_bytes(&self) -> u64 {
        self.state.dirty.unstable() << self.state.shift
    }

    /// True if the block is dirty or being written.
    #[must_use]
    pub fn is_dirty(&self, block: FileBlock) -> bool {
        !self.dirty_ranges(block.get()..block.get().saturating_add(1)).is_empty()
    }

    /// The runs within `blocks` that are dirty or being written, in order.
    #[must_use]
    pub fn dirty_ranges(&self, blocks: Range<u64>) -> Vec<Run> {
        self.state.unstable_runs(blocks)
    }

    /// Whether the first of `blocks` is dirty or being written, and up to which block this holds.
    #[must_use]
    pub fn starts_dirty(&self, blocks: Range<u64>) -> (bool, u64) {
        match self.dirty_ranges(blocks.clone()).first() {
            Some(run) if run.start.get() <= blocks.start => (true, run.start.get() + run.len),
            Some(run) => (false, run.start.get()),
            None => (false, blocks.end),
        }
    }

    /// Waits until no block of `blocks` is being written.
    pub fn wait_writeback(&self, blocks: Range<u64>) {
        self.state.wait_writeback(&blocks);
    }
}
