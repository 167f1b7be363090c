//! [`Folio`]: a naturally aligned piece of a file, 4 KiB to 2 MiB, with the state of each of its blocks.
//!
//! Invariants: a dirty or written-back block is up to date; a folio with either is in its file's index; `removed`
//! folios are not, and whoever finds one by an old reference looks again. Bytes of an up-to-date block beyond the
//! file's size are zero.

use std::ops::Range;
use std::sync::Weak;
use std::sync::atomic::AtomicBool;

use cairn_base::ranked_lock::{Mutex, Rank};

use super::bits::Bits;
use super::index::FileState;
use super::slab::Slab;

/// A piece of a file in memory. Its lock is of rank FOLIO and never held across device I/O, `reserve` or `place`.
pub(crate) struct Folio {
    /// First block.
    pub(crate) start: u64,
    /// Blocks in it.
    pub(crate) blocks: u32,
    /// Used since the clock's hand passed.
    pub(crate) referenced: AtomicBool,
    /// The start of a readahead window.
    pub(crate) marked: AtomicBool,
    /// The file whose index has it.
    pub(crate) file: Weak<FileState>,
    pub(crate) state: Mutex<FolioState>,
}

/// What the folio's lock guards.
pub(crate) struct FolioState {
    pub(crate) slab: Slab,
    /// Blocks whose bytes are the file's.
    pub(crate) uptodate: Bits,
    /// Blocks changed since they were last collected for writing.
    pub(crate) dirty: Bits,
    /// Blocks collected, whose write has not been completed.
    pub(crate) writeback: Bits,
    /// No longer in the index.
    pub(crate) removed: bool,
    /// In the clock's queue.
    pub(crate) clocked: bool,
}

impl FolioState {
    pub(crate) fn new(slab: Slab, blocks: u32) -> Self {
        let none = Bits::new(blocks);
        Self { slab, uptodate: none.clone(), dirty: none.clone(), writeback: none, removed: false, clocked: false }
    }

    /// True if it may be dropped without losing anything.
    pub(crate) fn is_clean(&self) -> bool {
        !self.dirty.any() && !self.writeback.any()
    }
}

impl Folio {
    pub(crate) fn new(start: u64, blocks: u32, file: Weak<FileState>, state: FolioState) -> Self {
        Self {
            start,
            blocks,
            referenced: AtomicBool::new(false),
            marked: AtomicBool::new(false),
            file,
            state: Mutex::new(Rank::FOLIO, state),
        }
    }

    /// Block after the last one.
    pub(crate) fn end(&self) -> u64 {
        self.start + u64::from(self.blocks)
    }

    /// The part of the file's block range that lies in this folio, in its own blocks.
    pub(crate) fn part(&self, range: &Range<u64>) -> Range<u32> {
        let relative = |block: u64| {
            u32::try_from(block.saturating_sub(self.start)).map_or(self.blocks, |block| block.min(self.blocks))
        };
        relative(range.start)..relative(range.end)
    }
}
