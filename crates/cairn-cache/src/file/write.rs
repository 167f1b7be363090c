//! Writing: space is reserved for the largest run, and then the data is copied into folios. Only
//! the partial blocks at the two ends are read from the device, if the file has data there.
//!
//! Locking: `reserve`, `release` and the reads of edge blocks happen without a folio lock. A folio
//! may be evicted between the read of an edge block and the copy, so the bytes are kept until the
//! block is dirty.

use std::ops::Range;
use std::sync::Arc;

use cairn_base::FileBlock;
use cairn_block::{BlockDeviceExt, IoBuf};

use super::copy::copy;
use super::error::CacheError;
use super::file_cache::FileCache;
use super::folio::{Folio, FolioState};
use super::index::FileState;
use super::mapping::Caller;
use super::options::BufferedMode;
use super::order::{PAGE, charged};
use super::read::{copy_inline, zero_beyond};
use super::slab::Slab;
use super::source::WriteSource;
use crate::budget::Use;
use crate::mapper::{FileMapper, Mapping, Place, Run};

/// Most bytes that one call takes.
const MAX_WRITE: u64 = 16 << 20;
/// A call takes at least this many bytes, however small the budget is.
const MIN_WRITE: u64 = 64 << 10;
/// A file that is appended to in pieces gets folios that double up to this size, or up to twice the
/// piece.
const MAX_APPEND_FOLIO: u64 = 256 << 10;

/// The mapping of a run before it was reserved, for the reads of its edge blocks.
struct PriorMapping<'a> {
    mapping: &'a Mapping,
    old_size: u64,
    /// The edge blocks that were read.
    edges: Vec<(u64, IoBuf)>,
}

/// Why data could not be copied into a folio.
enum Blocked {
    /// This block is changed in part, and its old bytes must be read first.
    NeedsRead(u64),
    /// There is no memory.
    Failed(CacheError),
}

impl From<CacheError> for Blocked {
    fn from(error: CacheError) -> Self {
        Self::Failed(error)
    }
}

impl FileCache {
    /// Writes `data` at byte `offset` of a file of `old_size` bytes. The caller raises the size
    /// afterwards.
    ///
    /// Returns the number of bytes taken, at least one. It is less than asked if the piece is
    /// large, space ran out or an edge block could not be read; the next call returns the error. A
    /// later failure drops none of the taken bytes.
    ///
    /// # Errors
    /// Nothing was taken, because the mapper or the device failed, or the system has no memory.
    pub fn write(
        &self,
        mapper: &dyn FileMapper,
        old_size: u64,
        offset: u64,
        data: &[u8],
    ) -> Result<usize, CacheError> {
        self.write_source(mapper, old_size, offset, data.into())
    }

    /// As [`FileCache::write`]; whole blocks of data that may be shared become folios without a
    /// copy.
    ///
    /// # Errors
    /// As [`FileCache::write`].
    pub fn write_source(
        &self,
        mapper: &dyn FileMapper,
        old_size: u64,
        offset: u64,
        data: WriteSource<'_>,
    ) -> Result<usize, CacheError> {
        if data.is_empty() {
            return Ok(0);
        }
        let file = &self.state;
        if file.byte_of(file.blocks_for(old_size)) <= offset {
            self.zero_stale_tail(mapper, old_size)?;
        }
        let most = usize::try_from((file.cache.budget().limit() / 8).clamp(MIN_WRITE, MAX_WRITE))
            .unwrap_or(data.len());
        let data = data.first(most);
        let mut done = 0;
        while done < data.len() {
            match self.write_run(mapper, old_size, offset + done as u64, data.after(done)) {
                Ok(n) => done += n,
                Err(error) if done == 0 => return Err(error),
                Err(_) => break,
            }
        }
        file.cache.counters().written_bytes.add(done as u64);
        Ok(done)
    }

    /// Writes the head of `data`, as much as one reserved run holds.
    fn write_run(
        &self,
        mapper: &dyn FileMapper,
        old_size: u64,
        offset: u64,
        data: WriteSource<'_>,
    ) -> Result<usize, CacheError> {
        let file = &self.state;
        if let Some(done) = file.overwrite_dirty(offset, &data) {
            return Ok(done);
        }
        let first = file.block_of(offset);
        let asked = file.blocks_for(offset + data.len() as u64) - first;
        let mapping = self.reserve_for_write(mapper, first, asked)?;
        let end = first + mapping.run.len;
        let n =
            usize::try_from(file.byte_of(end) - offset).map_or(data.len(), |n| n.min(data.len()));
        let mut prior = PriorMapping { mapping: &mapping, old_size, edges: Vec::new() };
        let mut done = 0;
        while done < n {
            let (pos, left) = (offset + done as u64, data.first(n).after(done));
            if let Some(given) = file.keep_given(pos, left) {
                self.state.cache.counters().given_bytes.add(given as u64);
                done += given;
                continue;
            }
            match self.copy_into_folio(mapper, &mut prior, pos, &left) {
                Ok(copied) => done += copied,
                Err(error) => {
                    self.release_untouched(mapper, file.block_of(offset + done as u64)..end);
                    return if done > 0 { Ok(done) } else { Err(error) };
                }
            }
        }
        Ok(done)
    }

