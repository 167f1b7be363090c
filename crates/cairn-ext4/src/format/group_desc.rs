//! Group descriptors: the places of a group's bitmaps and inode table, and its counters.
//!
//! Source: "Block Group Descriptors" in the kernel's ext4 documentation. The checksum is crc32c
//! (metadata_csum) or crc16 (uninit_bg), truncated to 16 bits.

use bitflags::bitflags;
use cairn_base::Pba;
use cairn_base::checksum::{crc16, crc32c};
use cairn_base::units::{as_index, stored};
use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::buffer;
use super::features::{Incompat, RoCompat};
use super::layout::Layout;
use crate::corrupt::Corrupt;

bitflags! {
    /// `bg_flags`.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct GroupFlags: u16 {
        /// No inode of the group was ever used. Its inode bitmap and table are not initialised.
        const INODE_UNINIT = 1;
        /// The block bitmap is not initialised; it follows from the metadata in the group.
        const BLOCK_UNINIT = 2;
        /// The inode table was zeroed.
        const INODE_ZEROED = 4;
        const _ = !0;
    }
}

/// The bytes on disk; the second half exists with descriptors of 64 bytes.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct RawGroupDesc {
    bg_block_bitmap_lo: U32,
    bg_inode_bitmap_lo: U32,
    bg_inode_table_lo: U32,
    bg_free_blocks_count_lo: U16,
    bg_free_inodes_count_lo: U16,
    bg_used_dirs_count_lo: U16,
    bg_flags: U16,
    bg_exclude_bitmap_lo: U32,
    bg_block_bitmap_csum_lo: U16,
    bg_inode_bitmap_csum_lo: U16,
    bg_itable_unused_lo: U16,
    bg_checksum: U16,
    bg_block_bitmap_hi: U32,
    bg_inode_bitmap_hi: U32,
    bg_inode_table_hi: U32,
    bg_free_blocks_count_hi: U16,
    bg_free_inodes_count_hi: U16,
    bg_used_dirs_count_hi: U16,
    bg_itable_unused_hi: U16,
    bg_exclude_bitmap_hi: U32,
    bg_block_bitmap_csum_hi: U16,
    bg_inode_bitmap_csum_hi: U16,
    bg_reserved: U32,
}

const RAW_SIZE: usize = 64;
const _: () = assert!(size_of::<RawGroupDesc>() == RAW_SIZE);
const CHECKSUM_AT: usize = 0x1e;

/// A decoded descriptor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct GroupDesc {
    /// Block of the block bitmap.
    pub block_bitmap: Pba,
    /// Block of the inode bitmap.
    pub inode_bitmap: Pba,
    /// First block of the inode table.
    pub inode_table: Pba,
    /// Free blocks (clusters with bigalloc).
    pub free_blocks: u32,
    /// Free inodes.
    pub free_inodes: u32,
    /// Directories.
    pub used_dirs: u32,
    /// Inodes at the table's end that were never used.
    pub itable_unused: u32,
    /// Flags.
    pub flags: GroupFlags,
    /// Checksum of the block bitmap. It has 16 bits if the descriptor is short.
    pub block_bitmap_csum: u32,
    /// Checksum of the inode bitmap.
    pub inode_bitmap_csum: u32,
}

fn join(low: U16, high: U16) -> u32 {
    u32::from(low.get()) | u32::from(high.get()) << 16
}

fn split(value: u32) -> (U16, U16) {
    let [a, b, c, d] = value.to_le_bytes();
    (U16::from_bytes([a, b]), U16::from_bytes([c, d]))
}

fn block(low: U32, high: U32) -> Pba {
    Pba(u64::from(low.get()) | u64::from(high.get()) << 32)
}

fn split_block(pba: Pba) -> (U32, U32) {
    let [a, b, c, d, e, f, g, h] = pba.get().to_le_bytes();
    (U32::from_bytes([a, b, c, d]), U32::from_bytes([e, f, g, h]))
}

/// The first 64 bytes of a descriptor, padded with zeros.
fn widen(bytes: &[u8]) -> RawGroupDesc {
    let mut raw = RawGroupDesc::new_zeroed();
    for (to, from) in raw.as_mut_bytes().iter_mut().zip(bytes) {
        *to = *from;
    }
    raw
}

impl GroupDesc {
    /// Decodes the descriptor of `group` from its `desc_size` bytes.
    ///
    /// # Errors
    /// The checksum is wrong, a place is outside the volume or group, or a counter is too large.
    pub(crate) fn decode(bytes: &[u8], group: u32, layout: &Layout) -> Result<Self, Corrupt> {
        Self::verify(bytes, group, layout)?;
        let desc = Self::decode_unchecked(bytes, layout);
        desc.validate(group, layout)?;
        Ok(desc)
    }

