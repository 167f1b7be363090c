//! Free blocks that are not discarded yet (Linux's `discard_map`, inverted).
//!
//! A block enters when it is freed, and leaves when it is discarded or written again. When none is
//! left, all free space is discarded: the checkpoint of an unmount says so (`CP_TRIMMED_FLAG`).

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

use cairn_base::units::as_index;

use super::segment::{BlockSet, Map};
use crate::format::{SegNo, bits, block};

/// A bit for each block that is free and may still hold data on the device.
pub(in crate::segment) struct Undiscarded {
    segments: Vec<BlockSet>,
    blocks: u64,
}

impl Undiscarded {
    /// The empty set: every free block of these segments is discarded.
    pub(super) fn none(segments: u32) -> Self {
        Self { segments: vec![BlockSet::default(); as_index(segments)], blocks: 0 }
    }

    /// Number of blocks.
    pub(in crate::segment) const fn blocks(&self) -> u64 {
        self.blocks
    }

    /// The blocks of a segment.
    pub(in crate::segment) fn of(&self, segno: SegNo) -> Map {
        block::entry(&self.segments, segno.index()).map()
    }

    /// Adds blocks that were freed.
    pub(super) fn add(&mut self, segno: SegNo, mask: &Map) {
        self.edit(segno, |map| {
            let new: u32 =
                map.iter().zip(mask).map(|(byte, more)| (more & !byte).count_ones()).sum();
            map.iter_mut().zip(mask).for_each(|(byte, more)| *byte |= more);
            new.cast_signed()
        });
    }

    /// Removes blocks that were discarded, or that are in use again.
    pub(in crate::segment) fn remove(&mut self, segno: SegNo, from: u16, count: u16) {
        if block::entry(&self.segments, segno.index()).count() > 0 {
            self.edit(segno, |map| {
                let blocks = from..from.strict_add(count);
                blocks
                    .map(|block| i32::from(bits::clear(map, block.into())))
                    .sum::<i32>()
                    .strict_neg()
            });
        }
    }

    fn edit(&mut self, segno: SegNo, change: impl FnOnce(&mut Map) -> i32) {
        let segment = block::entry_mut(&mut self.segments, segno.index());
        let before = segment.count();
        segment.edit(change);
        self.blocks = self.blocks.strict_add(segment.count().into()).strict_sub(before.into());
    }
}
