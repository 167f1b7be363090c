//! The blocks of the volume's structures: superblocks, descriptors, bitmaps, inode tables and the
//! journal (Linux's `block_validity`).
//!
//! They are collected once and need no lock. No file may have one of these blocks: maps are checked
//! when they are read, free maps when they are built, and freed blocks when they are freed. The
//! bitmaps of uninitialised groups follow from them.

use cairn_base::units::as_index;
use cairn_base::{FileBlock, Pba, bitmap};

use crate::corrupt::Corrupt;
use crate::format::extent::SystemBlocks;
use crate::format::group_desc::GroupDesc;
use crate::format::layout::Layout;

/// Sorted, disjoint, merged ranges of metadata.
#[derive(Debug)]
pub(crate) struct Zones {
    /// First block and block after the last one, without the journal.
    ranges: Vec<(u64, u64)>,
    /// The same with the journal.
    all: Vec<(u64, u64)>,
}

impl Zones {
    /// Collects the blocks of all groups.
    ///
    /// # Errors
    /// Two structures overlap.
    pub(crate) fn new(layout: &Layout, descs: &[GroupDesc]) -> Result<Self, Corrupt> {
        let mut parts = Vec::with_capacity(descs.len().saturating_mul(3));
        for (group, desc) in (0..).zip(descs) {
            let base = u64::from(layout.base_metadata(group));
            let first = layout.group_first_block(group).get();
            if base > 0 {
                parts.push((first, first.saturating_add(base).min(layout.blocks_count), group));
            }
            for (pba, count) in [
                (desc.block_bitmap, 1),
                (desc.inode_bitmap, 1),
                (desc.inode_table, layout.inode_table_blocks()),
            ] {
                parts.push((pba.get(), pba.get().saturating_add(count.into()), group));
            }
        }
        parts.sort_unstable();
        let mut ranges: Vec<(u64, u64)> = Vec::new();
        for (start, end, group) in parts {
            match ranges.last_mut() {
                Some(last) if start < last.1 => {
                    let problem = "inside other metadata";
                    return Err(Corrupt::Group {
                        group,
                        field: "bitmap or table block",
                        value: start,
                        problem,
                    });
                }
                Some(last) if start == last.1 => last.1 = end,
                _ => ranges.push((start, end)),
            }
        }
        let all = ranges.clone();
        Ok(Self { ranges, all })
    }

    /// Adds the journal's blocks.
    ///
    /// # Errors
    /// One of them belongs to another structure, or occurs twice.
    pub(crate) fn protect(&mut self, journal: &[(FileBlock, Pba, u64)]) -> Result<(), Corrupt> {
        let mut all: Vec<(u64, u64)> = journal
            .iter()
            .map(|(_, start, len)| (start.get(), start.get().saturating_add(*len)))
            .collect();
        all.extend(&self.ranges);
        all.sort_unstable();
        for pair in all.windows(2) {
            if let [(_, end), (start, _)] = pair
                && start < end
            {
                let problem = "a block of the journal inside other metadata";
                return Err(Corrupt::Superblock {
                    field: "s_journal_inum",
                    value: *start,
                    problem,
                });
            }
        }
        self.all = all;
        Ok(())
    }

    /// All blocks.
    #[must_use]
    pub(crate) fn all(&self) -> SystemBlocks<'_> {
        SystemBlocks(&self.all)
    }

    /// All blocks but the journal's.
    #[must_use]
    pub(crate) fn structures(&self) -> SystemBlocks<'_> {
        SystemBlocks(&self.ranges)
    }

    /// Checks that a group's block bitmap has the structures in use.
    ///
    /// # Errors
    /// One of their bits is clear.
    pub(crate) fn check_in_use(
        &self,
        layout: &Layout,
        group: u32,
        bits: &[u8],
    ) -> Result<(), Corrupt> {
        for (start, end) in self.bits_of(layout, group, &self.all) {
            if let Some(free) = bitmap::next_clear(bits, start, end) {
                // It is less than the blocks of a group.
                let bit = u32::try_from(free).unwrap_or(u32::MAX);
                return Err(Corrupt::Bitmap {
                    what: "block",
                    group,
                    bit,
                    state: "is free, but belongs to the volume's structures",
                });
            }
        }
        Ok(())
    }

    /// The bits of the ranges in a group's bitmap.
    fn bits_of<'r>(
        &self,
        layout: &'r Layout,
        group: u32,
        ranges: &'r [(u64, u64)],
    ) -> impl Iterator<Item = (usize, usize)> + use<'r> {
        let first = layout.group_first_block(group).get();
        let behind = first.saturating_add(layout.group_blocks(group).into());
        let from = ranges.partition_point(|range| range.1 <= first);
        ranges.iter().skip(from).take_while(move |range| range.0 < behind).map(move |range| {
            let cluster = 1_u64.checked_shl(layout.cluster_bits).unwrap_or(u64::MAX);
            let start = range.0.saturating_sub(first).checked_div(cluster).unwrap_or(0);
            let end = range.1.min(behind).saturating_sub(first).div_ceil(cluster);
            // Both are less than the blocks of a group.
            let bit = |bit: u64| usize::try_from(bit).unwrap_or(usize::MAX);
            (bit(start), bit(end))
        })
    }

    /// The block bitmap of a group without an allocation: the structures, and the bits beyond the
    /// end.
    #[must_use]
    pub(crate) fn initial_block_bitmap(&self, layout: &Layout, group: u32) -> Vec<u8> {
        let mut bits = vec![0; as_index(layout.block_size)];
        for (start, end) in self.bits_of(layout, group, &self.ranges) {
            bitmap::set_range(&mut bits, start, end.saturating_sub(start));
        }
        pad(&mut bits, layout.group_clusters(group));
        bits
    }
}

/// Sets the bits from `bits` to the end of the block, which belong to no block.
pub(crate) fn pad(map: &mut [u8], bits: u32) {
    let total = map.len().saturating_mul(8);
    let bits = as_index(bits).min(total);
    bitmap::set_range(map, bits, total.saturating_sub(bits));
}