    /// Verifies the checksum of a descriptor.
    ///
    /// # Errors
    /// The checksum is wrong.
    pub(crate) fn verify(bytes: &[u8], group: u32, layout: &Layout) -> Result<(), Corrupt> {
        let Some(computed) = checksum(bytes, group, layout) else { return Ok(()) };
        let stored = widen(bytes).bg_checksum.get();
        if stored == computed {
            return Ok(());
        }
        let (stored, computed) = (stored.into(), computed.into());
        Err(Corrupt::Checksum { what: "group descriptor", place: group.into(), stored, computed })
    }

    /// Stored and computed checksum of a descriptor, if the volume has them.
    #[must_use]
    pub(crate) fn checksums(bytes: &[u8], group: u32, layout: &Layout) -> Option<(u32, u32)> {
        let computed = checksum(bytes, group, layout)?;
        Some((widen(bytes).bg_checksum.get().into(), computed.into()))
    }

    /// The flags as they are stored; they count only if descriptors have checksums.
    #[must_use]
    pub(crate) fn stored_flags(bytes: &[u8]) -> GroupFlags {
        GroupFlags::from_bits_retain(widen(bytes).bg_flags.get())
    }

    /// Decodes a descriptor whose numbers may be wrong.
    #[must_use]
    pub(crate) fn decode_unchecked(bytes: &[u8], layout: &Layout) -> Self {
        let raw = widen(bytes);
        let flags = GroupFlags::from_bits_retain(raw.bg_flags.get());
        Self {
            block_bitmap: block(raw.bg_block_bitmap_lo, raw.bg_block_bitmap_hi),
            inode_bitmap: block(raw.bg_inode_bitmap_lo, raw.bg_inode_bitmap_hi),
            inode_table: block(raw.bg_inode_table_lo, raw.bg_inode_table_hi),
            free_blocks: join(raw.bg_free_blocks_count_lo, raw.bg_free_blocks_count_hi),
            free_inodes: join(raw.bg_free_inodes_count_lo, raw.bg_free_inodes_count_hi),
            used_dirs: join(raw.bg_used_dirs_count_lo, raw.bg_used_dirs_count_hi),
            itable_unused: join(raw.bg_itable_unused_lo, raw.bg_itable_unused_hi),
            // Without descriptor checksums no group is uninitialised, and the flags are undefined.
            flags: if layout.features.has_group_checksums() { flags } else { GroupFlags::empty() },
            block_bitmap_csum: join(raw.bg_block_bitmap_csum_lo, raw.bg_block_bitmap_csum_hi),
            inode_bitmap_csum: join(raw.bg_inode_bitmap_csum_lo, raw.bg_inode_bitmap_csum_hi),
        }
    }

    fn validate(&self, group: u32, layout: &Layout) -> Result<(), Corrupt> {
        let wrong = |field, value, problem| Err(Corrupt::Group { group, field, value, problem });
        let places = [
            ("bg_block_bitmap", self.block_bitmap, 1),
            ("bg_inode_bitmap", self.inode_bitmap, 1),
            ("bg_inode_table", self.inode_table, layout.inode_table_blocks()),
        ];
        for (field, pba, count) in places {
            if !layout.contains(pba, count.into()) {
                return wrong(field, pba.get(), "outside the volume");
            }
            let last = Pba(pba.get().saturating_add(count.into()).saturating_sub(1));
            let own = layout.group_of(pba) == Some(group) && layout.group_of(last) == Some(group);
            if !own && !layout.features.incompat(Incompat::FLEX_BG) {
                return wrong(field, pba.get(), "outside its group");
            }
        }
        let inodes = layout.inodes_per_group;
        let counts = [
            ("bg_free_blocks_count", self.free_blocks, layout.group_clusters(group)),
            ("bg_free_inodes_count", self.free_inodes, inodes),
            ("bg_used_dirs_count", self.used_dirs, inodes),
            ("bg_itable_unused", self.itable_unused, inodes),
        ];
        for (field, count, most) in counts {
            if count > most {
                return wrong(field, count.into(), "more than the group has");
            }
        }
        Ok(())
    }

