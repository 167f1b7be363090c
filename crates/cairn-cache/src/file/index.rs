//! [`FileState`]: the folios of one file by position, and the index of the dirty ones.
//!
//! Locking: the index lock has rank Cache and is held for look-ups and insertions only. A folio
//! that was found here may leave the index before the caller has its lock: `removed` of its state
//! is then true, and the caller looks again. The dirty bits of a folio and its place in the dirty
//! index change together, under the folio's lock.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Arc, Weak};

use cairn_base::FileBlock;
use cairn_base::ranked_lock::{Mutex, Rank, RwLock, assert_may_wait};
use cairn_base::runtime::Event;

use super::folio::{Folio, FolioIndex, FolioState};
use super::order::PAGE;
use super::page_cache::PageCache;
use super::readahead::Streams;
use super::reservation::Reservation;
use crate::mapper::Run;
use crate::writeback::{DirtyFile, ErrorSequence};

/// The cached data of one file: Linux's `address_space`.
pub(crate) struct FileState {
    pub(crate) cache: Arc<PageCache>,
    /// Binary logarithm of the block size.
    pub(crate) shift: u32,
    index: RwLock<Index>,
    /// The owner of the file, the number of its dirty blocks, and its place in the queue of dirty
    /// files.
    pub(crate) dirty: Arc<DirtyFile>,
    /// Blocks being written: start and length of each collected piece.
    pub(crate) in_flight: Mutex<BTreeMap<u64, u64>>,
    pub(crate) writeback_done: Event,
    pub(crate) streams: Mutex<Streams>,
    /// Blocks being read from the device: start and end of each piece.
    pub(crate) reading: Mutex<BTreeMap<u64, u64>>,
    pub(crate) read_done: Event,
    pub(crate) errors: ErrorSequence,
    pub(crate) reservation: Mutex<Reservation>,
}

#[derive(Default)]
struct Index {
    folios: BTreeMap<u64, Arc<Folio>>,
    dirty: BTreeMap<u64, Arc<Folio>>,
}

fn containing(map: &BTreeMap<u64, Arc<Folio>>, block: u64) -> Option<&Arc<Folio>> {
    map.range(..=block).next_back().map(|(_, folio)| folio).filter(|folio| folio.end() > block)
}

fn at_or_after(map: &BTreeMap<u64, Arc<Folio>>, block: u64) -> Option<&Arc<Folio>> {
    containing(map, block).or_else(|| map.range(block..).next().map(|(_, folio)| folio))
}

impl FileState {
    pub(crate) fn new(cache: Arc<PageCache>, block_size: u32) -> Self {
        Self {
            cache,
            shift: block_size.trailing_zeros(),
            index: RwLock::new(Rank::Cache, Index::default()),
            dirty: Arc::default(),
            in_flight: Mutex::new(Rank::Cache, BTreeMap::new()),
            writeback_done: Event::new(),
            streams: Mutex::new(Rank::Cache, Streams::default()),
            reading: Mutex::new(Rank::Cache, BTreeMap::new()),
            read_done: Event::new(),
            errors: ErrorSequence::new(),
            reservation: Mutex::new(Rank::Reservations, Reservation::new()),
        }
    }

    /// Bytes of a block.
    pub(crate) fn block_size(&self) -> usize {
        1 << self.shift
    }

    /// The block that holds a byte.
    pub(crate) fn block_of(&self, offset: u64) -> u64 {
        offset >> self.shift
    }

    /// Number of blocks that hold `bytes`.
    pub(crate) fn blocks_for(&self, bytes: u64) -> u64 {
        bytes.div_ceil(1 << self.shift)
    }

    /// The first byte of a block. The result saturates beyond the largest file.
    pub(crate) fn byte_of(&self, block: u64) -> u64 {
        block.saturating_mul(1 << self.shift)
    }

    /// Blocks of the smallest folio.
    pub(crate) fn page_blocks(&self) -> u64 {
        ((PAGE >> self.shift) as u64).max(1)
    }

    /// Bytes of `blocks` blocks, which are in memory.
    pub(crate) fn bytes(&self, blocks: u32) -> usize {
        (blocks as usize) << self.shift
    }

    pub(crate) fn find(&self, block: u64) -> Option<Arc<Folio>> {
        containing(&self.index.read().folios, block).cloned()
    }