    /// Copies the head of `data` into the folio at `pos`.
    fn copy_into_folio(
        &self,
        mapper: &dyn FileMapper,
        prior: &mut PriorMapping<'_>,
        pos: u64,
        data: &WriteSource<'_>,
    ) -> Result<usize, CacheError> {
        let file = &self.state;
        let last = file.blocks_for(pos + data.len() as u64);
        loop {
            let folio = file.folio_for(file.block_of(pos), last)?;
            let mut state = folio.state.lock();
            if state.removed {
                continue;
            }
            match file.copy_locked(&folio, &mut state, prior, pos, data) {
                Ok(n) => return Ok(n),
                Err(Blocked::Failed(error)) => return Err(error),
                Err(Blocked::NeedsRead(block)) => {
                    drop(state);
                    let buf = self.read_edge(mapper, prior, block)?;
                    prior.edges.push((block, buf));
                }
            }
        }
    }

    /// Reads a mapped block that will be changed in part.
    fn read_edge(
        &self,
        mapper: &dyn FileMapper,
        prior: &PriorMapping<'_>,
        block: u64,
    ) -> Result<IoBuf, CacheError> {
        let file = &self.state;
        // An earlier reservation tells that the block is mapped. Its address may have changed
        // since, so ask for it.
        let mapping = self.lookup(Caller::Buffered, mapper, block, 1)?;
        let Place::Mapped(pba) = mapping.place else { unreachable!("only mapped edges are read") };
        let at = pba.get() << file.shift;
        let mut buf = file.cache.device.read_at(at, file.block_size()).map_err(CacheError::Read)?;
        file.cache.counters().device_read_bytes.add(buf.len() as u64);
        zero_beyond(&mut buf, file.byte_of(block), prior.old_size);
        Ok(buf)
    }

    /// Releases the blocks that were reserved and not written.
    fn release_untouched(&self, mapper: &dyn FileMapper, blocks: Range<u64>) {
        let mut cursor = blocks.start;
        for kept in self.state.unstable_runs(blocks.clone()) {
            let start = kept.start.get();
            if cursor < start {
                mapper.release(Run { start: FileBlock(cursor), len: start - cursor });
            }
            cursor = start + kept.len;
        }
        if cursor < blocks.end {
            mapper.release(Run { start: FileBlock(cursor), len: blocks.end - cursor });
        }
    }
}

impl FileState {
    /// Copies data and marks the blocks dirty. The caller holds the folio's lock.
    fn copy_locked(
        self: &Arc<Self>,
        folio: &Arc<Folio>,
        state: &mut FolioState,
        prior: &PriorMapping<'_>,
        pos: u64,
        data: &WriteSource<'_>,
    ) -> Result<usize, Blocked> {
        let base = self.byte_of(folio.start);
        let from = usize::try_from(pos - base).expect("within the folio");
        let to = self.bytes(folio.blocks).min(from + data.len());
        let block_size = self.block_size();
        let edges = [from, to].into_iter().filter(|edge| !edge.is_multiple_of(block_size));
        for edge in edges {
            let start = edge >> self.shift << self.shift;
            // What is kept of the last block lies beyond the end of the file: zeros.
            let beyond = from <= start && edge == to && base + to as u64 >= prior.old_size;
            let bit = u32::try_from(edge >> self.shift).expect("within the folio");
            self.fill_edge(folio, state, prior, bit, beyond)?;
        }
        let whole = from == 0 && to == self.bytes(folio.blocks);
        copy(&mut self.cache.make_mut(state, !whole)?[from..to], &data[..to - from]);
        let bits = |byte: usize| u32::try_from(byte).expect("within the folio");
        let blocks = bits(from >> self.shift)..bits(to.div_ceil(block_size));
        state.uptodate.set(blocks.clone());
        self.mark_dirty(folio, state, blocks);
        folio.used(data.is_dontcache());
        Ok(to - from)
    }

    /// Copies the head of `data` into blocks that are dirty. They are reserved, so the mapper need
    /// not be asked. `None` if the first block is not dirty, and in [`BufferedMode::PerBlock`].
    fn overwrite_dirty(&self, pos: u64, data: &WriteSource<'_>) -> Option<usize> {
        if !self.has_unstable() || self.cache.mode() == BufferedMode::PerBlock {
            return None;
        }
        let block = self.block_of(pos);
        let folio = self.find(block)?;
        let mut state = folio.state.lock();
        let bit = folio.part(&(block..block + 1)).start;
        if state.removed || !state.dirty.get(bit) {
            return None;
        }
        let end = state.dirty.next_clear(bit..folio.blocks).unwrap_or(folio.blocks);
        let from = usize::try_from(pos - self.byte_of(folio.start)).expect("within the folio");
        let to = self.bytes(end).min(from + data.len());
        // If there is no memory for a copy, the path that asks the mapper returns the error.
        copy(&mut self.cache.make_mut(&mut state, true).ok()?[from..to], &data[..to - from]);
        folio.used(data.is_dontcache());
        Some(to - from)
    }

