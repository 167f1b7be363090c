//! Where everything lies: the validated geometry of a volume, and the arithmetic of its addresses.
//!
//! Areas follow each other from `segment0`: checkpoint (2 segments), SIT, NAT, SSA, main. All are
//! whole segments.

use cairn_base::Pba;
use cairn_base::units::{as_index, as_u64};

use super::features::Features;
use super::sit;
use super::superblock::Superblock;
use super::units::{
    BLOCK_BYTES, BLOCKS_PER_SEGMENT, BlockAddr, NIDS_PER_BLOCK, Nid, ORPHANS_PER_BLOCK,
    SEGMENT_BYTES, SegNo,
};
use crate::corrupt::Corrupt;

mod side;

pub use side::Side;

/// Most segments a volume may have.
const MAX_SEGMENTS: u32 = 8_388_608;
/// Blocks of a pack's segment that the payload cannot have: two checkpoint blocks, six summaries.
const PACK_FIXED: u32 = 2 + 6;
/// All blocks of a segment.
const WHOLE_SEGMENT: u16 = 1 << BLOCKS_PER_SEGMENT.ilog2();
const BPS: u64 = as_u64(as_index(BLOCKS_PER_SEGMENT));

/// Validated geometry. It does not change while a volume is open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Feature bits.
    pub(crate) features: Features,
    /// Identity, the seed of inode checksums.
    pub(crate) uuid: [u8; 16],
    /// First block of the checkpoint area.
    pub cp: u32,
    /// First block of the SIT.
    pub(crate) sit: u32,
    /// First block of the NAT.
    pub(crate) nat: u32,
    /// First block of the summary area.
    pub ssa: u32,
    /// First block of the main area.
    pub main: u32,
    /// Segments of both SIT copies.
    pub(crate) sit_segments: u32,
    /// Segments of both NAT copies.
    pub(crate) nat_segments: u32,
    /// Segments of the summary area.
    pub(crate) ssa_segments: u32,
    /// Segments of the main area.
    pub main_segments: u32,
    /// All segments.
    pub(crate) total_segments: u32,
    /// Segments per section: the unit of cleaning.
    pub segs_per_sec: u32,
    /// Sections per zone.
    pub(crate) secs_per_zone: u32,
    /// Sections of the main area.
    pub(crate) sections: u32,
    /// Blocks at the end of each section that cannot be written, because a zone has less
    /// capacity than size. The superblock does not have the number: it is 0 until the device was
    /// asked.
    pub unusable_per_section: u32,
    /// Blocks of the volume.
    pub(crate) block_count: u64,
    /// Blocks of a checkpoint pack that continue the bitmaps of its first block.
    pub cp_payload: u32,
    /// Hidden quota inodes: user, group, project (0: none).
    pub(crate) quota_inodes: [Nid; 3],
}

impl Layout {
    /// Checks the superblock's geometry against itself and the device's size in bytes.
    ///
    /// # Errors
    /// The first impossible field.
    pub fn new(superblock: &Superblock, device_bytes: u64) -> Result<Self, Corrupt> {
        let layout = Self {
            features: superblock.features,
            uuid: superblock.uuid,
            cp: superblock.cp_blkaddr.get(),
            sit: superblock.sit_blkaddr.get(),
            nat: superblock.nat_blkaddr.get(),
            ssa: superblock.ssa_blkaddr.get(),
            main: superblock.main_blkaddr.get(),
            sit_segments: superblock.segment_count_sit,
            nat_segments: superblock.segment_count_nat,
            ssa_segments: superblock.segment_count_ssa,
            main_segments: superblock.segment_count_main,
            total_segments: superblock.segment_count,
            segs_per_sec: superblock.segs_per_sec,
            secs_per_zone: superblock.secs_per_zone,
            sections: superblock.section_count,
            unusable_per_section: 0,
            block_count: superblock.block_count,
            cp_payload: superblock.cp_payload,
            quota_inodes: superblock.qf_ino,
        };
        layout.check_counts(superblock)?;
        layout.check_areas(superblock)?;
        layout.check_device(superblock, device_bytes)?;
        Ok(layout)
    }

