//! The circular log: its head, its free blocks, and the update of its tail.

use crate::format::blocks::BlockLayout;

/// Positions in the log. Blocks are journal blocks.
pub(crate) struct LogSpace {
    /// First block of the log (`j_first`).
    first: u32,
    /// Block after the last one (`j_last`).
    end: u32,
    /// Next block to be written (`j_head`).
    head: u32,
    /// Blocks that may be written (`j_free`).
    free: u32,
    /// Fewest blocks that were ever free.
    low_water: u32,
    /// Blocks allocated so far.
    allocated: u64,
    /// A superblock with a new tail is being written.
    updating_tail: bool,
}

impl LogSpace {
    /// An empty log.
    pub(crate) fn new(first: u32, end: u32) -> Self {
        let blocks = end - first;
        Self {
            first,
            end,
            head: first,
            free: blocks,
            low_water: blocks,
            allocated: 0,
            updating_tail: false,
        }
    }

    /// Blocks of the log.
    pub(crate) fn blocks(&self) -> u32 {
        self.end - self.first
    }

    /// Blocks that may be written.
    pub(crate) fn free(&self) -> u32 {
        self.free
    }

    /// Fewest blocks that were ever free.
    pub(crate) fn low_water(&self) -> u32 {
        self.low_water
    }

    /// Blocks allocated so far.
    pub(crate) fn allocated(&self) -> u64 {
        self.allocated
    }

    /// Next block to be written.
    pub(crate) fn head(&self) -> u32 {
        self.head
    }

    /// Allocates `count` blocks at the head, as at most two runs: first block and length.
    ///
    /// # Panics
    /// If fewer are free. Handles start only while their blocks are free, so this cannot happen.
    #[must_use]
    pub(crate) fn allocate(&mut self, count: u32) -> [(u32, u32); 2] {
        assert!(count <= self.free, "{count} log blocks are needed, {} are free", self.free);
        let until_end = (self.end - self.head).min(count);
        let runs = [(self.head, until_end), (self.first, count - until_end)];
        self.free -= count;
        self.low_water = self.low_water.min(self.free);
        self.allocated += u64::from(count);
        self.head += count;
        if self.head >= self.end {
            self.head = self.first + (self.head - self.end);
        }
        runs
    }

    /// True while a superblock with a new tail is being written.
    pub(crate) fn is_updating_tail(&self) -> bool {
        self.updating_tail
    }

    /// The caller writes a superblock with a new tail.
    pub(crate) fn begin_tail_update(&mut self) {
        debug_assert!(!self.updating_tail, "two threads update the log tail");
        self.updating_tail = true;
    }

    /// The superblock is durable, which frees these blocks; or its write has failed (0).
    ///
    /// # Panics
    /// If more blocks are free than the log has.
    pub(crate) fn end_tail_update(&mut self, freed: u32) {
        debug_assert!(self.updating_tail, "an update of the log tail ends that was not begun");
        self.updating_tail = false;
        self.free += freed;
        assert!(
            self.free <= self.blocks(),
            "{} of {} log blocks are free",
            self.free,
            self.blocks()
        );
    }
}

/// Log blocks of a transaction with so many metadata blocks and revoke records.
pub(crate) fn transaction_blocks(layout: &BlockLayout, metadata: u32, revokes: u32) -> u32 {
    let per = |count: u32, each: usize| count.div_ceil(u32::try_from(each).unwrap_or(1));
    metadata + per(metadata, layout.tags_per_block()) + per(revokes, layout.revokes_per_block()) + 1
}

/// Most metadata blocks of one transaction (`j_max_transaction_buffers`): with their descriptor
/// blocks they take this part of the log.
pub(crate) fn max_transaction_buffers(layout: &BlockLayout, part: u32) -> u32 {
    let descriptors = part.div_ceil(u32::try_from(layout.tags_per_block()).unwrap_or(1));
    part.saturating_sub(descriptors + 2).max(1)
}