    /// The folio that holds `block`, or else the next one.
    pub(crate) fn find_from(&self, block: u64) -> Option<Arc<Folio>> {
        at_or_after(&self.index.read().folios, block).cloned()
    }

    /// The folio with dirty blocks that holds `block`, or else the next one.
    pub(crate) fn find_dirty_from(&self, block: u64) -> Option<Arc<Folio>> {
        at_or_after(&self.index.read().dirty, block).cloned()
    }

    /// The folio with dirty or in-flight blocks that holds `block`, or else the next one. It does
    /// not walk over the clean folios in between.
    fn find_unstable_from(&self, block: u64) -> Option<Arc<Folio>> {
        let dirty = self.find_dirty_from(block);
        let written = self.in_flight_from(block).and_then(|start| self.find(start));
        // A block whose write failed between the two look-ups is dirty again.
        let again = written.is_none().then(|| self.find_dirty_from(block)).flatten();
        [dirty, written, again].into_iter().flatten().min_by_key(|folio| folio.start)
    }

    /// The first block from `block` on that is being written.
    fn in_flight_from(&self, block: u64) -> Option<u64> {
        let in_flight = self.in_flight.lock();
        let holds =
            in_flight.range(..=block).next_back().filter(|(start, len)| **start + **len > block);
        holds.map(|_| block).or_else(|| in_flight.range(block..).next().map(|(start, _)| *start))
    }

    fn is_in_flight(&self, blocks: &Range<u64>) -> bool {
        let in_flight = self.in_flight.lock();
        let last = in_flight.range(..blocks.end).next_back();
        last.is_some_and(|(start, len)| start + len > blocks.start)
    }

    /// Waits until no block of the range is being written.
    pub(crate) fn wait_writeback(&self, blocks: &Range<u64>) {
        if self.is_in_flight(blocks) {
            assert_may_wait(Rank::Operation);
            self.cache.runtime.wait_until(&self.writeback_done, &mut || !self.is_in_flight(blocks));
        }
    }

    /// Number of blocks of the folio that ends where `block` begins.
    pub(crate) fn blocks_of_previous(&self, block: u64) -> Option<u32> {
        let folio = self.find(block.checked_sub(1)?)?;
        Some(folio.blocks)
    }

    /// Inserts a folio into the index and the clock's queue. If it would overlap another folio,
    /// returns its state.
    pub(crate) fn insert(
        self: &Arc<Self>,
        start: u64,
        blocks: u32,
        mut state: FolioState,
    ) -> Result<Arc<Folio>, FolioState> {
        state.clocked = true;
        let folio = {
            let mut index = self.index.write();
            let end = start + u64::from(blocks);
            if at_or_after(&index.folios, start).is_some_and(|other| other.start < end) {
                return Err(state);
            }
            self.cache.folio_added(self.bytes(blocks));
            let file: Weak<Self> = Arc::downgrade(self);
            let folio = Arc::new(Folio::new(start, blocks, file, state));
            index.folios.insert(start, folio.clone());
            folio
        };
        self.cache.folio_queued(&folio);
        Ok(folio)
    }

    /// Marks blocks dirty. The caller holds the folio's lock.
    pub(crate) fn mark_dirty(
        self: &Arc<Self>,
        folio: &Arc<Folio>,
        state: &mut FolioState,
        blocks: Range<u32>,
    ) {
        debug_assert!(
            state.uptodate.next_clear(blocks.clone()).is_none(),
            "dirty blocks are up to date"
        );
        let first = !state.dirty.any();
        let more = state.dirty.count_clear_in_both(&state.writeback, blocks.clone());
        state.dirty.set(blocks);
        if first {
            self.index.write().dirty.insert(folio.start, folio.clone());
        }
        if more > 0 {
            self.cache.dirtied(&self.dirty, more.into(), self.bytes(more) as u64);
        }
    }

    /// Clears dirty bits. The caller holds the folio's lock. The number of unstable blocks stays as
    /// it is.
    pub(crate) fn unmark_dirty(&self, folio: &Folio, state: &mut FolioState, blocks: Range<u32>) {
        let had = state.dirty.any();
        state.dirty.clear(blocks);
        if had && !state.dirty.any() {
            self.index.write().dirty.remove(&folio.start);
        }
    }