    fn check_counts(&self, superblock: &Superblock) -> Result<(), Corrupt> {
        let total = self.total_segments;
        check(
            "segment_count",
            total,
            (9..=MAX_SEGMENTS).contains(&total),
            "it must be 9 to 8388608",
        )?;
        let within = u64::from(total) <= self.block_count / BPS;
        check("segment_count", total, within, "block_count has room for fewer")?;
        let main = self.main_segments;
        check(
            "section_count",
            self.sections,
            (1..=main).contains(&self.sections),
            "it must be 1 to segment_count_main",
        )?;
        let exact = self.sections.checked_mul(self.segs_per_sec) == Some(main);
        check(
            "segs_per_sec",
            self.segs_per_sec,
            exact,
            "times section_count it must give segment_count_main",
        )?;
        let zone = self.secs_per_zone;
        check(
            "secs_per_zone",
            zone,
            (1..=self.sections).contains(&zone),
            "it must be 1 to section_count",
        )?;
        let ckpt = superblock.segment_count_ckpt;
        check("segment_count_ckpt", ckpt, ckpt == 2, "only 2 is possible")?;
        let sit = self.sit_segments;
        check(
            "segment_count_sit",
            sit,
            sit >= 2 && sit.is_multiple_of(2),
            "it must be even and positive",
        )?;
        let nat = self.nat_segments;
        check(
            "segment_count_nat",
            nat,
            nat >= 2 && nat.is_multiple_of(2),
            "it must be even and positive",
        )?;
        let payload = self.cp_payload;
        check(
            "cp_payload",
            payload,
            payload < BLOCKS_PER_SEGMENT - PACK_FIXED,
            "a pack has room for 503",
        )?;
        // Every segment needs its SIT entry and its summary block.
        let entries = blocks_of(sit / 2).saturating_mul(as_u64(sit::ENTRIES_PER_BLOCK));
        check(
            "segment_count_sit",
            sit,
            entries >= u64::from(main),
            "too few for segment_count_main",
        )?;
        // A volume that is never written is never cleaned: mkfs gives it no summaries.
        let summaries = blocks_of(self.ssa_segments);
        let enough = summaries >= u64::from(main) || self.features.contains(Features::RO);
        check("segment_count_ssa", self.ssa_segments, enough, "too few for segment_count_main")
    }

    fn check_areas(&self, superblock: &Superblock) -> Result<(), Corrupt> {
        let start = superblock.segment0_blkaddr.get();
        check(
            "cp_blkaddr",
            self.cp,
            self.cp == start && start >= 2,
            "it must be segment0_blkaddr, after the superblocks",
        )?;
        let areas = [
            ("sit_blkaddr", self.sit, self.cp, 2),
            ("nat_blkaddr", self.nat, self.sit, self.sit_segments),
            ("ssa_blkaddr", self.ssa, self.nat, self.nat_segments),
            ("main_blkaddr", self.main, self.ssa, self.ssa_segments),
        ];
        for (field, at, before, segments) in areas {
            let right = end_of(before, segments);
            check(field, at, u64::from(at) == right, "the area before it ends elsewhere")?;
        }
        let main_end = end_of(self.main, self.main_segments);
        let end = end_of(start, self.total_segments);
        let fits = main_end <= end
            && main_end <= self.block_count
            && main_end <= u64::from(BlockAddr::COMPRESS.get());
        check(
            "segment_count_main",
            self.main_segments,
            fits,
            "the main area ends beyond the volume",
        )
    }

    fn check_device(&self, superblock: &Superblock, device_bytes: u64) -> Result<(), Corrupt> {
        let parts = superblock.device_lengths();
        if parts.len() > 1 {
            let bytes: u64 = parts.iter().sum();
            let segments = bytes.saturating_sub(BlockAddr(self.cp).bytes()) / SEGMENT_BYTES;
            if segments < self.total_segments.into() {
                let expected = "the devices have fewer segments than the volume";
                return Err(Corrupt::Superblock { field: "devs", value: segments, expected });
            }
        }
        let main_end = end_of(self.main, self.main_segments);
        let volume = main_end.saturating_mul(BLOCK_BYTES);
        if volume > device_bytes {
            return Err(Corrupt::TooShort { volume, device: device_bytes });
        }
        Ok(())
    }

