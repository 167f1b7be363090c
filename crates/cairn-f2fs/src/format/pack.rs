//! The order of blocks in a checkpoint pack.
//!
//! `[first][payload…][orphans…][data summaries 1..3][node summaries, if unmounted][last]`;
//! `nat_bits`, where present, lie at the very end of the pack's segment. The last block equals the
//! first and is written after everything else.

use std::ops::Range;

use super::checkpoint::{Checkpoint, CheckpointFlags};
use super::layout::Layout;
use super::log::Log;
use super::orphan;
use super::units::BLOCKS_PER_SEGMENT;
use crate::corrupt::Corrupt;

/// Fewest blocks of a pack.
pub(crate) const MIN_BLOCKS: u32 = 3;

/// Places in a pack, counted from its first block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PackMap {
    payload: u32,
    orphans: u32,
    data_summaries: u32,
    node_summaries: u32,
}

impl PackMap {
    /// The map of a pack that is to be written, with these numbers of orphan inodes and of data
    /// summary blocks (3, or fewer in the compact form), with or without node summaries. `None` if
    /// the segment has no room.
    #[must_use]
    pub(crate) fn plan(
        layout: &Layout,
        orphan_inodes: usize,
        data_summaries: u32,
        node_summaries: bool,
    ) -> Option<Self> {
        let orphans = u32::try_from(orphan_inodes.div_ceil(orphan::INOS_PER_BLOCK)).ok()?;
        let node_summaries = if node_summaries { 3 } else { 0 };
        let map = Self { payload: layout.cp_payload, orphans, data_summaries, node_summaries };
        let without_orphans = Self { orphans: 0, ..map };
        let room = BLOCKS_PER_SEGMENT.checked_sub(without_orphans.total())?;
        (orphans <= room).then_some(map)
    }

    /// The map of a pack that was read.
    ///
    /// # Errors
    /// Its counts contradict each other.
    pub fn of(checkpoint: &Checkpoint, layout: &Layout) -> Result<Self, Corrupt> {
        let bad = |field, value: u32, expected| Corrupt::Checkpoint {
            field,
            value: value.into(),
            expected,
        };
        let total = checkpoint.pack_total_blocks;
        if !(MIN_BLOCKS..=BLOCKS_PER_SEGMENT).contains(&total) {
            return Err(bad("cp_pack_total_block_count", total, "it must be 3 to 512"));
        }
        let start = checkpoint.pack_start_sum;
        let Some(orphans) =
            start.checked_sub(layout.cp_payload).and_then(|rest| rest.checked_sub(1))
        else {
            return Err(bad("cp_pack_start_sum", start, "the payload ends behind it"));
        };
        let node_summaries = if checkpoint.has_node_summaries() { 3 } else { 0 };
        // The last block, node summaries and data summaries, from the end on.
        let data_end = total.checked_sub(1).and_then(|last| last.checked_sub(node_summaries));
        let Some(data_summaries) = data_end.and_then(|end| end.checked_sub(start)) else {
            return Err(bad("cp_pack_start_sum", start, "no room is left for summaries"));
        };
        let compact = checkpoint.flags.contains(CheckpointFlags::COMPACT_SUM);
        let fine = if compact { (1..=3).contains(&data_summaries) } else { data_summaries == 3 };
        if !fine && !layout.features.contains(super::Features::RO) {
            return Err(bad(
                "cp_pack_total_block_count",
                total,
                "the number of data summaries does not fit the flags",
            ));
        }
        Ok(Self { payload: layout.cp_payload, orphans, data_summaries, node_summaries })
    }

    /// Blocks of the pack: `cp_pack_total_block_count`.
    #[must_use]
    pub(crate) const fn total(&self) -> u32 {
        self.last().strict_add(1)
    }

    /// The first data summary: `cp_pack_start_sum`.
    #[must_use]
    pub(crate) const fn start_sum(&self) -> u32 {
        self.head().end.strict_add(self.orphans)
    }

    /// The first block with its payload.
    #[must_use]
    pub(crate) const fn head(&self) -> Range<u32> {
        0..self.payload.strict_add(1)
    }

    /// Orphan blocks.
    #[must_use]
    pub(crate) const fn orphans(&self) -> Range<u32> {
        self.head().end..self.start_sum()
    }

    /// Data summaries: hot, warm, cold; or the compact ones.
    #[must_use]
    pub(crate) const fn data_summaries(&self) -> Range<u32> {
        self.start_sum()..self.start_sum().strict_add(self.data_summaries)
    }

    /// Node summaries: hot, warm, cold; empty if they are not in the pack.
    #[must_use]
    pub(crate) const fn node_summaries(&self) -> Range<u32> {
        let start = self.data_summaries().end;
        start..start.strict_add(self.node_summaries)
    }

    /// The full summary block of a log. `None` for a data log in the compact form and a node log of
    /// a runtime checkpoint.
    #[must_use]
    pub(crate) fn summary(&self, log: Log) -> Option<u32> {
        let range = if log.is_node() { self.node_summaries() } else { self.data_summaries() };
        range.clone().nth(log.index() % 3).filter(|_| range.len() == 3)
    }

    /// The last block: the copy of the first.
    #[must_use]
    pub const fn last(&self) -> u32 {
        self.node_summaries().end
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::checkpoint::tests::{checkpoint, layout};

    #[test]
    fn reading_finds_what_was_planned() {
        let layout = layout();
        for (orphans, data, nodes) in [(0, 1, true), (0, 1, false), (1, 3, true), (1021, 2, false)]
        {
            let plan = PackMap::plan(&layout, orphans, data, nodes).unwrap();
            let mut cp = checkpoint(&layout);
            cp.flags.set(CheckpointFlags::UMOUNT, nodes);
            cp.flags.set(CheckpointFlags::COMPACT_SUM, data < 3);
            (cp.pack_total_blocks, cp.pack_start_sum) = (plan.total(), plan.start_sum());
            assert_eq!(PackMap::of(&cp, &layout).unwrap(), plan);
        }
        let full = PackMap::plan(&layout, 1, 3, true).unwrap();
        assert_eq!((full.total(), full.start_sum(), full.last()), (9, 2, 8));
        assert_eq!((full.summary(Log::ColdData), full.summary(Log::HotNode)), (Some(4), Some(5)));
        let short = PackMap::plan(&layout, 0, 1, false).unwrap();
        assert_eq!(
            (short.total(), short.summary(Log::HotData), short.summary(Log::HotNode)),
            (3, None, None)
        );
    }

    #[test]
    fn room_is_bounded() {
        let layout = layout();
        assert!(PackMap::plan(&layout, 504 * 1020, 3, true).is_some());
        assert!(PackMap::plan(&layout, 504 * 1020 + 1, 3, true).is_none());
        let mut cp = checkpoint(&layout);
        for (total, start) in [(2, 1), (513, 1), (6, 0), (6, 3), (6, u32::MAX), (9, 1)] {
            (cp.pack_total_blocks, cp.pack_start_sum) = (total, start);
            assert!(PackMap::of(&cp, &layout).is_err(), "{total} {start}");
        }
    }
}
