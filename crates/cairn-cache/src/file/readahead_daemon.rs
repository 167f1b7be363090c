//! The readahead daemon. While the queue of windows is empty, it also prepares slabs, and frees
//! those that nobody needs.
//!
//! One daemon for each volume takes windows from the queue. It reads like any reader: it holds
//! inode.data shared, so that a mapping it uses cannot change. It only tries to take that lock. A
//! window is read in chunks, and a reader that needs a block waits for that block's chunk only. The
//! daemon drops a window that it cannot read (busy inode, failing device): the reader then reads
//! the blocks itself and gets the error.

use std::ops::Range;
use std::sync::{Arc, Weak};

use cairn_base::runtime::{Daemon, DaemonHandle, NoThread, Progress};

use super::error::CacheError;
use super::file_cache::FileCache;
use super::mapping::Caller;
use super::page_cache::PageCache;
use super::readahead::CHUNK;
use crate::mapper::{FileMapper, Place};

struct Readahead {
    cache: Weak<PageCache>,
}

impl Daemon for Readahead {
    fn step(&self) -> Progress {
        let Some(cache) = self.cache.upgrade() else { return Progress::Done };
        let Some((owner, blocks)) = cache.readahead.pop() else {
            if cache.pool.prepare() {
                return Progress::Worked;
            }
            return Progress::Idle(cache.pool.rest(cache.runtime.monotonic()));
        };
        if let Some(owner) = owner.upgrade() {
            owner.read_ahead(blocks);
        }
        Progress::Worked
    }
}

impl PageCache {
    /// Starts the readahead daemon. The volume keeps the handle and stops the daemon before it
    /// closes.
    ///
    /// # Errors
    /// The system has no thread for the daemon.
    pub fn start_readahead(self: &Arc<Self>) -> Result<DaemonHandle, NoThread> {
        let daemon = Arc::new(Readahead { cache: Arc::downgrade(self) });
        let handle = self.runtime.spawn("readahead", self.readahead.wake(), daemon)?;
        self.readahead.set_served();
        Ok(handle)
    }
}

impl FileCache {
    /// Reads the blocks that have data into the cache, in a file of `size` bytes. The caller is
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

    /// Reads the head of the range, or skips what is cached or being read. Returns the block to go
    /// on with.
    fn read_chunk(
        &self,
        mapper: &dyn FileMapper,
        size: u64,
        blocks: Range<u64>,
    ) -> Result<u64, CacheError> {
        let file = &self.state;
        if let Some(end) = file.cached_until(blocks.start) {
            return Ok(end);
        }
        if let Some(end) = file.reading_until(blocks.start) {
            return Ok(end);
        }
        let most = (CHUNK >> file.shift).max(1);
        let until = file.missing_until(blocks.start..blocks.end.min(blocks.start + most));
        let Some(mut reading) = file.begin_reading(blocks.start..until) else {
            return Ok(blocks.start);
        };
        let until = reading.blocks.end;
        let mapping = self.lookup(Caller::Buffered, mapper, blocks.start, until - blocks.start)?;
        let Place::Mapped(pba) = mapping.place else { return Ok(blocks.start + mapping.run.len) };
        reading.end_at(self.extend(mapper, &mapping, until)?);
        let blocks = reading.blocks.clone();
        self.read_extent(blocks.clone(), pba, size, 0, &mut [])?;
        file.cache.counters().readahead_bytes.add((blocks.end - blocks.start) << file.shift);
        Ok(blocks.end)
    }
}
