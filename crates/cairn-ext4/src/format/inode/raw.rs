//! The bytes of an inode record and its checksum.

use cairn_base::checksum::crc32c;
use cairn_base::{Ino, Pba};
use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::flags::{InodeFlags, mode};
use crate::checksum::InodeSeed;
use crate::corrupt::Corrupt;
use crate::format::buffer;
use crate::format::features::{Incompat, RoCompat};
use crate::format::layout::{Creator, Layout};

pub(super) const GOOD_OLD_SIZE: usize = 128;
pub(super) const RAW_SIZE: usize = 160;

/// The bytes on disk. Records above 128 bytes have those from `i_extra_isize` on.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(super) struct RawInode {
    pub(super) i_mode: U16,
    pub(super) i_uid: U16,
    pub(super) i_size_lo: U32,
    pub(super) i_atime: U32,
    pub(super) i_ctime: U32,
    pub(super) i_mtime: U32,
    pub(super) i_dtime: U32,
    pub(super) i_gid: U16,
    pub(super) i_links_count: U16,
    pub(super) i_blocks_lo: U32,
    pub(super) i_flags: U32,
    pub(super) l_i_version: U32,
    pub(super) i_block: [u8; 60],
    pub(super) i_generation: U32,
    pub(super) i_file_acl_lo: U32,
    pub(super) i_size_high: U32,
    pub(super) i_obso_faddr: U32,
    pub(super) l_i_blocks_high: U16,
    pub(super) l_i_file_acl_high: U16,
    pub(super) l_i_uid_high: U16,
    pub(super) l_i_gid_high: U16,
    pub(super) l_i_checksum_lo: U16,
    pub(super) l_i_reserved: U16,
    pub(super) i_extra_isize: U16,
    pub(super) i_checksum_hi: U16,
    pub(super) i_ctime_extra: U32,
    pub(super) i_mtime_extra: U32,
    pub(super) i_atime_extra: U32,
    pub(super) i_crtime: U32,
    pub(super) i_crtime_extra: U32,
    pub(super) i_version_hi: U32,
    pub(super) i_projid: U32,
}

const _: () = assert!(size_of::<RawInode>() == RAW_SIZE);
pub(super) const CHECKSUM_LO_AT: usize = 124;
pub(super) const CHECKSUM_HI_AT: usize = 130;

/// Ends of the fields beyond 128 bytes: a field exists if `i_extra_isize` reaches its end.
pub(super) mod ends {
    pub(in crate::format::inode) const CHECKSUM_HI: u16 = 4;
    pub(in crate::format::inode) const CTIME: u16 = 8;
    pub(in crate::format::inode) const MTIME: u16 = 12;
    pub(in crate::format::inode) const ATIME: u16 = 16;
    pub(in crate::format::inode) const CRTIME: u16 = 24;
    pub(in crate::format::inode) const VERSION: u16 = 28;
    pub(in crate::format::inode) const PROJID: u16 = 32;
}

pub(super) fn widen(bytes: &[u8]) -> RawInode {
    let mut raw = RawInode::new_zeroed();
    for (to, from) in raw.as_mut_bytes().iter_mut().zip(bytes) {
        *to = *from;
    }
    raw
}

/// `i_extra_isize`; 0 in a record without that field.
pub(super) fn stored_extra_isize(bytes: &[u8]) -> u16 {
    if bytes.len() > GOOD_OLD_SIZE { widen(bytes).i_extra_isize.get() } else { 0 }
}

pub(super) fn extra_isize_fits(extra_isize: u16, bytes: &[u8]) -> bool {
    let room = bytes.len().saturating_sub(GOOD_OLD_SIZE);
    usize::from(extra_isize) <= room && extra_isize.is_multiple_of(4)
}

pub(super) fn wide(low: U16, high: U16) -> u32 {
    u32::from(low.get()) | u32::from(high.get()) << 16
}

pub(super) fn narrow(value: u32) -> (U16, U16) {
    let [a, b, c, d] = value.to_le_bytes();
    (U16::from_bytes([a, b]), U16::from_bytes([c, d]))
}

pub(super) fn halves(value: u64) -> (U32, U32) {
    let [a, b, c, d, e, f, g, h] = value.to_le_bytes();
    (U32::from_bytes([a, b, c, d]), U32::from_bytes([e, f, g, h]))
}

