//! Reserves space ahead of a sequential writer, so that one call of the mapper serves many small
//! writes.
//!
//! A sequential writer gets as many further blocks reserved as it has written in sequence. The next
//! write takes its blocks from these without asking the mapper. Every write-back, every change of
//! the file's size or map, and every query of the free space release the unused blocks. So does a
//! writer that finds no space.
//!
//! Invariant: the blocks of a reservation hold no cached data that is dirty or being written, and
//! no other caller asks for them.
//!
//! Locking: rank Reservations, held while the mapper reserves or releases. So a caller that finds
//! nothing kept may ask for the same blocks. A writer holds inode.data exclusively as well;
//! releasing needs no other lock.

use std::sync::Arc;
use std::time::Duration;

use cairn_base::FileBlock;

use super::error::CacheError;
use super::file_cache::FileCache;
use super::index::FileState;
use super::mapping::Caller;
use super::options::BufferedMode;
use super::page_cache::PageCache;
use super::reservation::{MAX_AHEAD, Reservation};
use crate::mapper::{FileMapper, Mapping, Run};

/// How long nothing is reserved ahead after a shortage of space.
const SHORTAGE: Duration = Duration::from_secs(1);

impl PageCache {
    fn now_ms(&self) -> u64 {
        u64::try_from(self.runtime.monotonic().as_millis()).unwrap_or(u64::MAX)
    }

    /// Makes all files release what they have reserved ahead of their data. True if any file had a
    /// reservation. The caller holds no lock above inode.data.
    pub fn release_reservations(&self) -> bool {
        let owners = self.reserving.owners();
        owners.iter().for_each(|owner| owner.release_reservation());
        !owners.is_empty()
    }

    /// Calls [`PageCache::release_reservations`] because a caller found no space. For a second,
    /// nothing is reserved ahead.
    pub fn space_is_short(&self) -> bool {
        self.reserving.set_short_until(self.now_ms().saturating_add(SHORTAGE.as_millis() as u64));
        self.release_reservations()
    }

    fn is_space_short(&self) -> bool {
        let until = self.reserving.short_until();
        until > 0 && self.now_ms() < until
    }
}

impl FileCache {
    /// Reserves the head of a write, or takes it from the file's reservation.
    pub(super) fn reserve_for_write(
        &self,
        mapper: &dyn FileMapper,
        first: u64,
        asked: u64,
    ) -> Result<Mapping, CacheError> {
        let file = &self.state;
        if !mapper.reserves_ahead() {
            return self.reserve(Caller::Buffered, mapper, first, asked);
        }
        let mut reservation = file.reservation.lock();
        let more = reservation.follow(first, asked);
        if let Some(mapping) = reservation.take(first, asked) {
            reservation.shorten(asked, mapping.run.len);
            return Ok(mapping);
        }
        if reservation.follows(first) {
            // The previous write ended in this block, which has been written back since.
            return self.reserve(Caller::Buffered, mapper, first, 1);
        }
        file.release_kept(&mut reservation, mapper);
        // The file is listed before it checks for a shortage. So a caller that finds no space sees
        // this file in the list, or this file sees the shortage.
        file.list_reserving();
        let more = if file.may_reserve_ahead() { more.min(file.max_ahead()) } else { 0 };
        let reserved = self.reserve(Caller::Buffered, mapper, first, asked + more);
        let mapping = reserved.map(|mut mapping| {
            reservation.keep(&mut mapping, asked);
            reservation.shorten(asked, mapping.run.len);
            mapping
        });
        if reservation.is_empty() {
            file.unlist_reserving();
        }
        mapping
    }

    /// Releases what the file has reserved ahead of its data. Blocks that a concurrent write has
    /// taken stay reserved.
    pub fn release_reservation(&self, mapper: &dyn FileMapper) {
        let mut reservation = self.state.reservation.lock();
        self.state.release_kept(&mut reservation, mapper);
    }

    /// As [`FileCache::release_reservation`]; the next write gets nothing reserved beyond its own
    /// blocks.
    pub(crate) fn reset_reservation(&self, mapper: &dyn FileMapper) {
        let mut reservation = self.state.reservation.lock();
        self.state.release_kept(&mut reservation, mapper);
        reservation.forget_sequence();
    }
}

impl FileState {
    fn release_kept(self: &Arc<Self>, reservation: &mut Reservation, mapper: &dyn FileMapper) {
        let (blocks, hole) = reservation.clear();
        if blocks.is_empty() {
            return;
        }
        if hole {
            mapper.release(Run { start: FileBlock(blocks.start), len: blocks.end - blocks.start });
        }
        self.unlist_reserving();
    }

    fn may_reserve_ahead(&self) -> bool {
        self.cache.mode() == BufferedMode::Extents
            && self.dirty.owner.get().is_some()
            && !self.cache.is_space_short()
    }

    fn max_ahead(&self) -> u64 {
        MAX_AHEAD.min(self.cache.budget().limit() / 8) >> self.shift
    }

    fn list_reserving(self: &Arc<Self>) {
        if let Some(owner) = self.dirty.owner.get() {
            self.cache.reserving.insert(Arc::as_ptr(self).addr(), owner.clone());
        }
    }

    fn unlist_reserving(self: &Arc<Self>) {
        self.cache.reserving.remove(Arc::as_ptr(self).addr());
    }
}
