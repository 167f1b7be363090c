//! [`FileState`]: one file's folios by position, and which of them are dirty.
//!
//! Locking: the index lock is of rank CACHE and held for look-ups and insertions only. A folio found here may be gone
//! by the time its lock is had: [`Folio`]'s `removed` says so, and the caller looks again. Whether a folio has dirty
//! blocks and whether `dirty` lists it changes under the folio's lock.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use cairn_base::ranked_lock::{Mutex, Rank, RwLock};
use cairn_base::runtime::Event;

use super::PageCache;
use super::folio::{Folio, FolioState};
use super::promise::Promised;
use super::readahead::Streams;
use super::slab::PAGE;
use crate::mapper::Run;
use crate::writeback::{ErrorSequence, Flushable};
use cairn_base::FileBlock;

/// What all users of one file's cache share.
pub(crate) struct FileState {
    pub(crate) cache: Arc<PageCache>,
    /// Binary logarithm of the block size.
    pub(crate) shift: u32,
    index: RwLock<Index>,
    /// Blocks that are dirty or being written.
    pub(crate) unstable: AtomicU64,
    /// In the volume's list of dirty files.
    pub(crate) queued: AtomicBool,
    /// Who can write this file back.
    pub(crate) owner: OnceLock<Weak<dyn Flushable>>,
    /// Blocks being written: start and length of each collected piece.
    pub(crate) in_flight: Mutex<BTreeMap<u64, u64>>,
    pub(crate) writeback_done: Event,
    pub(crate) streams: Mutex<Streams>,
    /// Blocks being read from the device: start and end of each piece.
    pub(crate) reading: Mutex<BTreeMap<u64, u64>>,
    pub(crate) read_done: Event,
    pub(crate) errors: ErrorSequence,
    pub(crate) promised: Mutex<Promised>,
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
            index: RwLock::new(Rank::CACHE, Index::default()),
            unstable: AtomicU64::new(0),
            queued: AtomicBool::new(false),
            owner: OnceLock::new(),
            in_flight: Mutex::new(Rank::CACHE, BTreeMap::new()),
            writeback_done: Event::new(),
            streams: Mutex::new(Rank::CACHE, Streams::default()),
            reading: Mutex::new(Rank::CACHE, BTreeMap::new()),
            read_done: Event::new(),
            errors: ErrorSequence::new(),
            promised: Mutex::new(Rank::PROMISES, Promised::new()),
        }
    }

    /// Bytes in a block.
    pub(crate) fn block_size(&self) -> usize {
        1 << self.shift
    }

    /// The block that holds a byte.
    pub(crate) fn block_of(&self, offset: u64) -> u64 {
        offset >> self.shift
    }

    /// Blocks needed to hold `bytes`.
    pub(crate) fn blocks_for(&self, bytes: u64) -> u64 {
        bytes.div_ceil(1 << self.shift)
    }

    /// First byte of a block; beyond the largest file it saturates.
    pub(crate) fn byte_of(&self, block: u64) -> u64 {
        block.saturating_mul(1 << self.shift)
    }

    /// Blocks in the smallest folio.
    pub(crate) fn page_blocks(&self) -> u64 {
        ((PAGE >> self.shift) as u64).max(1)
    }

    /// Bytes of a number of blocks that fit into memory.
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

    /// The folio with dirty or in-flight blocks that holds `block`, or else the next one. There may be many clean ones between.
    fn find_unstable_from(&self, block: u64) -> Option<Arc<Folio>> {
        let dirty = self.find_dirty_from(block);
        let written = self.in_flight_from(block).and_then(|start| self.find(start));
        // What has failed to be written between the two looks is dirty again.
        let again = written.is_none().then(|| self.find_dirty_from(block)).flatten();
        [dirty, written, again].into_iter().flatten().min_by_key(|folio| folio.start)
    }

    /// The first block from `block` on that is being written.
    fn in_flight_from(&self, block: u64) -> Option<u64> {
        let in_flight = self.in_flight.lock();
        let holds = in_flight.range(..=block).next_back().filter(|(start, len)| **start + **len > block);
        holds.map(|_| block).or_else(|| in_flight.range(block..).next().map(|(start, _)| *start))
    }

    /// Blocks of the folio that ends exactly where `block` begins.
    pub(crate) fn blocks_of_previous(&self, block: u64) -> Option<u32> {
        let folio = self.find(block.checked_sub(1)?)?;
        Some(folio.blocks)
    }

    /// Puts a folio into the index and the clock, unless it would overlap one; then that one's place is taken already
    /// and the state comes back.
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
            let folio = Arc::new(Folio::new(start, blocks, Arc::downgrade(self), state));
            index.folios.insert(start, folio.clone());
            folio
        };
        self.cache.folio_queued(&folio);
        Ok(folio)
    }

    /// Takes a folio out. The caller holds its lock and nothing in it is dirty or being written.
    pub(crate) fn remove(&self, folio: &Folio, state: &mut FolioState) {
        assert!(state.is_clean() && !state.removed, "a folio leaves the index once, and clean");
        state.removed = true;
        self.index.write().folios.remove(&folio.start);
        self.cache.folio_removed(self.bytes(folio.blocks));
    }

    /// Marks blocks dirty, under the folio's lock.
    pub(crate) fn mark_dirty(self: &Arc<Self>, folio: &Arc<Folio>, state: &mut FolioState, blocks: Range<u32>) {
        debug_assert!(state.uptodate.next_clear(blocks.clone()).is_none(), "dirty blocks are up to date");
        let first = !state.dirty.any();
        let more = state.dirty.count_clear_in_both(&state.writeback, blocks.clone());
        state.dirty.set(blocks);
        if first {
            self.index.write().dirty.insert(folio.start, folio.clone());
        }
        if more > 0 {
            self.unstable.fetch_add(more.into(), Ordering::Relaxed);
            self.cache.dirtied(self, self.bytes(more) as u64);
        }
    }

    /// Clears dirty bits, under the folio's lock. Does not touch the count of unstable blocks.
    pub(crate) fn unmark_dirty(&self, folio: &Folio, state: &mut FolioState, blocks: Range<u32>) {
        let had = state.dirty.any();
        state.dirty.clear(blocks);
        if had && !state.dirty.any() {
            self.index.write().dirty.remove(&folio.start);
        }
    }

    /// `blocks` became stable: written, or given up.
    pub(crate) fn settled(&self, blocks: u32) {
        if blocks > 0 {
            self.unstable.fetch_sub(blocks.into(), Ordering::Relaxed);
            self.cache.cleaned(self.bytes(blocks) as u64);
        }
    }

    pub(crate) fn has_unstable(&self) -> bool {
        self.unstable.load(Ordering::Relaxed) > 0
    }

    /// Forgets what is cached of `blocks` (none of it may be under write-back) and returns the dirty runs that were lost.
    /// With `clean_only`, dirty blocks stay.
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
            assert!(state.writeback.next_set(part.clone()).is_none(), "write-back was waited for");
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

    fn drop_part(&self, folio: &Folio, state: &mut FolioState, part: Range<u32>, lost: &mut Vec<Run>) {
        let mut from = part.start;
        while let Some(run) = state.dirty.next_run_without(&state.writeback, from..part.end) {
            from = run.end;
            push_run(lost, folio.start + u64::from(run.start), u64::from(run.end - run.start));
            self.settled(run.end - run.start);
        }
        self.unmark_dirty(folio, state, part.clone());
        state.uptodate.clear(part);
        if state.is_clean() && !state.uptodate.any() {
            self.remove(folio, state);
        }
    }

    /// Dirty or in-flight runs within `blocks`.
    pub(crate) fn unstable_runs(&self, blocks: Range<u64>) -> Vec<Run> {
        let mut runs = Vec::new();
        let mut cursor = blocks.start;
        while let Some(folio) = self.find_unstable_from(cursor).filter(|folio| folio.start < blocks.end) {
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

/// Appends blocks to a rising list of runs.
fn push_run(runs: &mut Vec<Run>, start: u64, len: u64) {
    match runs.last_mut() {
        Some(last) if last.start.get() + last.len == start => last.len += len,
        _ => runs.push(Run { start: FileBlock(start), len }),
    }
}

impl Drop for FileState {
    fn drop(&mut self) {
        let index = std::mem::take(self.index.get_mut());
        for folio in index.folios.values() {
            self.cache.folio_removed(self.bytes(folio.blocks));
        }
        let unstable = std::mem::take(self.unstable.get_mut());
        self.cache.cleaned(unstable << self.shift);
    }
}
