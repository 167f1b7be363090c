//! Blocks that can be discarded: free blocks that neither the last checkpoint nor recovery may
//! need.

#![cfg_attr(
    not(test),
    deny(
        clippy::indexing_slicing,
        clippy::as_conversions,
        clippy::arithmetic_side_effects,
        clippy::unwrap_used,
        clippy::expect_used
    )
)]

use super::Segments;
use super::table::Map;
use crate::format::summary::ENTRIES;
use crate::format::{BlockAddr, SegNo, bits};

/// Contiguous blocks: the first one and their number.
pub(crate) type BlockRun = (BlockAddr, u32);

impl Segments {
    /// The runs of blocks that the next [`Segments::committed`] releases. They can be discarded
    /// once the checkpoint in flight is on the medium, and before it is committed.
    #[must_use]
    pub(crate) fn freed_runs(&self) -> Vec<BlockRun> {
        let state = self.state.lock();
        let mut freed: Vec<_> = state.table.in_flight().map(|(segno, map)| (segno, *map)).collect();
        freed.sort_by_key(|(segno, _)| *segno);
        self.runs(freed)
    }

    /// The runs of at least `minimum` free blocks in these segments that have not been discarded.
    /// No block may be allocated meanwhile.
    #[must_use]
    pub(crate) fn undiscarded_runs(
        &self,
        segments: impl Iterator<Item = SegNo>,
        minimum: u32,
    ) -> Vec<BlockRun> {
        let state = self.state.lock();
        let free = segments.filter(|segno| !state.table.free.is_avoided(*segno)).map(|segno| {
            let (mut map, held) = (state.table.undiscarded.of(segno), state.table.held_map(segno));
            map.iter_mut().zip(held).for_each(|(byte, held)| *byte &= !held);
            (segno, map)
        });
        let mut runs = self.runs(free.collect());
        runs.retain(|(_, count)| *count >= minimum);
        runs
    }

    /// Records that these blocks were discarded. None of them has been allocated since.
    pub(crate) fn discarded(&self, runs: &[BlockRun]) {
        let mut state = self.state.lock();
        for (start, count) in runs {
            let blocks = (start.get()..start.get().strict_add(*count)).map(BlockAddr);
            for (segno, block) in blocks.filter_map(|addr| self.layout.segment_of(addr)) {
                state.table.undiscarded.remove(segno, block, 1);
            }
        }
    }

    /// Number of free blocks that have not been discarded.
    #[must_use]
    pub(crate) fn undiscarded_blocks(&self) -> u64 {
        self.state.lock().table.undiscarded.blocks()
    }

    fn runs(&self, maps: Vec<(SegNo, Map)>) -> Vec<BlockRun> {
        let mut runs: Vec<BlockRun> = Vec::new();
        for (segno, map) in maps {
            for block in
                (0_u16..).take(ENTRIES).filter(|block| bits::test(&map, usize::from(*block)))
            {
                let addr = self.layout.address(segno, block);
                match runs.last_mut() {
                    Some((start, count)) if start.get().strict_add(*count) == addr.get() => {
                        *count = count.strict_add(1)
                    }
                    _ => runs.push((addr, 1)),
                }
            }
        }
        runs
    }
}
