//! A checkpoint block's bytes and their checksum.

use cairn_base::sabotage::Safeguard;
use cairn_base::units::as_index;
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::corrupt::Corrupt;
use crate::format::block::view;
use crate::format::checksum::{MAGIC, crc32};
use crate::format::log::Log;
use crate::format::units::BLOCK_SIZE;

/// Start of the bitmaps without `LARGE_NAT_BITMAP`, and the lowest place of the checksum.
pub(super) const BITMAP_AT: usize = as_index(LARGE_CHECKSUM_AT);
/// Usual place of the checksum.
pub(crate) const CHECKSUM_AT: u32 = 4092;
/// Place of the checksum with `LARGE_NAT_BITMAP`.
pub(crate) const LARGE_CHECKSUM_AT: u32 = 192;

#[derive(Clone, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(super) struct RawCheckpoint {
    pub(super) checkpoint_ver: U64,
    pub(super) user_block_count: U64,
    pub(super) valid_block_count: U64,
    pub(super) rsvd_segment_count: U32,
    pub(super) overprov_segment_count: U32,
    pub(super) free_segment_count: U32,
    pub(super) cur_node_segno: [U32; 8],
    pub(super) cur_node_blkoff: [U16; 8],
    pub(super) cur_data_segno: [U32; 8],
    pub(super) cur_data_blkoff: [U16; 8],
    pub(super) ckpt_flags: U32,
    pub(super) cp_pack_total_block_count: U32,
    pub(super) cp_pack_start_sum: U32,
    pub(super) valid_node_count: U32,
    pub(super) valid_inode_count: U32,
    pub(super) next_free_nid: U32,
    pub(super) sit_ver_bitmap_bytesize: U32,
    pub(super) nat_ver_bitmap_bytesize: U32,
    pub(super) checksum_offset: U32,
    pub(super) elapsed_time: U64,
    pub(super) alloc_type: [u8; 16],
}

const _: () = assert!(size_of::<RawCheckpoint>() == BITMAP_AT);
const _: () = assert!(std::mem::offset_of!(RawCheckpoint, ckpt_flags) == 132);

/// A pack's first or last block. Bitmaps and the checksum follow the fixed fields.
#[derive(FromBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawCheckpointBlock {
    head: RawCheckpoint,
    rest: [u8; BLOCK_SIZE - BITMAP_AT],
}

impl RawCheckpoint {
    /// The fixed fields of a whole block.
    pub(super) fn of(block: &[u8]) -> &Self {
        &view::<RawCheckpointBlock>(block).head
    }

    /// `cur_data_segno` and `cur_node_segno`.
    pub(super) const fn segnos(&self) -> [U32; Log::COUNT] {
        by_log(&self.cur_data_segno, &self.cur_node_segno)
    }

    /// `cur_data_blkoff` and `cur_node_blkoff`.
    pub(super) const fn blkoffs(&self) -> [U16; Log::COUNT] {
        by_log(&self.cur_data_blkoff, &self.cur_node_blkoff)
    }

    /// Sets `cur_data_segno` and `cur_node_segno`. Fields of logs that do not exist get the value
    /// for no segment.
    pub(super) fn set_segnos(&mut self, segnos: [U32; Log::COUNT]) {
        (self.cur_data_segno, self.cur_node_segno) = by_kind(segnos, u32::MAX.into());
    }

    /// Sets `cur_data_blkoff` and `cur_node_blkoff`.
    pub(super) fn set_blkoffs(&mut self, blkoffs: [U16; Log::COUNT]) {
        (self.cur_data_blkoff, self.cur_node_blkoff) = by_kind(blkoffs, 0.into());
    }
}

/// The values of the logs that exist, in the order of [`Log::ALL`].
const fn by_log<T: Copy>(data: &[T; 8], node: &[T; 8]) -> [T; Log::COUNT] {
    [data[0], data[1], data[2], node[0], node[1], node[2]]
}

/// The reverse of [`by_log`], with `none` for the logs that do not exist.
const fn by_kind<T: Copy>(values: [T; Log::COUNT], none: T) -> ([T; 8], [T; 8]) {
    let [d0, d1, d2, n0, n1, n2] = values;
    ([d0, d1, d2, none, none, none, none, none], [n0, n1, n2, none, none, none, none, none])
}

/// The fields that must be equal in the two blocks of a pack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    /// Version.
    pub(crate) version: u64,
    /// Checksum of the block.
    pub(crate) crc: u32,
    /// Blocks of the pack.
    pub(crate) total_blocks: u32,
}

/// Verifies the checksum of one checkpoint block. `place` is its address, for the error.
///
/// # Errors
/// The checksum's place or value is wrong.
///
/// # Panics
/// `block` is not a whole block: the caller's bug.
pub fn verify(block: &[u8], place: u64) -> Result<Stamp, Corrupt> {
    let raw = RawCheckpoint::of(block);
    let offset = raw.checksum_offset.get();
    let Some((before, stored, after)) = split_at_checksum(block, offset) else {
        let expected = "it must be 192 to 4092, in whole words";
        return Err(Corrupt::Checkpoint {
            field: "checksum_offset",
            value: offset.into(),
            expected,
        });
    };
    let (stored, computed) = (u32::from_le_bytes(*stored), checksum(before, after));
    if stored != computed && !Safeguard::PackChecksum.is_off() {
        return Err(Corrupt::Checksum { what: "checkpoint block", place, stored, computed });
    }
    let total_blocks = raw.cp_pack_total_block_count.get();
    Ok(Stamp { version: raw.checkpoint_ver.get(), crc: stored, total_blocks })
}

/// Writes the checksum of one checkpoint block at `offset`, and returns it.
///
/// # Panics
/// The block ends before: the caller's bug.
pub(super) fn seal(block: &mut [u8], offset: u32) -> u32 {
    let (before, rest) = block.split_at_mut(as_index(offset));
    let (place, after) = rest.split_at_mut(size_of::<U32>());
    let sum = checksum(before, after);
    place.copy_from_slice(&sum.to_le_bytes());
    sum
}

/// A block before its checksum, the checksum, and the block behind it. `None` if the offset is
/// impossible for a checksum.
pub(super) fn split_at_checksum(block: &[u8], offset: u32) -> Option<(&[u8], &[u8; 4], &[u8])> {
    if !(LARGE_CHECKSUM_AT..=CHECKSUM_AT).contains(&offset) || !offset.is_multiple_of(4) {
        return None;
    }
    let (before, rest) = block.split_at_checked(as_index(offset))?;
    let (stored, after) = rest.split_first_chunk()?;
    Some((before, stored, after))
}

pub(super) fn checksum(before: &[u8], after: &[u8]) -> u32 {
    crc32(crc32(MAGIC, before), after)
}
