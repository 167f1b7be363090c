//! Free blocks that the device has not been told of (Linux's `discard_map`, inverted).
//!
//! A block enters when it is freed, and leaves when it is discarded or written again. When none is left, all free space is discarded:
//! the checkpoint of an unmount says so (`CP_TRIMMED_FLAG`).

use super::segment::{BlockSet, Map};
use crate::format::{SegNo, bits};

/// See the module.
pub(in crate::segment) struct Undiscarded {
    segments: Vec<BlockSet>,
    blocks: u64,
}

impl Undiscarded {
    /// Every free block of so many segments is discarded.
    pub(super) fn none(segments: u32) -> Self {
        Self { segments: vec![BlockSet::default(); segments as usize], blocks: 0 }
    }

    /// How many there are.
    pub(in crate::segment) const fn blocks(&self) -> u64 {
        self.blocks
    }

    /// Those of a segment.
    pub(in crate::segment) fn of(&self, segno: SegNo) -> Map {
        self.segments[segno.index()].map()
    }

    /// Blocks that were freed.
    pub(super) fn add(&mut self, segno: SegNo, mask: &Map) {
        self.edit(segno, |map| {
            let new: u32 = map.iter().zip(mask).map(|(byte, more)| (more & !byte).count_ones()).sum();
            map.iter_mut().zip(mask).for_each(|(byte, more)| *byte |= more);
            new as i32
        });
    }

    /// Blocks that the device was told of, or that are in use again.
    pub(in crate::segment) fn remove(&mut self, segno: SegNo, from: u16, count: u16) {
        if self.segments[segno.index()].count() > 0 {
            self.edit(segno, |map| {
                -(from..from + count).map(|block| i32::from(bits::clear(map, block.into()))).sum::<i32>()
            });
        }
    }

    fn edit(&mut self, segno: SegNo, change: impl FnOnce(&mut Map) -> i32) {
        let segment = &mut self.segments[segno.index()];
        let before = segment.count();
        segment.edit(change);
        self.blocks = self.blocks + u64::from(segment.count()) - u64::from(before);
    }
}
