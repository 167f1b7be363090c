//! An inode block's bytes.

use cairn_base::units::as_index;
use cairn_vfs::Timestamp;
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::format::block;
use crate::format::units::{BLOCK_SIZE, NAME_MAX};

/// Words of `i_addr`.
pub(crate) const ADDR_WORDS: u32 = 923;
/// The words of `i_addr`: extra attributes, then pointers or inline contents, then inline
/// attributes.
pub(super) type AddrWords = [U32; as_index(ADDR_WORDS)];
/// nids in an inode: two direct, two indirect, one double indirect.
pub(crate) const NIDS: usize = 5;
/// Where `i_addr` begins.
pub(super) const ADDR_AT: usize = 360;
/// Where `i_nid` begins.
pub(super) const NID_AT: usize = 4052;

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(super) struct RawInode {
    pub(super) i_mode: U16,
    pub(super) i_advise: u8,
    pub(super) i_inline: u8,
    pub(super) i_uid: U32,
    pub(super) i_gid: U32,
    pub(super) i_links: U32,
    pub(super) i_size: U64,
    pub(super) i_blocks: U64,
    pub(super) i_atime: U64,
    pub(super) i_ctime: U64,
    pub(super) i_mtime: U64,
    pub(super) i_atime_nsec: U32,
    pub(super) i_ctime_nsec: U32,
    pub(super) i_mtime_nsec: U32,
    pub(super) i_generation: U32,
    pub(super) i_current_depth: U32,
    pub(super) i_xattr_nid: U32,
    pub(super) i_flags: U32,
    pub(super) i_pino: U32,
    pub(super) i_namelen: U32,
    pub(super) i_name: [u8; NAME_MAX],
    pub(super) i_dir_level: u8,
    pub(super) i_ext_fofs: U32,
    pub(super) i_ext_blk_addr: U32,
    pub(super) i_ext_len: U32,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(super) struct RawInodeBlock {
    pub(super) head: RawInode,
    pub(super) i_addr: AddrWords,
    pub(super) i_nid: [U32; NIDS],
    footer: [u8; 24],
}

const _: () = assert!(size_of::<RawInode>() == ADDR_AT);
const _: () = assert!(size_of::<RawInodeBlock>() == BLOCK_SIZE);
const _: () = assert!(std::mem::offset_of!(RawInodeBlock, i_nid) == NID_AT);

pub(super) fn view(block: &[u8]) -> &RawInodeBlock {
    block::view(block)
}

pub(super) fn view_mut(block: &mut [u8]) -> &mut RawInodeBlock {
    block::view_mut(block)
}

pub(super) fn time(seconds: U64, nanoseconds: U32) -> Timestamp {
    // A value of a second or more is damage, and `timespec` cannot hold it.
    Timestamp {
        seconds: seconds.get().cast_signed(),
        nanoseconds: nanoseconds.get().min(999_999_999),
    }
}

pub(super) fn raw_time(time: Timestamp) -> (U64, U32) {
    (time.seconds.cast_unsigned().into(), time.nanoseconds.into())
}