/// True if the record has the upper half of the size. In old directories these bytes were the block
/// of an access control list.
pub(super) fn has_wide_size(mode: u16, layout: &Layout) -> bool {
    mode & mode::TYPE == mode::REGULAR || layout.features.incompat(Incompat::LARGE_DIR)
}

pub(super) fn size_of_file(raw: &RawInode, mode: u16, layout: &Layout) -> u64 {
    let high = if has_wide_size(mode, layout) { raw.i_size_high.get() } else { 0 };
    u64::from(raw.i_size_lo.get()) | u64::from(high) << 32
}

pub(super) fn blocks_in_use(raw: &RawInode, flags: InodeFlags, layout: &Layout) -> u64 {
    let low = u64::from(raw.i_blocks_lo.get());
    // The Hurd has the size of fragments in these bytes.
    if !layout.features.ro_compat(RoCompat::HUGE_FILE) || layout.creator == Creator::Hurd {
        return low;
    }
    let blocks = low | u64::from(raw.l_i_blocks_high.get()) << 32;
    if flags.contains(InodeFlags::HUGE_FILE) {
        blocks << layout.block_bits.saturating_sub(9)
    } else {
        blocks
    }
}

pub(super) fn file_acl(raw: &RawInode, layout: &Layout) -> Pba {
    let high =
        if layout.features.incompat(Incompat::BITS_64) { raw.l_i_file_acl_high.get() } else { 0 };
    Pba(u64::from(raw.i_file_acl_lo.get()) | u64::from(high) << 32)
}

/// Checksum of a record, with its own two fields as zero.
pub(super) fn checksum(bytes: &[u8], seed: u32, wide: bool) -> u32 {
    let part = |from: usize, to: usize| bytes.get(from..to.min(bytes.len())).unwrap_or_default();
    let mut sum = crc32c(seed, part(0, CHECKSUM_LO_AT));
    sum = crc32c(sum, &[0, 0]);
    if !wide {
        return crc32c(sum, part(CHECKSUM_LO_AT + 2, bytes.len()));
    }
    sum = crc32c(sum, part(CHECKSUM_LO_AT + 2, CHECKSUM_HI_AT));
    sum = crc32c(sum, &[0, 0]);
    crc32c(sum, part(CHECKSUM_HI_AT + 2, bytes.len()))
}

pub(super) fn has_wide_checksum(raw: &RawInode, bytes: &[u8]) -> bool {
    bytes.len() > GOOD_OLD_SIZE && raw.i_extra_isize.get() >= ends::CHECKSUM_HI
}

/// Only Linux stores a checksum in an inode.
pub(super) fn record_seed(raw: &RawInode, ino: Ino, layout: &Layout) -> InodeSeed {
    match layout.creator {
        Creator::Linux => layout.checksum.for_inode(ino, raw.i_generation.get()),
        _ => InodeSeed(None),
    }
}

pub(super) fn verify(
    bytes: &[u8],
    raw: &RawInode,
    ino: Ino,
    layout: &Layout,
) -> Result<(), Corrupt> {
    match checksums(bytes, raw, ino, layout) {
        Some((stored, computed)) if stored != computed => {
            Err(Corrupt::Checksum { what: "inode", place: ino.get(), stored, computed })
        }
        _ => Ok(()),
    }
}

/// Stored and computed checksum of a record; `None` if the volume has none.
pub(super) fn checksums(
    bytes: &[u8],
    raw: &RawInode,
    ino: Ino,
    layout: &Layout,
) -> Option<(u32, u32)> {
    let InodeSeed(Some(seed)) = record_seed(raw, ino, layout) else { return None };
    let is_wide = has_wide_checksum(raw, bytes);
    let computed = checksum(bytes, seed, is_wide);
    Some(match is_wide {
        true => (wide(raw.l_i_checksum_lo, raw.i_checksum_hi), computed),
        false => (raw.l_i_checksum_lo.get().into(), computed & 0xffff),
    })
}

pub(super) fn seal(out: &mut [u8], ino: Ino, layout: &Layout) {
    let raw = widen(out);
    let InodeSeed(Some(seed)) = record_seed(&raw, ino, layout) else { return };
    let is_wide = has_wide_checksum(&raw, out);
    let [a, b, c, d] = checksum(out, seed, is_wide).to_le_bytes();
    buffer::put(out, CHECKSUM_LO_AT, &[a, b]);
    if is_wide {
        buffer::put(out, CHECKSUM_HI_AT, &[c, d]);
    }
}