    // --- main area ---

    /// Blocks of the main area.
    #[must_use]
    pub fn main_blocks(&self) -> u64 {
        blocks_of(self.main_segments)
    }

    /// True if the address lies in the main area (so it is none of the special values).
    #[must_use]
    pub fn in_main(&self, addr: BlockAddr) -> bool {
        self.block_of_main(addr).is_some()
    }

    /// A block of the main area, counted from the area's start.
    fn block_of_main(&self, addr: BlockAddr) -> Option<u32> {
        let block = addr.get().checked_sub(self.main)?;
        (u64::from(block) < self.main_blocks()).then_some(block)
    }

    /// Segment and block within it of an address in the main area.
    #[must_use]
    pub(crate) fn segment_of(&self, addr: BlockAddr) -> Option<(SegNo, u16)> {
        let block = self.block_of_main(addr)?;
        let offset = u16::try_from(block % BLOCKS_PER_SEGMENT).ok()?;
        Some((SegNo(block / BLOCKS_PER_SEGMENT), offset))
    }

    /// Address of block `offset` (below 512) of a segment of the main area.
    ///
    /// # Panics
    /// There is no such block: the caller's bug.
    #[must_use]
    pub fn address(&self, segno: SegNo, offset: u16) -> BlockAddr {
        assert!(
            segno.get() < self.main_segments && u32::from(offset) < BLOCKS_PER_SEGMENT,
            "{segno}/{offset}"
        );
        let block = segno.get().strict_mul(BLOCKS_PER_SEGMENT).strict_add(offset.into());
        BlockAddr(self.main.strict_add(block))
    }

    /// Section of a segment.
    #[must_use]
    pub(crate) const fn section_of(&self, segno: SegNo) -> u32 {
        segno.get().strict_div(self.segs_per_sec)
    }

    /// First segment of a section.
    #[must_use]
    pub(crate) const fn first_segment(&self, section: u32) -> SegNo {
        SegNo(section.strict_mul(self.segs_per_sec))
    }

    /// Blocks of a section that can be written: the first ones.
    #[must_use]
    pub(crate) const fn section_capacity(&self) -> u32 {
        self.segs_per_sec.strict_mul(BLOCKS_PER_SEGMENT).strict_sub(self.unusable_per_section)
    }

    /// Segments of a section that have blocks that can be written: the first ones.
    #[must_use]
    pub(crate) const fn usable_segments(&self) -> u32 {
        self.section_capacity().div_ceil(BLOCKS_PER_SEGMENT)
    }

    /// Blocks of a segment that can be written: the first ones.
    #[must_use]
    pub fn usable_blocks(&self, segno: SegNo) -> u16 {
        let before = segno.get().strict_rem(self.segs_per_sec).strict_mul(BLOCKS_PER_SEGMENT);
        let usable = self.section_capacity().saturating_sub(before);
        u16::try_from(usable).map_or(WHOLE_SEGMENT, |usable| usable.min(WHOLE_SEGMENT))
    }

    /// The summary block of a segment in the summary area.
    #[must_use]
    pub(crate) fn summary_address(&self, segno: SegNo) -> Pba {
        block_at(self.ssa, segno.get().into())
    }

    // --- NAT ---

    /// Logical blocks of the NAT: half of what the area holds.
    #[must_use]
    pub(crate) const fn nat_blocks(&self) -> u32 {
        (self.nat_segments / 2).strict_mul(BLOCKS_PER_SEGMENT)
    }

    /// Bytes of the NAT's version bitmap.
    #[must_use]
    pub(crate) const fn nat_bitmap_bytes(&self) -> u32 {
        self.nat_blocks() / 8
    }

