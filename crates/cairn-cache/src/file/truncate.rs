//! Truncating, punching and zeroing cached data when the shape of a file changes.

use std::ops::Range;

use cairn_block::BlockDeviceExt;

use super::error::CacheError;
use super::file_cache::FileCache;
use super::index::FileState;
use super::mapping::Caller;
use crate::mapper::{FileMapper, MapError, Place, Run};

impl FileCache {
    /// Follows a change of size. Call it before the mapping is truncated.
    ///
    /// Shrinking drops the data beyond the new size, releases its reservations, and zeros the rest
    /// of the last block, which becomes dirty if it has data. Growing makes the bytes between the
    /// old and the new size read as zeros.
    ///
    /// # Errors
    /// The last block could not be read or changed. A file can shrink on a full volume.
    pub fn truncate(
        &self,
        mapper: &dyn FileMapper,
        old_size: u64,
        new_size: u64,
    ) -> Result<(), CacheError> {
        self.release_reservation(mapper);
        if new_size >= old_size {
            return if new_size > old_size {
                self.zero_stale_tail(mapper, old_size)
            } else {
                Ok(())
            };
        }
        let file = &self.state;
        let first = file.blocks_for(new_size);
        file.wait_writeback(&(file.block_of(new_size)..u64::MAX));
        let end = file.byte_of(first).min(old_size);
        match self.zero_part(mapper, new_size..end, old_size) {
            // Truncating must work on a full volume. The block on the device keeps bytes beyond the
            // size; readers do not see them.
            Err(CacheError::Map(MapError::NoSpace)) => file.zero_cached(new_size..end)?,
            other => other?,
        }
        self.release_lost(mapper, file.drop_blocks(first..u64::MAX, false));
        Ok(())
    }

    /// Drops the cached data of `blocks` and releases its reservations (punch, collapse, insert).
    /// It waits for write-back of the range.
    pub fn discard(&self, mapper: &dyn FileMapper, blocks: Range<u64>) {
        self.release_reservation(mapper);
        self.state.wait_writeback(&blocks);
        self.release_lost(mapper, self.state.drop_blocks(blocks, false));
    }

    /// Drops all cached data and releases all reservations, because the inode is evicted.
    pub fn drop_all(&self, mapper: &dyn FileMapper) {
        self.discard(mapper, 0..u64::MAX);
    }

    /// Zeros the partial blocks at the ends of byte range `range`, in a file of `size` bytes, as a
    /// write would. The caller handles the whole blocks, by [`FileCache::discard`] and a change of
    /// the mapping.
    ///
    /// # Errors
    /// As [`FileCache::write`].
    pub fn zero(
        &self,
        mapper: &dyn FileMapper,
        range: Range<u64>,
        size: u64,
    ) -> Result<(), CacheError> {
        let file = &self.state;
        self.release_reservation(mapper);
        let range = range.start..range.end.min(size);
        if range.is_empty() {
            return Ok(());
        }
        let head_end = file.byte_of(file.blocks_for(range.start));
        let tail_start = file.byte_of(file.block_of(range.end));
        if range.start < head_end {
            self.zero_part(mapper, range.start..head_end.min(range.end), size)?;
        }
        // Bytes beyond the size are zero already, so a range up to the size covers the whole last
        // block.
        if tail_start >= head_end && tail_start < range.end {
            self.zero_part(mapper, tail_start..range.end, size)?;
        }
        Ok(())
    }

    fn release_lost(&self, mapper: &dyn FileMapper, lost: Vec<Run>) {
        for run in lost {
            mapper.release(run);
        }
        // Throttled writers check again.
        self.state.cache.dirty.drained.notify();
    }

    /// Zeros bytes of one block, if the block has data.
    fn zero_part(
        &self,
        mapper: &dyn FileMapper,
        range: Range<u64>,
        size: u64,
    ) -> Result<(), CacheError> {
        if range.is_empty() {
            return Ok(());
        }
        let block = self.state.block_of(range.start);
        let has_data = self.state.is_cached(block)
            || matches!(
                self.lookup(Caller::Buffered, mapper, block, 1)?.place,
                Place::Mapped(_) | Place::Inline(_)
            );
        if !has_data {
            return Ok(());
        }
        let zeros = vec![0; usize::try_from(range.end - range.start).expect("within a block")];
        self.write(mapper, size, range.start, &zeros)?;
        Ok(())
    }

    /// Zeros the bytes beyond the old size in the last block on the device, which another system
    /// may have left there. Call it before the size grows beyond that block.
    pub(super) fn zero_stale_tail(
        &self,
        mapper: &dyn FileMapper,
        old_size: u64,
    ) -> Result<(), CacheError> {
        let file = &self.state;
        let block = file.block_of(old_size);
        let end = file.byte_of(block + 1);
        let tail = usize::try_from(end - old_size).expect("within a block");
        if tail == file.block_size() || self.is_dirty(cairn_base::FileBlock(block)) {
            return Ok(());
        }
        let Place::Mapped(pba) = self.lookup(Caller::Buffered, mapper, block, 1)?.place else {
            return Ok(());
        };
        let data = file
            .cache
            .device
            .read_at(pba.get() << file.shift, file.block_size())
            .map_err(CacheError::Read)?;
        file.cache.counters().device_read_bytes.add(data.len() as u64);
        if data[data.len() - tail..].iter().any(|byte| *byte != 0) {
            self.write(mapper, old_size, old_size, &vec![0; tail])?;
        }
        Ok(())
    }
}

impl FileState {
    fn is_cached(&self, block: u64) -> bool {
        self.find(block).is_some_and(|folio| {
            let state = folio.state.lock();
            !state.removed && state.uptodate.get(folio.part(&(block..block + 1)).start)
        })
    }

    /// Zeros cached bytes of one block without making it dirty.
    fn zero_cached(&self, range: Range<u64>) -> Result<(), CacheError> {
        let Some(folio) = self.find(self.block_of(range.start)) else { return Ok(()) };
        let mut state = folio.state.lock();
        let base = self.byte_of(folio.start);
        let at = |byte: u64| usize::try_from(byte - base).expect("within the folio");
        if !state.removed {
            self.cache.make_mut(&mut state, true)?[at(range.start)..at(range.end)].fill(0);
        }
        Ok(())
    }
}
