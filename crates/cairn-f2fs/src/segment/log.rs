//! One log: the segment it is in, the block it takes next, and the owners of that segment's blocks.

use super::table::{Map, Table};
use crate::format::checkpoint::LogPosition;
use crate::format::log::AllocType;
use crate::format::summary::SummaryBlock;
use crate::format::units::BLOCKS_PER_SEGMENT;
use crate::format::{BlockAddr, Layout, SegNo, Summary, bits};

const END: usize = BLOCKS_PER_SEGMENT as usize;

/// A log in memory. Invariant, except while recovery adopts blocks: the block at `offset` may be
/// written.
pub(super) struct LogState {
    pub(super) position: LogPosition,
    pub(super) summary: SummaryBlock,
}

/// A piece of the log's segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Run {
    pub(super) start: u16,
    pub(super) count: u16,
    /// The next block in the same segment that may be written after it.
    pub(super) after: Option<u16>,
}

impl LogState {
    pub(super) const fn segno(&self) -> SegNo {
        self.position.segno
    }

    /// The longest run from the log's offset, at most `most` blocks.
    pub(super) fn run(&self, table: &Table, most: usize) -> Run {
        let blocked = table.blocked_map(self.segno());
        run_in(&blocked, self.position.blkoff, most)
    }

    /// Where the next block goes.
    pub(super) fn next(&self, layout: &Layout) -> BlockAddr {
        layout.address(self.segno(), self.position.blkoff)
    }

    /// Notes the owners of a run that was placed.
    pub(super) fn own(&mut self, start: u16, owners: &[Summary]) {
        let start = usize::from(start);
        self.summary.entries[start..start + owners.len()].copy_from_slice(owners);
    }

    /// Entries of the summary that a compact pack must hold.
    pub(super) fn compact_entries(&self) -> u16 {
        match self.position.alloc {
            AllocType::Lfs => self.position.blkoff,
            AllocType::Ssr => BLOCKS_PER_SEGMENT as u16,
        }
    }
}

fn run_in(blocked: &Map, start: u16, most: usize) -> Run {
    let from = usize::from(start);
    let end = bits::next_set(blocked, from, END).unwrap_or(END).min(from.saturating_add(most));
    let after = bits::next_clear(blocked, end, END).map(|block| block as u16);
    Run { start, count: (end - from) as u16, after }
}

/// The first block that may be written in a segment.
pub(super) fn first_usable(blocked: &Map) -> Option<u16> {
    bits::next_clear(blocked, 0, END).map(|block| block as u16)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_end_at_blocked_blocks() {
        let mut map = [0_u8; 64];
        map[1] = 0b0001_1000;
        let run = |start, most| run_in(&map, start, most);
        assert_eq!(run(3, 5), Run { start: 3, count: 5, after: Some(8) });
        assert_eq!(run(3, 99), Run { start: 3, count: 8, after: Some(13) });
        assert_eq!(run(13, 9999), Run { start: 13, count: 499, after: None });
        map[63] = 0xff;
        assert_eq!(run_in(&map, 13, 9999), Run { start: 13, count: 491, after: None });
        assert_eq!(first_usable(&[0xff; 64]), None);
    }
}
