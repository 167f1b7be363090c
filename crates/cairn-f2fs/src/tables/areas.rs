//! The areas of a volume on one device, as they are and as they could be.

use crate::error::{Error, Result};
use crate::format::units::{BLOCK_BYTES, BLOCKS_PER_SEGMENT, BlockAddr};
use crate::format::{CheckpointFlags, Layout, Superblock, sit};
use crate::mkfs::{Geometry, MkfsOptions};

/// Segments of the two checkpoint packs.
const CKPT_SEGMENTS: u32 = 2;

/// Where a volume's areas are. Counts are segments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Areas {
    /// The first block of the checkpoint area.
    pub(crate) start: u32,
    /// Segments of both SIT copies.
    pub(crate) sit: u32,
    /// Segments of both NAT copies.
    pub(crate) nat: u32,
    /// Segments of the summary area.
    pub(crate) ssa: u32,
    /// Segments of the main area.
    pub(crate) main_segments: u32,
    /// Blocks that continue a checkpoint's bitmaps.
    pub(crate) cp_payload: u32,
}

impl Areas {
    /// Those of a volume.
    pub(crate) const fn of(layout: &Layout) -> Self {
        Self {
            start: layout.cp,
            sit: layout.sit_segments,
            nat: layout.nat_segments,
            ssa: layout.ssa_segments,
            main_segments: layout.main_segments,
            cp_payload: layout.cp_payload,
        }
    }

    /// Those of a new volume of this size, with sections and bitmaps as this one has them.
    ///
    /// # Errors
    /// There is no volume of this size.
    pub(crate) fn of_new(layout: &Layout, flags: CheckpointFlags, bytes: u64) -> Result<Self> {
        let options = MkfsOptions {
            segments_per_section: layout.segs_per_sec,
            sections_per_zone: layout.secs_per_zone,
            large_nat_bitmap: flags.contains(CheckpointFlags::LARGE_NAT_BITMAP),
            ..MkfsOptions::default()
        };
        let geometry = Geometry::of_bytes(bytes, &options)
            .map_err(|error| Error::Refused(error.to_string()))?;
        Ok(Self {
            start: geometry.segment0,
            sit: geometry.sit_segments,
            nat: geometry.nat_segments,
            ssa: geometry.ssa_segments,
            main_segments: geometry.main_segments,
            cp_payload: geometry.cp_payload,
        })
    }

    /// Segments before the main area.
    pub(crate) const fn metadata(&self) -> u32 {
        CKPT_SEGMENTS + self.sit + self.nat + self.ssa
    }

    /// The first block of the main area.
    pub(crate) fn main(&self) -> u64 {
        u64::from(self.start) + blocks(self.metadata())
    }

    /// The block behind the main area.
    pub(crate) fn end(&self) -> u64 {
        self.main() + blocks(self.main_segments)
    }

    /// Most segments that SIT and summary area have room for.
    pub(crate) fn most_segments(&self) -> u32 {
        let entries = blocks(self.sit / 2) * u64::from(sit::SEGMENTS_PER_BLOCK);
        u32::try_from(entries.min(blocks(self.ssa))).unwrap_or(u32::MAX)
    }

    /// The superblock of a volume with these areas and this number of blocks.
    pub(crate) fn put(&self, superblock: &Superblock, block_count: u64) -> Superblock {
        let at = |segments: u32| {
            let block = u64::from(self.start) + blocks(segments);
            BlockAddr(u32::try_from(block).expect("an area begins below 16 TiB"))
        };
        let sit = CKPT_SEGMENTS + self.sit;
        Superblock {
            block_count,
            section_count: self.main_segments / superblock.segs_per_sec,
            segment_count: self.metadata() + self.main_segments,
            segment_count_ckpt: CKPT_SEGMENTS,
            segment_count_sit: self.sit,
            segment_count_nat: self.nat,
            segment_count_ssa: self.ssa,
            segment_count_main: self.main_segments,
            segment0_blkaddr: at(0),
            cp_blkaddr: at(0),
            sit_blkaddr: at(CKPT_SEGMENTS),
            nat_blkaddr: at(sit),
            ssa_blkaddr: at(sit + self.nat),
            main_blkaddr: at(self.metadata()),
            cp_payload: self.cp_payload,
            ..superblock.clone()
        }
    }
}

/// Blocks of segments.
pub(crate) fn blocks(segments: u32) -> u64 {
    u64::from(segments) * u64::from(BLOCKS_PER_SEGMENT)
}

/// Whole blocks of this many bytes.
pub(crate) const fn whole_blocks(bytes: u64) -> u64 {
    bytes / BLOCK_BYTES
}
