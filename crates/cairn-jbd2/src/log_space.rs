//! The circular log: where the next transaction goes, and how much room there is.

use cairn_base::Tid;

use crate::format::blocks::BlockLayout;

/// Positions in the log. Blocks are journal blocks.
#[derive(Clone, Debug)]
pub struct LogSpace {
    first: u32,
    end: u32,
    head: u32,
    free: u32,
    low_water: u32,
    /// Oldest block that recovery still needs, as the superblock on disk says.
    pub tail: u32,
    /// Transaction that starts at `tail`.
    pub tail_tid: Tid,
}

impl LogSpace {
    /// An empty log.
    pub fn new(first: u32, end: u32, next: Tid) -> Self {
        Self { first, end, head: first, free: end - first, low_water: end - first, tail: first, tail_tid: next }
    }

    /// Blocks of the log.
    pub fn blocks(&self) -> u32 {
        self.end - self.first
    }

    /// Blocks that may be written now.
    pub fn free(&self) -> u32 {
        self.free
    }

    /// Fewest blocks that were ever free.
    pub fn low_water(&self) -> u32 {
        self.low_water
    }

    /// Where the next block goes.
    pub fn head(&self) -> u32 {
        self.head
    }

    /// Takes `count` blocks and gives them as at most two runs.
    ///
    /// # Panics
    /// If there are not that many: admission was to prevent it.
    pub fn take(&mut self, count: u32) -> [(u32, u32); 2] {
        assert!(count <= self.free, "{count} log blocks wanted, {} free", self.free);
        let until_end = (self.end - self.head).min(count);
        let runs = [(self.head, until_end), (self.first, count - until_end)];
        self.free -= count;
        self.low_water = self.low_water.min(self.free);
        self.head += count;
        if self.head >= self.end {
            self.head = self.first + (self.head - self.end);
        }
        runs
    }

    /// Moves the tail and gives the blocks behind it back.
    pub fn advance_tail(&mut self, tail: u32, tid: Tid, freed: u32) {
        self.free += freed;
        assert!(self.free <= self.blocks(), "more free log blocks than there are");
        self.tail = tail;
        self.tail_tid = tid;
    }
}

/// Log blocks that a transaction of so many copies and revokes takes.
pub fn needed(layout: &BlockLayout, copies: u32, revokes: u32) -> u32 {
    let per = |count: u32, each: usize| count.div_ceil(u32::try_from(each).unwrap_or(1));
    copies + per(copies, layout.tags_per_block()) + per(revokes, layout.revokes_per_block()) + 1
}

/// Most copies that one transaction may hold: a quarter of the log with its descriptors.
pub fn largest_transaction(layout: &BlockLayout, log_blocks: u32) -> u32 {
    let quarter = log_blocks / 4;
    let descriptors = quarter.div_ceil(u32::try_from(layout.tags_per_block()).unwrap_or(1));
    quarter.saturating_sub(descriptors + 2).max(1)
}
