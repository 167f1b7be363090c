//! File data in memory: [`FileCache`], one for each inode, over the volume's [`PageCache`].
//!
//! A file is cached in folios, naturally aligned pieces of 4 KiB to 2 MiB. The mapper is asked once for the largest
//! run, and then a whole run is copied, read or written.
//!
//! # Locks of the caller
//!
//! inode.data *shared* for [`FileCache::read`], [`FileCache::write_back`], [`FileCache::direct_read`] and the questions;
//! inode.data *alone* for everything that changes contents or size (`write`, `truncate`, `discard`, `zero`,
//! `direct_write`). Nothing above inode.data may be held: the cache calls `reserve`, `place` and tickets, which start
//! journal handles, and it does so without any lock of its own.
//!
//! # Two modes
//!
//! [`BufferedMode::PerBlock`] is the same cache at the finest grain: a folio for each page, a mapping for each block.
//!
//! # Memory
//!
//! A write makes dirty memory that only write-back can free. So a writer calls [`PageCache::balance`] *before it takes
//! any lock*, and [`FileCache::write`] takes a bounded piece at a time: it returns a short count and is called again.

mod ahead;
mod bits;
mod copy;
mod counters;
mod direct;
mod folio;
mod index;
mod mapping;
mod page_cache;
mod promise;
mod read;
mod readahead;
mod shared;
mod slab;
mod truncate;
mod write;

use std::ops::Range;
use std::sync::{Arc, Weak};

use cairn_base::FileBlock;
use cairn_base::memory::NoMemory;

pub use counters::CacheCounters;
pub use mapping::BufferedMode;
pub use page_cache::{MAX_FOLIO, MIN_FOLIO, PageCache, PageCacheOptions};
pub use slab::ORDERS;

pub(crate) use folio::Folio;
pub(crate) use index::FileState;

use crate::mapper::{MapError, Run};
use crate::writeback::{ErrorSequence, Flushable};

/// Why file data could not be had, kept or written.
#[derive(Clone, Debug, thiserror::Error)]
pub enum CacheError {
    /// The device could not read what is in the file.
    #[error(transparent)]
    Read(cairn_block::Error),
    /// The device did not take what is to be in the file.
    #[error(transparent)]
    Write(cairn_block::Error),
    /// The file's mapping failed.
    #[error(transparent)]
    Map(#[from] MapError),
}

impl From<NoMemory> for CacheError {
    fn from(refused: NoMemory) -> Self {
        Self::Read(refused.into())
    }
}

/// The cached data of one file.
///
/// Dropping it drops the cached data, dirty or not; promises of dirty blocks are given back by [`FileCache::truncate`]
/// or [`FileCache::drop_all`] before.
pub struct FileCache {
    pub(crate) state: Arc<FileState>,
}

impl FileCache {
    /// An empty cache.
    ///
    /// # Panics
    /// If `block_size` is not the volume's.
    #[must_use]
    pub fn new(cache: &Arc<PageCache>, block_size: u32) -> Self {
        assert_eq!(block_size, cache.options().block_size, "one block size for a volume");
        Self { state: Arc::new(FileState::new(cache.clone(), block_size)) }
    }

    /// Says who writes this file back when memory is short or time is up. Once, before the first write.
    pub fn set_owner(&self, owner: Weak<dyn Flushable>) {
        let first = self.state.owner.set(owner).is_ok();
        assert!(first, "a file has one owner");
    }

    /// The volume-wide part.
    #[must_use]
    pub fn page_cache(&self) -> &Arc<PageCache> {
        &self.state.cache
    }

    /// Write-back errors of this file, for fsync.
    #[must_use]
    pub fn errors(&self) -> &ErrorSequence {
        &self.state.errors
    }

    /// True if anything waits for write-back or is being written.
    #[must_use]
    pub fn has_dirty(&self) -> bool {
        self.state.has_unstable()
    }

    /// Bytes that wait for write-back or are being written.
    #[must_use]
    pub fn dirty_bytes(&self) -> u64 {
        self.state.unstable.load(std::sync::atomic::Ordering::Relaxed) << self.state.shift
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

    /// Forgets clean folios that `blocks` touches. Dirty ones stay.
    pub fn invalidate(&self, blocks: Range<u64>) {
        self.state.drop_blocks(blocks, true);
    }

    /// Waits until no block of `blocks` is being written.
    pub fn wait_writeback(&self, blocks: Range<u64>) {
        self.state.wait_writeback(&blocks);
    }
}

#[cfg(test)]
mod tests;