    /// Encodes the descriptor into its `desc_size` bytes with a new checksum. Unknown bytes stay as
    /// they are.
    pub(crate) fn encode(&self, group: u32, layout: &Layout, bytes: &mut [u8]) {
        let mut raw = widen(bytes);
        (raw.bg_block_bitmap_lo, raw.bg_block_bitmap_hi) = split_block(self.block_bitmap);
        (raw.bg_inode_bitmap_lo, raw.bg_inode_bitmap_hi) = split_block(self.inode_bitmap);
        (raw.bg_inode_table_lo, raw.bg_inode_table_hi) = split_block(self.inode_table);
        (raw.bg_free_blocks_count_lo, raw.bg_free_blocks_count_hi) = split(self.free_blocks);
        (raw.bg_free_inodes_count_lo, raw.bg_free_inodes_count_hi) = split(self.free_inodes);
        (raw.bg_used_dirs_count_lo, raw.bg_used_dirs_count_hi) = split(self.used_dirs);
        (raw.bg_itable_unused_lo, raw.bg_itable_unused_hi) = split(self.itable_unused);
        (raw.bg_block_bitmap_csum_lo, raw.bg_block_bitmap_csum_hi) = split(self.block_bitmap_csum);
        (raw.bg_inode_bitmap_csum_lo, raw.bg_inode_bitmap_csum_hi) = split(self.inode_bitmap_csum);
        if layout.features.has_group_checksums() {
            raw.bg_flags = U16::new(self.flags.bits());
        }
        let known = bytes.len().min(RAW_SIZE);
        let (head, _) = raw.as_bytes().split_at(known);
        buffer::put(bytes, 0, head);
        if let Some(checksum) = checksum(bytes, group, layout) {
            buffer::put(bytes, CHECKSUM_AT, &checksum.to_le_bytes());
        }
    }

    /// Checksum of a block bitmap, as stored in the descriptor.
    #[must_use]
    pub(crate) fn block_bitmap_checksum(bitmap: &[u8], layout: &Layout) -> Option<u32> {
        bitmap_checksum(bitmap, layout.clusters_per_group, 0x3a, layout)
    }

    /// Checksum of an inode bitmap, as stored in the descriptor.
    #[must_use]
    pub(crate) fn inode_bitmap_checksum(bitmap: &[u8], layout: &Layout) -> Option<u32> {
        bitmap_checksum(bitmap, layout.inodes_per_group, 0x3c, layout)
    }
}

/// Checksum of the whole bytes that contain `bits`. It has 16 bits if the descriptor ends before
/// `upper_half_ends`.
fn bitmap_checksum(bitmap: &[u8], bits: u32, upper_half_ends: u32, layout: &Layout) -> Option<u32> {
    let seed = layout.checksum.seed()?;
    let covered = bitmap.get(..as_index(bits / 8)).unwrap_or(bitmap);
    let sum = crc32c(seed, covered);
    Some(if layout.desc_size >= upper_half_ends { sum } else { sum & 0xffff })
}

fn checksum(bytes: &[u8], group: u32, layout: &Layout) -> Option<u16> {
    let before = bytes.get(..CHECKSUM_AT)?;
    let after = bytes.get(CHECKSUM_AT + 2..)?;
    let number = group.to_le_bytes();
    if let Some(seed) = layout.checksum.seed() {
        let head = crc32c(crc32c(seed, &number), before);
        let sum = crc32c(crc32c(head, &[0, 0]), after);
        return Some(stored(sum & 0xffff));
    }
    if !layout.features.ro_compat(RoCompat::GDT_CSUM) {
        return None;
    }
    Some(crc16(crc16(crc16(crc16(!0, &layout.uuid), &number), before), after))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::layout::tests::sample;

    #[test]
    fn round_trip_and_checksum() {
        let layout = sample();
        let desc = GroupDesc {
            block_bitmap: Pba(300),
            inode_bitmap: Pba(301),
            inode_table: Pba(302),
            free_blocks: 4000,
            free_inodes: 100,
            used_dirs: 3,
            itable_unused: 90,
            flags: GroupFlags::INODE_ZEROED,
            block_bitmap_csum: 0x1234_5678,
            inode_bitmap_csum: 0x9abc_def0,
        };
        let mut bytes = vec![0; layout.desc_size as usize];
        desc.encode(1, &layout, &mut bytes);
        assert_eq!(GroupDesc::decode(&bytes, 1, &layout), Ok(desc));
        assert!(matches!(
            GroupDesc::decode(&bytes, 2, &layout),
            Err(Corrupt::Checksum { place: 2, .. })
        ));
        for bit in 0..bytes.len() * 8 {
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert!(GroupDesc::decode(&bytes, 1, &layout).is_err(), "bit {bit}");
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
    }

    #[test]
    fn places_outside_the_volume_are_refused() {
        let mut layout = sample();
        layout.checksum = crate::checksum::MetadataChecksum::NONE;
        layout.features.ro_compat -= RoCompat::METADATA_CSUM;
        let mut raw = RawGroupDesc::new_zeroed();
        raw.bg_block_bitmap_lo = U32::new(5);
        raw.bg_inode_bitmap_lo = U32::new(6);
        raw.bg_inode_table_lo = U32::new(7);
        assert!(GroupDesc::decode(raw.as_bytes(), 0, &layout).is_ok());
        raw.bg_inode_table_hi = U32::new(u32::MAX);
        raw.bg_inode_table_lo = U32::new(u32::MAX);
        assert!(matches!(
            GroupDesc::decode(raw.as_bytes(), 0, &layout),
            Err(Corrupt::Group { field: "bg_inode_table", .. })
        ));
    }
}