    /// One more than the highest nid.
    #[must_use]
    pub(crate) const fn max_nid(&self) -> u32 {
        self.nat_blocks().saturating_mul(NIDS_PER_BLOCK)
    }

    /// True if the NAT has an entry for it and it is not nid 0.
    #[must_use]
    pub const fn is_nid(&self, nid: Nid) -> bool {
        nid.get() != 0 && nid.get() < self.max_nid()
    }

    /// Logical NAT block that holds an nid's entry, and the entry's index in it.
    #[must_use]
    pub(crate) const fn nat_place(nid: Nid) -> (u32, usize) {
        (nid.get() / NIDS_PER_BLOCK, as_index(nid.get() % NIDS_PER_BLOCK))
    }

    /// The first nid that has its entry in a logical NAT block.
    #[must_use]
    pub(crate) const fn first_nid(block: u32) -> Nid {
        Nid(block.strict_mul(NIDS_PER_BLOCK))
    }

    /// Address of one of the copies of a logical NAT block: the copies alternate segment by
    /// segment.
    #[must_use]
    pub fn nat_address(&self, block: u32, side: Side) -> Pba {
        let others = blocks_of(block / BLOCKS_PER_SEGMENT).strict_add(side.start(BPS));
        block_at(self.nat, u64::from(block).strict_add(others))
    }

    // --- SIT ---

    /// Logical blocks of the SIT: half of what the area holds.
    #[must_use]
    pub(crate) const fn sit_blocks(&self) -> u32 {
        (self.sit_segments / 2).strict_mul(BLOCKS_PER_SEGMENT)
    }

    /// Bytes of the SIT's version bitmap.
    #[must_use]
    pub(crate) const fn sit_bitmap_bytes(&self) -> u32 {
        self.sit_blocks() / 8
    }

    /// SIT blocks that hold entries of segments that exist.
    #[must_use]
    pub(crate) const fn sit_blocks_used(&self) -> u32 {
        self.main_segments.div_ceil(sit::SEGMENTS_PER_BLOCK)
    }

    /// Logical SIT block that holds a segment's entry, and the entry's index in it.
    #[must_use]
    pub const fn sit_place(segno: SegNo) -> (u32, usize) {
        (segno.get() / sit::SEGMENTS_PER_BLOCK, as_index(segno.get() % sit::SEGMENTS_PER_BLOCK))
    }

    /// Address of one of the copies of a logical SIT block: all first copies, then all second ones.
    #[must_use]
    pub fn sit_address(&self, block: u32, side: Side) -> Pba {
        block_at(self.sit, side.start(self.sit_blocks().into()).strict_add(block.into()))
    }

    // --- checkpoint ---

    /// First block of a checkpoint pack.
    #[must_use]
    pub fn pack_start(&self, pack: Side) -> Pba {
        block_at(self.cp, pack.start(BPS))
    }

    /// Most orphans a checkpoint can name.
    #[must_use]
    pub(crate) const fn max_orphans(&self) -> u32 {
        const MOST_BLOCKS: u32 = BLOCKS_PER_SEGMENT - PACK_FIXED;
        MOST_BLOCKS.strict_sub(self.cp_payload).strict_mul(ORPHANS_PER_BLOCK)
    }
}

/// The number of blocks in segments.
fn blocks_of(segments: u32) -> u64 {
    u64::from(segments).strict_mul(BPS)
}

/// The block behind an area.
fn end_of(start: u32, segments: u32) -> u64 {
    u64::from(start).strict_add(blocks_of(segments))
}

/// A block of an area, counted from its start.
fn block_at(start: u32, block: u64) -> Pba {
    Pba(u64::from(start).strict_add(block))
}

fn check(
    field: &'static str,
    value: u32,
    fine: bool,
    expected: &'static str,
) -> Result<(), Corrupt> {
    if fine { Ok(()) } else { Err(Corrupt::Superblock { field, value: value.into(), expected }) }
}

#[cfg(test)]
pub(crate) mod tests;