    /// Makes a block up to date, because it will be changed in part. With `beyond`, nothing that it
    /// keeps is part of the file.
    fn fill_edge(
        &self,
        folio: &Folio,
        state: &mut FolioState,
        prior: &PriorMapping<'_>,
        bit: u32,
        beyond: bool,
    ) -> Result<(), Blocked> {
        if state.uptodate.get(bit) {
            return Ok(());
        }
        let block = folio.start + u64::from(bit);
        let range = self.bytes(bit)..self.bytes(bit + 1);
        let read = prior.edges.iter().find(|(edge, _)| *edge == block);
        let beyond = beyond || self.byte_of(block) >= prior.old_size;
        if matches!(prior.mapping.place, Place::Mapped(_)) && !beyond && read.is_none() {
            return Err(Blocked::NeedsRead(block));
        }
        let out = &mut self.cache.make_mut(state, true)?[range];
        match (&prior.mapping.place, read) {
            (_, Some((_, buf))) => out.copy_from_slice(buf),
            (Place::Inline(bytes), None) => drop(copy_inline(bytes, self.byte_of(block), out)),
            _ => out.fill(0),
        }
        state.uptodate.set(bit..bit + 1);
        Ok(())
    }

    /// Makes a folio of whole blocks at `pos` that no folio holds, without a copy. Returns its
    /// bytes. `None` if they must be copied.
    fn keep_given(self: &Arc<Self>, pos: u64, data: WriteSource<'_>) -> Option<usize> {
        let shared = data.shared()?;
        let start = self.block_of(pos);
        let whole = (data.len() >> self.shift) as u64;
        if self.cache.mode() == BufferedMode::PerBlock || self.byte_of(start) != pos {
            return None;
        }
        let room = self.find_from(start).map_or(u64::MAX, |next| next.start.saturating_sub(start));
        let bytes = self.folio_bytes_at(start, start + whole.min(room))?;
        let charge = self.cache.budget().try_hold(Use::FileData, charged(bytes))?;
        let blocks = u32::try_from(bytes >> self.shift).ok()?;
        let mut state = FolioState::new(Slab::given(shared.slice(..bytes), charge), blocks);
        state.uptodate.set(0..blocks);
        let folio = self.insert(start, blocks, state).ok()?;
        let mut state = folio.state.lock();
        // A clean folio may be evicted at once.
        if state.removed {
            return None;
        }
        self.mark_dirty(&folio, &mut state, 0..blocks);
        folio.used(data.is_dontcache());
        Some(bytes)
    }

    /// The folio that holds `block`. If there is none, it makes one whose size suits a write up to
    /// `end`.
    ///
    /// # Errors
    /// There is no memory.
    pub(super) fn folio_for(
        self: &Arc<Self>,
        block: u64,
        end: u64,
    ) -> Result<Arc<Folio>, CacheError> {
        loop {
            if let Some(folio) = self.find(block) {
                return Ok(folio);
            }
            let (start, blocks) = self.new_folio_at(block, end);
            let raw = match self.cache.allocate(self.bytes(blocks)) {
                // There may be memory for a small folio.
                Err(_) if u64::from(blocks) > self.page_blocks() => {
                    self.cache.allocate(self.bytes(1).max(PAGE))?
                }
                got => got?,
            };
            let blocks =
                u32::try_from(raw.buf.len() >> self.shift).expect("at most as many as asked for");
            if let Ok(folio) = self.insert(start, blocks, self.cache.folio_state(raw, blocks)) {
                return Ok(folio);
            }
        }
    }

    fn new_folio_at(&self, block: u64, end: u64) -> (u64, u32) {
        let page = self.page_blocks();
        let start = block / page * page;
        let aligned = if start == 0 { u64::MAX } else { 1 << start.trailing_zeros() };
        let append = (MAX_APPEND_FOLIO >> self.shift).max(1).max((end - start) * 2);
        let grown =
            self.blocks_of_previous(start).map_or(0, |before| (u64::from(before) * 2).min(append));
        let most = (self.cache.max_folio() >> self.shift) as u64;
        let room = self.find_from(start).map_or(u64::MAX, |next| next.start - start);
        let blocks = (end - start).max(grown).min(aligned).min(most).min(room).max(page);
        (start, 1 << blocks.ilog2())
    }
}
