//! The checkpoint block: counters, the positions of the six logs, flags, and the version bitmaps of
//! NAT and SIT.
//!
//! A pack begins and ends with this block; the bitmaps may run on into `cp_payload` blocks behind
//! the first one (see [`super::pack`] for the pack's order). The checksum covers one block, never
//! the payload.

mod copy;
mod flags;
mod raw;
#[cfg(test)]
pub(crate) mod tests;

use cairn_base::units::as_index;
use zerocopy::{FromZeros, IntoBytes};

use super::bits;
use super::block::put;
use super::features::Features;
use super::layout::{Layout, Side};
use super::log::{AllocType, Log};
use super::units::{BLOCK_SIZE, BLOCKS_PER_SEGMENT, Nid, SegNo};
use crate::corrupt::Corrupt;

pub(crate) use copy::{is_damaged_copy, stored_version, with_usual_checksum};
pub use flags::CheckpointFlags;
pub(crate) use raw::CHECKSUM_AT;
pub(crate) use raw::LARGE_CHECKSUM_AT;
pub(crate) use raw::Stamp;
pub use raw::verify;
use raw::{BITMAP_AT, RawCheckpoint};

/// The position of a log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogPosition {
    /// Current segment.
    pub segno: SegNo,
    /// Next block in it, below 512.
    pub blkoff: u16,
    /// How it takes blocks.
    pub alloc: AllocType,
}

/// A decoded checkpoint. Both of its blocks in a pack have the same contents.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Checkpoint {
    /// Version. The valid pack with the later version is used.
    pub version: u64,
    /// Blocks that users may have.
    pub user_block_count: u64,
    /// Blocks in use: nodes, data, reserved (`NEW`) slots, headers of compressed clusters.
    pub valid_block_count: u64,
    /// Segments kept for cleaning.
    pub rsvd_segment_count: u32,
    /// Segments that users never get.
    pub overprov_segment_count: u32,
    /// Segments without valid blocks and without a log.
    pub free_segment_count: u32,
    /// Positions of the logs, by [`Log::index`]. On a volume with the feature `ro` only the hot
    /// ones are in use.
    pub logs: [LogPosition; Log::COUNT],
    /// Flags.
    pub flags: CheckpointFlags,
    /// Blocks of the pack.
    pub pack_total_blocks: u32,
    /// First data summary block in the pack.
    pub(crate) pack_start_sum: u32,
    /// Nodes in use (without nids 1 and 2).
    pub valid_node_count: u32,
    /// Inodes in use.
    pub valid_inode_count: u32,
    /// Hint where to look for a free nid.
    pub next_free_nid: Nid,
    /// Place of the checksum in the block.
    pub checksum_offset: u32,
    /// Total seconds that the volume was mounted.
    pub(crate) elapsed_time: u64,
    /// Which copy of each SIT block is current (bits from the most significant one; set: the
    /// second).
    pub(crate) sit_bitmap: Vec<u8>,
    /// Which copy of each NAT block is current.
    pub(crate) nat_bitmap: Vec<u8>,
    /// Checksum of the block, part of the version in node footers. [`Checkpoint::encode`] sets it.
    pub(crate) crc: u32,
}

/// Bytes of a pack's first block and its payload.
fn head_bytes(layout: &Layout) -> usize {
    as_index(layout.cp_payload).strict_add(1).strict_mul(BLOCK_SIZE)
}

/// Byte offsets of the SIT and the NAT bitmap from the pack's start.
fn bitmap_places(large: bool, layout: &Layout) -> (usize, usize) {
    const BEHIND_CHECKSUM: usize = BITMAP_AT + size_of::<u32>();
    if large {
        (BEHIND_CHECKSUM.strict_add(as_index(layout.nat_bitmap_bytes())), BEHIND_CHECKSUM)
    } else if layout.cp_payload > 0 {
        (BLOCK_SIZE, BITMAP_AT)
    } else {
        (BITMAP_AT, BITMAP_AT.strict_add(as_index(layout.sit_bitmap_bytes())))
    }
}

