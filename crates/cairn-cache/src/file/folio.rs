//! [`Folio`]: a naturally aligned piece of a file, 4 KiB to 2 MiB, with the state of each of its
//! blocks.
//!
//! Invariants: a block that is dirty or under write-back is up to date. A folio with such a block
//! is in its file's index. A `removed` folio is in no index: a caller that reaches one by an old
//! reference looks the block up again. Bytes of an up-to-date block beyond the file's size are
//! zero.

use std::ops::Range;
use std::sync::Weak;
use std::sync::atomic::{AtomicBool, Ordering};

use cairn_base::ranked_lock::{Mutex, Rank};

use super::bits::Bits;
use super::slab::Slab;

/// The index of a file, as a folio knows it.
pub(crate) trait FolioIndex: Send + Sync {
    /// Takes a folio out of the index. The caller holds the folio's lock, and no block of it is
    /// dirty or being written.
    fn remove(&self, folio: &Folio, state: &mut FolioState);
}

/// A piece of a file in memory. Its lock has rank Folio and is never held across device I/O,
/// `reserve` or `place`.
pub(crate) struct Folio {
    /// First block.
    pub(crate) start: u64,
    /// Blocks in it.
    pub(crate) blocks: u32,
    /// It was used since the clock's hand passed it.
    pub(crate) referenced: AtomicBool,
    /// It leaves the index when it has been written back: a cache above this one has the data.
    pub(crate) dontcache: AtomicBool,
    /// A readahead window begins here.
    pub(crate) marked: AtomicBool,
    /// The file whose index holds the folio.
    pub(crate) file: Weak<dyn FolioIndex>,
    pub(crate) state: Mutex<FolioState>,
}

/// What the folio's lock guards.
pub(crate) struct FolioState {
    pub(crate) slab: Slab,
    /// Blocks whose bytes are those of the file.
    pub(crate) uptodate: Bits,
    /// Blocks changed since they were last collected for writing.
    pub(crate) dirty: Bits,
    /// Blocks that were collected and whose write is not complete.
    pub(crate) writeback: Bits,
    /// The folio has left the index.
    pub(crate) removed: bool,
    /// The folio is in the clock's queue.
    pub(crate) clocked: bool,
}

impl FolioState {
    pub(crate) fn new(slab: Slab, blocks: u32) -> Self {
        let none = Bits::new(blocks);
        Self {
            slab,
            uptodate: none.clone(),
            dirty: none.clone(),
            writeback: none,
            removed: false,
            clocked: false,
        }
    }

    /// True if no block is dirty or being written: dropping the folio loses no data.
    pub(crate) fn is_clean(&self) -> bool {
        !self.dirty.any() && !self.writeback.any()
    }
}

impl Folio {
    pub(crate) fn new(
        start: u64,
        blocks: u32,
        file: Weak<dyn FolioIndex>,
        state: FolioState,
    ) -> Self {
        Self {
            start,
            blocks,
            referenced: AtomicBool::new(false),
            dontcache: AtomicBool::new(false),
            marked: AtomicBool::new(false),
            file,
            state: Mutex::new(Rank::Folio, state),
        }
    }

    /// Notes a use; the last one decides whether the folio stays when it has been written back.
    pub(crate) fn used(&self, dontcache: bool) {
        self.referenced.store(true, Ordering::Relaxed);
        self.dontcache.store(dontcache, Ordering::Relaxed);
    }

    /// The block after the last one.
    pub(crate) fn end(&self) -> u64 {
        self.start + u64::from(self.blocks)
    }

    /// The part of a range of the file's blocks that lies in this folio, in the folio's blocks.
    pub(crate) fn part(&self, range: &Range<u64>) -> Range<u32> {
        let relative = |block: u64| {
            u32::try_from(block.saturating_sub(self.start))
                .map_or(self.blocks, |block| block.min(self.blocks))
        };
        relative(range.start)..relative(range.end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file::order::DESCRIPTORS;

    #[test]
    fn the_charge_for_descriptors_is_near_their_size() {
        // A pointer and a number in two lists, half of which is free, and the slab with its charge.
        let found = size_of::<Folio>() + size_of::<FolioState>() / 2 + 12 * size_of::<usize>();
        assert!((DESCRIPTORS * 3 / 4..=DESCRIPTORS).contains(&found), "{found} bytes");
    }
}
