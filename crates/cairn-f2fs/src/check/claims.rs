//! Which blocks of the main area the walk has found in use, and what for.

use std::sync::atomic::{AtomicU8, Ordering::Relaxed};

use cairn_base::memory::NoMemory;
use cairn_check::{BlockSet, Sparse};

use crate::format::bits;
use crate::format::block::is_zero;
use crate::format::layout::Layout;
use crate::format::sit::VALID_MAP_SIZE;
use crate::format::summary::ENTRIES;
use crate::format::units::{BLOCKS_PER_SEGMENT, BlockAddr, SegNo};

/// What a block is used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Use {
    /// File data or directory entries.
    Data,
    /// A node.
    Node,
}

impl Use {
    const fn bit(self) -> u8 {
        match self {
            Self::Data => 1,
            Self::Node => 2,
        }
    }
}

/// The blocks in use: one bit a block, where there are blocks in use, and one byte a segment.
pub(super) struct Claims {
    blocks: BlockSet,
    uses: Sparse<AtomicU8>,
}

impl Claims {
    /// No block.
    ///
    /// # Errors
    /// There is no memory for the tables.
    pub(super) fn new(layout: &Layout) -> Result<Self, NoMemory> {
        let uses = Sparse::new(layout.main_segments.into())?;
        Ok(Self { blocks: BlockSet::new(layout.main_blocks())?, uses })
    }

    /// Claims a block of the main area. False if it was claimed before.
    pub(super) fn claim(&self, layout: &Layout, addr: BlockAddr, what: Use) -> bool {
        let Some((segno, offset)) = layout.segment_of(addr) else { return false };
        if let Some(uses) = self.uses.at(segno.get().into()) {
            uses.fetch_or(what.bit(), Relaxed);
        }
        self.blocks.insert(first_block(segno).saturating_add(offset.into()))
    }

    /// Was the block claimed?
    pub(super) fn contains(&self, layout: &Layout, addr: BlockAddr) -> bool {
        layout.segment_of(addr).is_some_and(|(segno, offset)| {
            self.blocks.contains(first_block(segno).saturating_add(offset.into()))
        })
    }

    /// Was a block of the segment claimed for this use?
    pub(super) fn has(&self, segno: SegNo, what: Use) -> bool {
        let uses = self.uses.get(segno.get().into()).map_or(0, |uses| uses.load(Relaxed));
        uses & what.bit() != 0
    }

    /// The blocks of a segment that this map of the SIT has, and that nothing claims.
    pub(super) fn left(
        &self,
        layout: &Layout,
        segno: SegNo,
        map: &[u8; VALID_MAP_SIZE],
    ) -> Vec<BlockAddr> {
        let claimed = self.valid_map(segno);
        let left: Vec<u8> = map.iter().zip(claimed).map(|(map, claimed)| map & !claimed).collect();
        if is_zero(&left) {
            return Vec::new();
        }
        let is_left = |offset: &u16| bits::test(&left, usize::from(*offset));
        (0_u16..)
            .take(ENTRIES)
            .filter(is_left)
            .map(|offset| layout.address(segno, offset))
            .collect()
    }

    /// The claimed blocks of a segment, as the SIT has them.
    pub(super) fn valid_map(&self, segno: SegNo) -> [u8; VALID_MAP_SIZE] {
        let mut map = [0; VALID_MAP_SIZE];
        self.blocks.write_bitmap(first_block(segno), &mut map);
        // The set counts bits from the least significant one, the SIT from the most significant.
        map.map(u8::reverse_bits)
    }
}

fn first_block(segno: SegNo) -> u64 {
    u64::from(segno.get()).saturating_mul(BLOCKS_PER_SEGMENT.into())
}
