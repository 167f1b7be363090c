//! Collecting: it takes the longest run of dirty blocks, puts it under write-back and pins its
//! bytes.
//!
//! Invariant: a block that has not reached the device is dirty or in the file's `in_flight` map, at
//! every moment. The map changes under the folio's lock: before the dirty bit is cleared, and after
//! it is set again.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use smallvec::SmallVec;

use crate::file::{FileState, Folio, FolioIndex};

/// A small file is one piece, one run and one batch: lists of one item take no memory of their own.
pub(super) type Few<T> = SmallVec<[T; 1]>;

/// Most bytes of one run.
const MAX_RUN: usize = 32 << 20;

/// Consecutive blocks of one folio under write-back.
pub(super) struct Piece {
    pub(super) folio: Arc<Folio>,
    /// The blocks, counted in the folio.
    pub(super) blocks: Range<u32>,
    pub(super) data: Bytes,
}

impl Piece {
    /// The first block, counted in the file.
    pub(super) fn start(&self) -> u64 {
        self.folio.start + u64::from(self.blocks.start)
    }

    pub(super) fn len(&self) -> u64 {
        u64::from(self.blocks.end - self.blocks.start)
    }
}

/// Result of the write of a piece.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum WriteOutcome {
    /// The data is on the device and mapped.
    Written,
    /// The write failed and the data is dirty again.
    Failed,
    /// The device will never take the data, which is dropped.
    Lost,
}

impl FileState {
    /// Takes the first run of dirty blocks of the range that are not under write-back.
    pub(super) fn collect(self: &Arc<Self>, range: Range<u64>) -> Few<Piece> {
        let mut pieces = Few::new();
        let mut cursor = range.start;
        let mut bytes = 0;
        while let Some(folio) = self.find_dirty_from(cursor).filter(|folio| folio.start < range.end)
        {
            let begun = !pieces.is_empty();
            if begun && folio.start != cursor {
                break;
            }
            cursor = folio.end();
            let Some(piece) = self.collect_from(&folio, folio.part(&range), begun) else {
                if begun {
                    break;
                }
                continue;
            };
            bytes += piece.data.len();
            let complete = piece.blocks.end == folio.blocks;
            pieces.push(piece);
            if !complete || bytes >= MAX_RUN {
                break;
            }
        }
        pieces
    }

    /// Takes the first dirty run of a part of a folio. With `at_start`, only a run that begins the
    /// folio.
    fn collect_from(&self, folio: &Arc<Folio>, part: Range<u32>, at_start: bool) -> Option<Piece> {
        let mut state = folio.state.lock();
        let blocks = state.dirty.next_run_without(&state.writeback, part)?;
        if at_start && blocks.start != 0 {
            return None;
        }
        state.writeback.set(blocks.clone());
        let data = state.slab.pin(self.bytes(blocks.start)..self.bytes(blocks.end));
        let piece = Piece { folio: folio.clone(), blocks: blocks.clone(), data };
        self.in_flight.lock().insert(piece.start(), piece.len());
        self.unmark_dirty(folio, &mut state, blocks);
        Some(piece)
    }

    /// Ends the write-back of blocks of a folio.
    pub(super) fn end_writeback(
        self: &Arc<Self>,
        folio: &Arc<Folio>,
        blocks: Range<u32>,
        outcome: WriteOutcome,
    ) {
        let mut state = folio.state.lock();
        if outcome == WriteOutcome::Failed {
            self.mark_dirty(folio, &mut state, blocks.clone());
        }
        state.writeback.clear(blocks.clone());
        let stable = blocks.clone().filter(|bit| !state.dirty.get(*bit)).count();
        self.mark_stable(u32::try_from(stable).expect("blocks of a folio"));
        if state.is_clean() && !state.removed {
            if folio.dontcache.load(Ordering::Relaxed) {
                self.remove(folio, &mut state);
            } else {
                self.cache.folio_evictable(folio, &mut state);
            }
        }
        let start = folio.start + u64::from(blocks.start);
        let len = self.in_flight.lock().remove(&start);
        assert_eq!(
            len,
            Some(u64::from(blocks.end - blocks.start)),
            "write-back of {start} ends once"
        );
    }

    /// Splits a run in flight at block `at`, because the mapper placed only its head.
    pub(super) fn split_in_flight(&self, start: u64, at: u64) {
        let mut in_flight = self.in_flight.lock();
        let len = in_flight.get_mut(&start).expect("collected before");
        let rest = *len - (at - start);
        *len = at - start;
        in_flight.insert(at, rest);
    }
}
