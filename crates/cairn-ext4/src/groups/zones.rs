//! Which blocks are the filesystem's own: superblocks, descriptors, bitmaps, inode tables.
//!
//! Built once; no locks. Used to keep files from owning metadata, and to compute implied block bitmaps.

use cairn_base::{Pba, bitmap};

use crate::corrupt::Corrupt;
use crate::format::group_desc::GroupDesc;
use crate::format::layout::Layout;

/// Sorted, disjoint, merged ranges of metadata.
#[derive(Debug)]
pub struct Zones {
    /// First block and the block behind the last.
    ranges: Vec<(u64, u64)>,
}

impl Zones {
    /// Collects the zones of all groups.
    ///
    /// # Errors
    /// Two of them overlap.
    pub fn new(layout: &Layout, descs: &[GroupDesc]) -> Result<Self, Corrupt> {
        let mut parts = Vec::with_capacity(descs.len() * 3);
        for (group, desc) in (0..).zip(descs) {
            let base = u64::from(layout.base_metadata(group));
            let first = layout.group_first_block(group).get();
            if base > 0 {
                parts.push((first, (first + base).min(layout.blocks_count), group));
            }
            for (pba, count) in
                [(desc.block_bitmap, 1), (desc.inode_bitmap, 1), (desc.inode_table, layout.inode_table_blocks())]
            {
                parts.push((pba.get(), pba.get() + u64::from(count), group));
            }
        }
        parts.sort_unstable();
        let mut ranges: Vec<(u64, u64)> = Vec::new();
        for (start, end, group) in parts {
            match ranges.last_mut() {
                Some(last) if start < last.1 => {
                    let expected = "inside other metadata";
                    return Err(Corrupt::Group { group, field: "bitmap or table block", value: start, expected });
                }
                Some(last) if start == last.1 => last.1 = end,
                _ => ranges.push((start, end)),
            }
        }
        Ok(Self { ranges })
    }

    /// True if any block of the range is metadata.
    #[must_use]
    pub fn overlap(&self, start: Pba, count: u64) -> bool {
        let end = start.get().saturating_add(count);
        let behind = self.ranges.partition_point(|range| range.1 <= start.get());
        self.ranges.get(behind).is_some_and(|range| range.0 < end)
    }

    /// The block bitmap of a group nothing was ever allocated in: its metadata, and bits beyond its end.
    #[must_use]
    pub fn initial_block_bitmap(&self, layout: &Layout, group: u32) -> Vec<u8> {
        let mut bits = vec![0; layout.block_size as usize];
        let first = layout.group_first_block(group).get();
        let behind = first + u64::from(layout.group_blocks(group));
        let from = self.ranges.partition_point(|range| range.1 <= first);
        for range in self.ranges.iter().skip(from).take_while(|range| range.0 < behind) {
            let start = (range.0.max(first) - first) >> layout.cluster_bits;
            let end = (range.1.min(behind) - first).div_ceil(1 << layout.cluster_bits);
            // Both are below the blocks of a group.
            bitmap::set_range(&mut bits, start as usize, (end - start) as usize);
        }
        pad(&mut bits, layout.group_clusters(group));
        bits
    }
}

/// Sets the bits from `bits` to the end of the block: they stand for nothing.
pub fn pad(map: &mut [u8], bits: u32) {
    let total = map.len() * 8;
    let bits = (bits as usize).min(total);
    bitmap::set_range(map, bits, total - bits);
}
