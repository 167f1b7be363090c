//! Reading: from folios where the blocks are up to date; otherwise by one mapping and one device
//! batch into new folios.
//!
//! The device is read without a folio lock. The caller holds inode.data, so no thread writes, and
//! write-back changes no contents. A block is read by one reader at a time; other readers of the
//! block wait for it (see [`super::reading`]).

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use cairn_base::Pba;
use cairn_block::{Batch, Durability, IoBuf, Request};

use super::copy::copy;
use super::error::CacheError;
use super::file_cache::FileCache;
use super::index::FileState;
use super::mapping::Caller;
use super::slab::{RawSlab, Slab};
use crate::budget::Charge;
use crate::mapper::{FileMapper, Mapping, Place};

/// Consecutive blocks that are read into one buffer.
struct Piece {
    start: u64,
    blocks: u32,
    /// The charge of memory that becomes a folio. Without it the bytes are merged into an existing
    /// folio.
    charge: Option<Charge>,
}

/// What [`FileCache::read_missing`] did for the head of a range.
pub(super) enum ReadOutcome {
    /// It read this number of bytes.
    Bytes(usize),
    /// It found this number of zero bytes; the caller writes them.
    Zeros(usize),
    /// It found inline data: all bytes of the file.
    Inline(Arc<[u8]>),
}

impl FileCache {
    /// Reads into `buf` from byte `offset` of a file of `size` bytes. Returns the number of bytes,
    /// which is less than asked only at the end of the file.
    ///
    /// # Errors
    /// The mapper or the device failed, or the system has no memory.
    pub fn read(
        &self,
        mapper: &dyn FileMapper,
        size: u64,
        offset: u64,
        buf: &mut [u8],
    ) -> Result<usize, CacheError> {
        let Some(left) = size.checked_sub(offset).filter(|left| *left > 0) else { return Ok(0) };
        let len = usize::try_from(left).map_or(buf.len(), |left| left.min(buf.len()));
        let counters = self.state.cache.counters();
        let mut done = 0;
        while done < len {
            let pos = offset + done as u64;
            let out = &mut buf[done..len];
            let copied = self.state.copy_cached(pos, out);
            if copied > 0 {
                counters.hits.add(1);
                done += copied;
            } else if !self.state.wait_reading(self.state.block_of(pos)) {
                counters.misses.add(1);
                done += match self.read_missing(mapper, size, pos, out.len(), out)? {
                    ReadOutcome::Bytes(n) => n,
                    ReadOutcome::Zeros(n) => {
                        out[..n].fill(0);
                        n
                    }
                    ReadOutcome::Inline(bytes) => copy_inline(&bytes, pos, out),
                };
            }
        }
        counters.read_bytes.add(done as u64);
        Ok(done)
    }

    /// Reads the head of `len` bytes at `pos`, whose first block is not cached, into the cache and
    /// into `out`. `out` may be shorter. The result has no bytes if another reader has begun to
    /// read that block.
    pub(super) fn read_missing(
        &self,
        mapper: &dyn FileMapper,
        size: u64,
        pos: u64,
        len: usize,
        out: &mut [u8],
    ) -> Result<ReadOutcome, CacheError> {
        let file = &self.state;
        let end = pos + len as u64;
        let wanted = file.block_of(pos)..file.blocks_for(end);
        let plan = file.streams.lock().miss(&wanted, file.shift, file.window_limit());
        let most = (wanted.end + plan.along).min(file.blocks_for(size));
        let until = file.missing_until(wanted.start..most);
        // The read is entered before the mapper is asked, so that two readers do not ask for the
        // same blocks.
        let Some(mut reading) = file.begin_reading(wanted.start..until) else {
            return Ok(ReadOutcome::Bytes(0));
        };
        if file.cached_until(wanted.start).is_some() {
            return Ok(ReadOutcome::Bytes(0));
        }
        let until = reading.blocks.end;
        let mapping = self.lookup(Caller::Buffered, mapper, wanted.start, until - wanted.start)?;
        let until = self.extend(mapper, &mapping, until)?;
        let served =
            |until: u64| usize::try_from(file.byte_of(until) - pos).map_or(len, |n| n.min(len));
        match mapping.place {
            Place::Hole | Place::Delayed | Place::Unwritten(_) => {
                Ok(ReadOutcome::Zeros(served(until)))
            }
            Place::Inline(bytes) => Ok(ReadOutcome::Inline(bytes)),
            Place::Mapped(pba) => {
                reading.end_at(until);
                file.queue_window(plan.later);
                let blocks = reading.blocks.clone();
                let n = served(blocks.end).min(out.len());
                file.cache
                    .counters()
                    .readahead_bytes
                    .add(blocks.end.saturating_sub(wanted.end) << file.shift);
                self.read_extent(blocks, pba, size, pos, &mut out[..n])?;
                if plan.along > 0 {
                    file.mark(wanted.end);
                }
                Ok(ReadOutcome::Bytes(n))
            }
        }
    }