    /// Counts blocks that are neither dirty nor being written any more: they were written, or
    /// dropped.
    pub(crate) fn mark_stable(&self, blocks: u32) {
        if blocks > 0 {
            self.cache.cleaned(&self.dirty, blocks.into(), self.bytes(blocks) as u64);
        }
    }

    pub(crate) fn has_unstable(&self) -> bool {
        self.dirty.has_unstable()
    }

    /// Drops the cached data of `blocks`, none of which may be under write-back. Returns the dirty
    /// runs that were dropped. With `clean_only`, blocks that are dirty or under write-back stay.
    pub(crate) fn drop_blocks(&self, blocks: Range<u64>, clean_only: bool) -> Vec<Run> {
        let mut lost: Vec<Run> = Vec::new();
        let mut cursor = blocks.start;
        while let Some(folio) = self.find_from(cursor).filter(|folio| folio.start < blocks.end) {
            cursor = folio.end();
            let part = folio.part(&blocks);
            let mut state = folio.state.lock();
            if state.removed {
                continue;
            }
            if clean_only {
                self.drop_clean(&folio, &mut state, part);
                continue;
            }
            assert!(
                state.writeback.next_set(part.clone()).is_none(),
                "the caller has waited for write-back"
            );
            self.drop_part(&folio, &mut state, part, &mut lost);
        }
        lost
    }

    fn drop_clean(&self, folio: &Folio, state: &mut FolioState, part: Range<u32>) {
        for bit in part {
            if !state.dirty.get(bit) && !state.writeback.get(bit) {
                state.uptodate.clear(bit..bit + 1);
            }
        }
        if !state.uptodate.any() {
            self.remove(folio, state);
        }
    }

    fn drop_part(
        &self,
        folio: &Folio,
        state: &mut FolioState,
        part: Range<u32>,
        lost: &mut Vec<Run>,
    ) {
        let mut from = part.start;
        while let Some(run) = state.dirty.next_run_without(&state.writeback, from..part.end) {
            from = run.end;
            push_run(lost, folio.start + u64::from(run.start), u64::from(run.end - run.start));
            self.mark_stable(run.end - run.start);
        }
        self.unmark_dirty(folio, state, part.clone());
        state.uptodate.clear(part);
        if state.is_clean() && !state.uptodate.any() {
            self.remove(folio, state);
        }
    }

    /// The dirty or in-flight runs within `blocks`.
    pub(crate) fn unstable_runs(&self, blocks: Range<u64>) -> Vec<Run> {
        let mut runs = Vec::new();
        let mut cursor = blocks.start;
        while let Some(folio) =
            self.find_unstable_from(cursor).filter(|folio| folio.start < blocks.end)
        {
            cursor = folio.end();
            let state = folio.state.lock();
            for bit in folio.part(&blocks) {
                if state.dirty.get(bit) || state.writeback.get(bit) {
                    push_run(&mut runs, folio.start + u64::from(bit), 1);
                }
            }
        }
        runs
    }
}

/// Appends blocks to a list of runs in rising order.
fn push_run(runs: &mut Vec<Run>, start: u64, len: u64) {
    match runs.last_mut() {
        Some(last) if last.start.get() + last.len == start => last.len += len,
        _ => runs.push(Run { start: FileBlock(start), len }),
    }
}

impl FolioIndex for FileState {
    fn remove(&self, folio: &Folio, state: &mut FolioState) {
        assert!(state.is_clean() && !state.removed, "a folio leaves the index once, and clean");
        state.removed = true;
        let mut index = self.index.write();
        index.folios.remove(&folio.start);
        if index.folios.is_empty() {
            // An empty map may keep memory.
            debug_assert!(index.dirty.is_empty(), "dirty blocks without a folio");
            *index = Index::default();
        }
        drop(index);
        self.cache.folio_removed(self.bytes(folio.blocks));
    }
}

impl Drop for FileState {
    fn drop(&mut self) {
        let index = std::mem::take(self.index.get_mut());
        for folio in index.folios.values() {
            self.cache.folio_removed(self.bytes(folio.blocks));
        }
        let unstable = self.dirty.unstable();
        if unstable > 0 {
            self.cache.cleaned(&self.dirty, unstable, unstable << self.shift);
        }
    }
}