impl Checkpoint {
    /// Decodes a pack's first block with the payload blocks behind it; verifies the checksum and
    /// every field that the layout bounds. `place` is the address of the first block.
    ///
    /// # Errors
    /// The first impossible field.
    ///
    /// # Panics
    /// `blocks` is not `1 + cp_payload` blocks: the caller's bug.
    pub fn decode(blocks: &[u8], place: u64, layout: &Layout) -> Result<Self, Corrupt> {
        assert_eq!(blocks.len(), head_bytes(layout), "the pack's head and payload");
        let (first, _) = blocks.split_at(BLOCK_SIZE);
        let stamp = verify(first, place)?;
        let raw = RawCheckpoint::of(first);
        let flags = CheckpointFlags::from_bits_retain(raw.ckpt_flags.get());
        let (sit_bitmap, nat_bitmap) = bitmaps(blocks, raw, flags, layout)?;
        let checkpoint = Self {
            version: stamp.version,
            user_block_count: raw.user_block_count.get(),
            valid_block_count: raw.valid_block_count.get(),
            rsvd_segment_count: raw.rsvd_segment_count.get(),
            overprov_segment_count: raw.overprov_segment_count.get(),
            free_segment_count: raw.free_segment_count.get(),
            logs: logs(raw, layout)?,
            flags,
            pack_total_blocks: stamp.total_blocks,
            pack_start_sum: raw.cp_pack_start_sum.get(),
            valid_node_count: raw.valid_node_count.get(),
            valid_inode_count: raw.valid_inode_count.get(),
            next_free_nid: Nid(raw.next_free_nid.get()),
            checksum_offset: raw.checksum_offset.get(),
            elapsed_time: raw.elapsed_time.get(),
            sit_bitmap,
            nat_bitmap,
            crc: stamp.crc,
        };
        checkpoint.check_counts(layout)?;
        Ok(checkpoint)
    }

    fn check_counts(&self, layout: &Layout) -> Result<(), Corrupt> {
        let main = layout.main_segments;
        let check = |field, value: u64, fine, expected| {
            if fine { Ok(()) } else { Err(bad(field, value, expected)) }
        };
        let users = self.user_block_count;
        let read_only = layout.features.contains(Features::RO);
        // Only a volume that is never written has no reserved blocks.
        let room = layout.main_blocks().saturating_add(read_only.into());
        check("user_block_count", users, users > 0 && users < room, "the main area is no larger")?;
        let valid = self.valid_block_count;
        check("valid_block_count", valid, valid <= users, "there are fewer blocks for users")?;
        let (reserved, over) = (self.rsvd_segment_count, self.overprov_segment_count);
        check(
            "rsvd_segment_count",
            reserved.into(),
            read_only || (1..main).contains(&reserved),
            "it must be 1 or more",
        )?;
        check(
            "overprov_segment_count",
            over.into(),
            read_only || (1..main).contains(&over),
            "it must be 1 or more",
        )?;
        // mkfs.f2fs counts segments after the last whole zone as free.
        let most_free =
            main.saturating_add(layout.segs_per_sec.saturating_mul(layout.secs_per_zone));
        check(
            "free_segment_count",
            self.free_segment_count.into(),
            self.free_segment_count <= most_free,
            "there are fewer",
        )?;
        let nodes = self.valid_node_count;
        check(
            "valid_node_count",
            nodes.into(),
            u64::from(nodes) <= valid,
            "there are fewer valid blocks",
        )?;
        let inodes = self.valid_inode_count;
        check("valid_inode_count", inodes.into(), inodes <= nodes, "there are fewer nodes")
    }

    /// True if this checkpoint is later than `other` (versions wrap).
    #[must_use]
    pub(crate) const fn is_after(&self, other: &Self) -> bool {
        self.version.wrapping_sub(other.version).cast_signed() > 0
    }

