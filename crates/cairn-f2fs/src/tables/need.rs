//! How much is written where nothing of the volume is: the host of a sparse image may have no
//! blocks there yet.

use std::ops::Range;

use super::Tables;
use crate::format::sit;

/// Blocks of two checkpoint packs.
const PACKS: u64 = 64;

impl Tables {
    /// Blocks that are written when these segments are emptied: their own, nodes that name them,
    /// entries of NAT and SIT, and a checkpoint.
    pub(crate) fn blocks_to_empty(&self, segments: Range<u32>) -> u64 {
        let len = self.sit.len();
        let within = segments.start.min(len as u32) as usize..(segments.end as usize).min(len);
        let some = self.sit.get(within).unwrap_or_default();
        let moved: u64 = some.iter().map(|entry| u64::from(entry.valid_blocks())).sum();
        let nodes = moved.min(self.loaded.checkpoint.valid_node_count.into());
        let entries = u64::from(self.layout.nat_blocks()).min(nodes) / 2;
        moved + nodes + entries + sit_blocks(self.layout.main_segments) + PACKS
    }

    /// Blocks that are written when all tables are written anew for a main area of this size.
    pub(crate) fn blocks_of_tables(&self, main_segments: u32) -> u64 {
        let nodes = u64::from(self.loaded.checkpoint.valid_node_count);
        let nat = u64::from(self.layout.nat_blocks()).min(nodes);
        let used = self.sit.iter().filter(|entry| entry.valid_blocks() > 0).count() as u64;
        nat + sit_blocks(main_segments) + used + PACKS
    }
}

/// Blocks of the SIT for so many segments.
fn sit_blocks(segments: u32) -> u64 {
    u64::from(segments.div_ceil(sit::SEGMENTS_PER_BLOCK))
}