    /// End of the blocks, up to `until`, that continue the mapping on the device. It asks the
    /// mapper again only where the first answer ended.
    pub(super) fn extend(
        &self,
        mapper: &dyn FileMapper,
        first: &Mapping,
        until: u64,
    ) -> Result<u64, CacheError> {
        let start = first.run.start.get();
        let mut end = (start + first.run.len).min(until);
        let Place::Mapped(pba) = first.place else { return Ok(end) };
        while end < until {
            let next = self.lookup(Caller::Buffered, mapper, end, until - end)?;
            if next.place != Place::Mapped(Pba(pba.get() + (end - start))) {
                break;
            }
            end = (end + next.run.len).min(until);
        }
        Ok(end)
    }

    /// Reads a mapped extent in one batch, keeps it in folios, and copies the part that overlaps
    /// `out` at `pos`.
    pub(super) fn read_extent(
        &self,
        blocks: Range<u64>,
        pba: Pba,
        size: u64,
        pos: u64,
        out: &mut [u8],
    ) -> Result<(), CacheError> {
        let file = &self.state;
        let (mut pieces, mut requests) = (Vec::new(), Vec::new());
        let mut cursor = blocks.start;
        while cursor < blocks.end {
            let (piece, buf) = file.next_piece(cursor..blocks.end)?;
            let offset = (pba.get() + (cursor - blocks.start)) << file.shift;
            cursor += u64::from(piece.blocks);
            requests.push(Request::Read { offset, buf });
            pieces.push(piece);
        }
        file.cache.counters().device_read_bytes.add((blocks.end - blocks.start) << file.shift);
        let batch = Batch { requests, durability: Durability::default() };
        let bufs = file.cache.device.submit(batch).wait().map_err(CacheError::Read)?;
        assert_eq!(bufs.len(), pieces.len(), "a read batch gives its buffers back");
        for (piece, mut buf) in pieces.into_iter().zip(bufs) {
            let start = piece.start;
            zero_beyond(&mut buf, file.byte_of(start), size);
            match piece.charge {
                Some(charge) => {
                    let slab = file.keep_slab(start, piece.blocks, RawSlab { buf, charge });
                    copy_overlap(slab.bytes(), file.byte_of(start), pos, out);
                }
                None => {
                    copy_overlap(&buf, file.byte_of(start), pos, out);
                    file.merge(start, &buf);
                }
            }
        }
        Ok(())
    }
}

/// Copies bytes of an inline file into `out`; bytes beyond them are zero. Returns the length of
/// `out`.
pub(super) fn copy_inline(bytes: &[u8], pos: u64, out: &mut [u8]) -> usize {
    let from = usize::try_from(pos).map_or(bytes.len(), |pos| pos.min(bytes.len()));
    let n = out.len().min(bytes.len() - from);
    out[..n].copy_from_slice(&bytes[from..from + n]);
    out[n..].fill(0);
    out.len()
}

/// Zeros the bytes of `buf` that lie beyond the file's size. `buf` begins at byte `start` of the
/// file.
pub(super) fn zero_beyond(buf: &mut [u8], start: u64, size: u64) {
    let valid = size.saturating_sub(start);
    if valid < buf.len() as u64 {
        buf[usize::try_from(valid).expect("less than a buffer's length")..].fill(0);
    }
}

/// Copies the bytes that `data` (at byte `start` of the file) and `out` (at byte `pos`) have in
/// common.
fn copy_overlap(data: &[u8], start: u64, pos: u64, out: &mut [u8]) {
    let from = start.max(pos);
    let to = (start + data.len() as u64).min(pos + out.len() as u64);
    if from < to {
        let at = |base: u64| usize::try_from(from - base).expect("within a buffer");
        let n = usize::try_from(to - from).expect("within a buffer");
        copy(&mut out[at(pos)..at(pos) + n], &data[at(start)..at(start) + n]);
    }
}

impl FileState {
    /// Copies from the folio that holds `pos`, up to the first block that is not up to date.
    fn copy_cached(self: &Arc<Self>, pos: u64, out: &mut [u8]) -> usize {
        let Some((slab, range)) = self.cached_at(pos, out.len()) else { return 0 };
        let n = range.len();
        copy(&mut out[..n], &slab.bytes()[range]);
        n
    }

    /// The slab and range of the cached bytes from `pos` on: at most `most` bytes, in one folio.
    pub(super) fn cached_at(
        self: &Arc<Self>,
        pos: u64,
        most: usize,
    ) -> Option<(Slab, Range<usize>)> {
        let block = self.block_of(pos);
        let folio = self.find(block)?;
        let (slab, run) = {
            let state = folio.state.lock();
            let bit = folio.part(&(block..block + 1)).start;
            if state.removed || !state.uptodate.get(bit) {
                return None;
            }
            let end = state.uptodate.next_clear(bit..folio.blocks).unwrap_or(folio.blocks);
            (state.slab.clone(), bit..end)
        };
        folio.used(false);
        if folio.marked.load(Ordering::Relaxed) {
            self.reach_mark(&folio);
        }
        let from = usize::try_from(pos - self.byte_of(folio.start)).expect("within a folio");
        let to = self.bytes(run.end).min(from.saturating_add(most));
        Some((slab, from..to))
    }