    /// `cp_ver` of the footers of nodes written after this checkpoint and before the next.
    #[must_use]
    pub fn node_version(&self) -> u64 {
        if self.flags.contains(CheckpointFlags::CRC_RECOVERY) {
            self.version | u64::from(self.crc) << 32
        } else {
            self.version
        }
    }

    /// True if a node with this `cp_ver` was written after this checkpoint.
    #[must_use]
    pub(crate) fn is_node_version(&self, cp_ver: u64) -> bool {
        if self.flags.contains(CheckpointFlags::NOCRC_RECOVERY) {
            cp_ver & 0xffff_ffff == self.version & 0xffff_ffff
        } else {
            cp_ver == self.node_version()
        }
    }

    /// True if the pack contains node summaries.
    #[must_use]
    pub(crate) const fn has_node_summaries(&self) -> bool {
        self.flags.intersects(CheckpointFlags::UMOUNT.union(CheckpointFlags::FASTBOOT))
    }

    /// Position of a log.
    #[must_use]
    pub const fn log(&self, log: Log) -> LogPosition {
        *log.of(&self.logs)
    }

    /// Which copy of a logical NAT block (below [`Layout::nat_blocks`]) is current.
    #[must_use]
    #[cfg(test)]
    pub(crate) fn nat_side(&self, block: u32) -> Side {
        Side::of_bit(bits::test(&self.nat_bitmap, as_index(block)))
    }

    /// Which copy of a logical SIT block (below `Layout::sit_blocks`) is current.
    #[must_use]
    pub fn sit_side(&self, block: u32) -> Side {
        Side::of_bit(bits::test(&self.sit_bitmap, as_index(block)))
    }

    /// The first block and its payload blocks, one after the other, with the checksum; the pack's
    /// last block equals the first. Sets `Checkpoint::crc`, and [`Checkpoint::checksum_offset`]
    /// as the flags demand.
    ///
    /// # Panics
    /// The bitmaps do not have the layout's size.
    #[must_use]
    pub fn encode(&mut self, layout: &Layout) -> Vec<u8> {
        assert_eq!(self.sit_bitmap.len(), as_index(layout.sit_bitmap_bytes()), "SIT bitmap");
        assert_eq!(self.nat_bitmap.len(), as_index(layout.nat_bitmap_bytes()), "NAT bitmap");
        let large = self.flags.contains(CheckpointFlags::LARGE_NAT_BITMAP);
        if large {
            self.checksum_offset = LARGE_CHECKSUM_AT;
        } else if self.checksum_offset == 0 || self.checksum_offset == LARGE_CHECKSUM_AT {
            self.checksum_offset = CHECKSUM_AT;
        }
        let mut blocks = vec![0; head_bytes(layout)];
        let (sit_at, nat_at) = bitmap_places(large, layout);
        put(&mut blocks, 0, self.to_raw(layout).as_bytes());
        put(&mut blocks, sit_at, &self.sit_bitmap);
        put(&mut blocks, nat_at, &self.nat_bitmap);
        let (first, _) = blocks.split_at_mut(BLOCK_SIZE);
        self.crc = raw::seal(first, self.checksum_offset);
        blocks
    }

    fn to_raw(&self, layout: &Layout) -> RawCheckpoint {
        let mut raw = RawCheckpoint::new_zeroed();
        raw.checkpoint_ver = self.version.into();
        raw.user_block_count = self.user_block_count.into();
        raw.valid_block_count = self.valid_block_count.into();
        raw.rsvd_segment_count = self.rsvd_segment_count.into();
        raw.overprov_segment_count = self.overprov_segment_count.into();
        raw.free_segment_count = self.free_segment_count.into();
        raw.set_segnos(self.logs.map(|log| log.segno.get().into()));
        raw.set_blkoffs(self.logs.map(|log| log.blkoff.into()));
        raw.alloc_type.iter_mut().zip(&self.logs).for_each(|(to, log)| *to = log.alloc.raw());
        raw.ckpt_flags = self.flags.bits().into();
        raw.cp_pack_total_block_count = self.pack_total_blocks.into();
        raw.cp_pack_start_sum = self.pack_start_sum.into();
        raw.valid_node_count = self.valid_node_count.into();
        raw.valid_inode_count = self.valid_inode_count.into();
        raw.next_free_nid = self.next_free_nid.get().into();
        raw.sit_ver_bitmap_bytesize = layout.sit_bitmap_bytes().into();
        raw.nat_ver_bitmap_bytesize = layout.nat_bitmap_bytes().into();
        raw.checksum_offset = self.checksum_offset.into();
        raw.elapsed_time = self.elapsed_time.into();
        raw
    }
}

