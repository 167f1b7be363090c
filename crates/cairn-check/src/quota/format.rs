//! The bytes of a quota file in the format that quota's tools call `vfsv1`: blocks of 1024 bytes.
//!
//! Block 0 has the header and what is true of all owners. From block 1 on lies a tree of four
//! levels: each byte of an owner's number, from the highest on, chooses one of 256 references to a
//! block. The last level refers to a block of entries that has the owner's.

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::owners::OwnerKind;

/// Bytes of a block.
pub const BLOCK: usize = 1024;
/// The block of the tree's root.
pub(super) const ROOT: u32 = 1;
/// Levels of the tree above the entries.
pub(super) const LEVELS: u32 = 4;
/// References in a block of the tree.
pub(super) const REFERENCES: usize = BLOCK / 4;
/// Entries in a block of them.
pub(super) const ENTRIES: usize = (BLOCK - size_of::<RawEntriesHead>()) / size_of::<RawEntry>();
/// The version with counts of 64 bits.
pub(super) const VERSION: u32 = 1;

/// `struct v2_disk_dqheader` and `struct v2_disk_dqinfo`.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(super) struct RawHead {
    pub(super) dqh_magic: U32,
    pub(super) dqh_version: U32,
    pub(super) dqi_bgrace: U32,
    pub(super) dqi_igrace: U32,
    pub(super) dqi_flags: U32,
    pub(super) dqi_blocks: U32,
    pub(super) dqi_free_blk: U32,
    pub(super) dqi_free_entry: U32,
}

/// `struct qt_disk_dqdbheader`.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(super) struct RawEntriesHead {
    pub(super) dqdh_next_free: U32,
    pub(super) dqdh_prev_free: U32,
    pub(super) dqdh_entries: U16,
    pub(super) dqdh_pad1: U16,
    pub(super) dqdh_pad2: U32,
}

/// `struct v2r1_disk_dqblk`.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub(super) struct RawEntry {
    pub(super) dqb_id: U32,
    pub(super) dqb_pad: U32,
    pub(super) dqb_ihardlimit: U64,
    pub(super) dqb_isoftlimit: U64,
    pub(super) dqb_curinodes: U64,
    pub(super) dqb_bhardlimit: U64,
    pub(super) dqb_bsoftlimit: U64,
    pub(super) dqb_curspace: U64,
    pub(super) dqb_btime: U64,
    pub(super) dqb_itime: U64,
}

const _: () = assert!(size_of::<RawHead>() == 32);
const _: () = assert!(size_of::<RawEntriesHead>() == 16);
const _: () = assert!(size_of::<RawEntry>() == 72);

/// `dqh_magic`.
pub(super) const fn magic(kind: OwnerKind) -> u32 {
    match kind {
        OwnerKind::User => 0xd9c0_1f11,
        OwnerKind::Group => 0xd9c0_1927,
        OwnerKind::Project => 0xd9c0_3f14,
    }
}

/// Does a file that begins with this block hold quotas, of whomever?
#[must_use]
pub fn has_quota_magic(block: &[u8]) -> bool {
    let word = block.first_chunk().map(|word| u32::from_le_bytes(*word));
    let kinds = [OwnerKind::User, OwnerKind::Group, OwnerKind::Project];
    kinds.into_iter().any(|kind| word == Some(magic(kind)))
}

/// The reference of a block of the tree.
pub(super) fn reference(block: &[u8], index: usize) -> u32 {
    let (words, _) = <[U32]>::ref_from_prefix_with_elems(block, REFERENCES).unwrap_or((&[], &[]));
    words.get(index).map_or(0, |word| word.get())
}

/// The entries of a block of them that are in use.
pub(super) fn entries(block: &[u8]) -> impl Iterator<Item = RawEntry> {
    let (_, rest) = block.split_at_checked(size_of::<RawEntriesHead>()).unwrap_or((&[], &[]));
    let entries = rest.chunks_exact(size_of::<RawEntry>());
    let entries = entries.filter_map(|bytes| RawEntry::read_from_bytes(bytes).ok());
    entries.filter(|entry| entry != &RawEntry::default())
}