    /// End of the cached run that holds `block`, within its folio; `None` if the block is not
    /// cached.
    pub(super) fn cached_until(&self, block: u64) -> Option<u64> {
        let folio = self.find(block)?;
        let state = folio.state.lock();
        let bit = folio.part(&(block..block + 1)).start;
        if state.removed || !state.uptodate.get(bit) {
            return None;
        }
        let end = state.uptodate.next_clear(bit..folio.blocks).unwrap_or(folio.blocks);
        Some(folio.start + u64::from(end))
    }

    /// End of the uncached run that begins with `range`'s start.
    pub(super) fn missing_until(&self, range: Range<u64>) -> u64 {
        let mut end = range.end.max(range.start + 1);
        let mut next = range.start;
        if let Some(folio) = self.find(range.start) {
            let state = folio.state.lock();
            let found = state.uptodate.next_set(folio.part(&range));
            if let Some(bit) = found.filter(|_| !state.removed) {
                return (folio.start + u64::from(bit)).max(range.start + 1);
            }
            next = folio.end();
        }
        if let Some(folio) = self.find_from(next) {
            end = end.min(folio.start.max(range.start + 1));
        }
        end
    }

    /// The largest piece at the start of `range` for one buffer: a new folio if one fits.
    fn next_piece(&self, range: Range<u64>) -> Result<(Piece, IoBuf), CacheError> {
        let start = range.start;
        let limit = match self.find_from(start) {
            Some(folio) if folio.start <= start => {
                return self.loose_piece(start..range.end.min(folio.end()));
            }
            Some(folio) => range.end.min(folio.start),
            None => range.end,
        };
        let page = self.page_blocks();
        let bytes = self.folio_bytes_at(start, limit);
        match bytes {
            Some(bytes) => {
                let raw = self.cache.allocate(bytes)?;
                let blocks = u32::try_from(bytes >> self.shift).expect("a folio's blocks");
                Ok((Piece { start, blocks, charge: Some(raw.charge) }, raw.buf))
            }
            None => self.loose_piece(start..limit.min((start / page + 1) * page)),
        }
    }

    fn loose_piece(&self, range: Range<u64>) -> Result<(Piece, IoBuf), CacheError> {
        let blocks = u32::try_from(range.end - range.start).expect("at most a folio");
        let buf = IoBuf::try_zeroed(self.bytes(blocks))?;
        Ok((Piece { start: range.start, blocks, charge: None }, buf))
    }

    /// Size of the largest folio that begins at `start` and ends by `limit`.
    pub(super) fn folio_bytes_at(&self, start: u64, limit: u64) -> Option<usize> {
        let page = self.page_blocks();
        if !start.is_multiple_of(page) || limit - start < page {
            return None;
        }
        let most = (self.cache.max_folio() >> self.shift) as u64;
        let aligned = if start == 0 { most } else { 1 << start.trailing_zeros() };
        let blocks = 1_u64 << (limit - start).min(most).min(aligned).ilog2();
        Some(usize::try_from(blocks).expect("at most a folio") << self.shift)
    }

    /// Makes a folio of bytes that were read. If the index has a folio there, merges the bytes into
    /// that one.
    fn keep_slab(self: &Arc<Self>, start: u64, blocks: u32, raw: RawSlab) -> Slab {
        let mut state = self.cache.folio_state(raw, blocks);
        state.uptodate.set(0..blocks);
        let slab = state.slab.clone();
        if let Err(state) = self.insert(start, blocks, state) {
            self.merge(start, state.slab.bytes());
        }
        slab
    }

    /// Adds blocks that were read from the device where no block is up to date. It stops if there
    /// is no memory.
    fn merge(self: &Arc<Self>, start: u64, data: &[u8]) {
        let end = start + self.blocks_for(data.len() as u64);
        let mut cursor = start;
        while cursor < end {
            let Ok(folio) = self.folio_for(cursor, end) else { return };
            let part = folio.part(&(cursor..end));
            let mut state = folio.state.lock();
            if state.removed {
                continue;
            }
            let mut from = part.start;
            while let Some(bit) = state.uptodate.next_clear(from..part.end) {
                from = state.uptodate.next_set(bit..part.end).unwrap_or(part.end);
                let at = usize::try_from(self.byte_of(folio.start + u64::from(bit) - start))
                    .expect("within the data");
                let range = self.bytes(bit)..self.bytes(from);
                let source = &data[at..at + range.len()];
                let Ok(bytes) = self.cache.make_mut(&mut state, true) else { return };
                bytes[range].copy_from_slice(source);
                state.uptodate.set(bit..from);
            }
            cursor = folio.start + u64::from(part.end);
        }
    }
}