/// The version bitmaps of SIT and NAT.
fn bitmaps(
    blocks: &[u8],
    raw: &RawCheckpoint,
    flags: CheckpointFlags,
    layout: &Layout,
) -> Result<(Vec<u8>, Vec<u8>), Corrupt> {
    let large = flags.contains(CheckpointFlags::LARGE_NAT_BITMAP);
    let offset = raw.checksum_offset.get();
    if large && offset != LARGE_CHECKSUM_AT {
        return Err(bad(
            "checksum_offset",
            offset.into(),
            "with a large NAT bitmap only 192 is possible",
        ));
    }
    let (sit_at, nat_at) = bitmap_places(large, layout);
    let take = |field, at: usize, stored: u32, right: u32| {
        if stored != right {
            return Err(bad(field, stored.into(), "the area's size gives another"));
        }
        let end = at.saturating_add(as_index(stored));
        let bytes = blocks
            .get(at..end)
            .ok_or_else(|| bad(field, stored.into(), "the pack has no room for it"))?;
        // In the first block, bitmaps before the checksum must end before it.
        if !large && at < BLOCK_SIZE && end > as_index(offset) {
            return Err(bad(field, stored.into(), "it runs into the checksum"));
        }
        Ok(bytes.to_vec())
    };
    let sit = take(
        "sit_ver_bitmap_bytesize",
        sit_at,
        raw.sit_ver_bitmap_bytesize.get(),
        layout.sit_bitmap_bytes(),
    )?;
    let nat = take(
        "nat_ver_bitmap_bytesize",
        nat_at,
        raw.nat_ver_bitmap_bytesize.get(),
        layout.nat_bitmap_bytes(),
    )?;
    Ok((sit, nat))
}

/// The positions of the logs, by [`Log::index`].
fn logs(raw: &RawCheckpoint, layout: &Layout) -> Result<[LogPosition; Log::COUNT], Corrupt> {
    let (segnos, blkoffs) = (raw.segnos(), raw.blkoffs());
    let mut logs = [LogPosition::default(); Log::COUNT];
    let mut places: Vec<SegNo> = Vec::new();
    let read_only = layout.features.contains(Features::RO);
    for ((log, position), alloc) in Log::ALL.into_iter().zip(&mut logs).zip(raw.alloc_type) {
        let (segno, blkoff) = (SegNo(log.of(&segnos).get()), log.of(&blkoffs).get());
        // A volume that is never written has only two logs; the other fields have no meaning.
        let in_use = !read_only || matches!(log, Log::HotData | Log::HotNode);
        if in_use && segno.get() >= layout.main_segments {
            return Err(bad("cur_segno", segno.get().into(), "there is no such segment"));
        }
        if in_use && u32::from(blkoff) >= BLOCKS_PER_SEGMENT {
            return Err(bad("cur_blkoff", blkoff.into(), "a segment has 512 blocks"));
        }
        if in_use && places.contains(&segno) {
            return Err(bad("cur_segno", segno.get().into(), "another log is in the same segment"));
        }
        places.extend(in_use.then_some(segno));
        *position = LogPosition { segno, blkoff, alloc: AllocType::from_raw(alloc) };
    }
    Ok(logs)
}

fn bad(field: &'static str, value: u64, expected: &'static str) -> Corrupt {
    Corrupt::Checkpoint { field, value, expected }
}
