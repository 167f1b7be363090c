//! A superblock's bytes.

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Where the superblock lies in its block.
pub(crate) const OFFSET: usize = 1024;
/// Its size.
pub(crate) const SIZE: usize = 3072;
/// Where the checksum is, if there is one.
pub(crate) const CHECKSUM_OFFSET: usize = 3068;
/// Devices a volume may consist of.
pub(crate) const MAX_DEVICES: usize = 8;
/// Extensions of hot and cold files together.
pub(crate) const MAX_EXTENSIONS: usize = 64;
/// Bytes of an extension.
pub(crate) const EXTENSION_LEN: usize = 8;

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(super) struct RawDevice {
    pub(super) path: [u8; 64],
    pub(super) total_segments: U32,
}

/// The bytes on disk.
#[derive(Clone, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(super) struct RawSuperblock {
    pub(super) magic: U32,
    pub(super) major_ver: U16,
    pub(super) minor_ver: U16,
    pub(super) log_sectorsize: U32,
    pub(super) log_sectors_per_block: U32,
    pub(super) log_blocksize: U32,
    pub(super) log_blocks_per_seg: U32,
    pub(super) segs_per_sec: U32,
    pub(super) secs_per_zone: U32,
    pub(super) checksum_offset: U32,
    pub(super) block_count: U64,
    pub(super) section_count: U32,
    pub(super) segment_count: U32,
    pub(super) segment_count_ckpt: U32,
    pub(super) segment_count_sit: U32,
    pub(super) segment_count_nat: U32,
    pub(super) segment_count_ssa: U32,
    pub(super) segment_count_main: U32,
    pub(super) segment0_blkaddr: U32,
    pub(super) cp_blkaddr: U32,
    pub(super) sit_blkaddr: U32,
    pub(super) nat_blkaddr: U32,
    pub(super) ssa_blkaddr: U32,
    pub(super) main_blkaddr: U32,
    pub(super) root_ino: U32,
    pub(super) node_ino: U32,
    pub(super) meta_ino: U32,
    pub(super) uuid: [u8; 16],
    pub(super) volume_name: [U16; 512],
    pub(super) extension_count: U32,
    pub(super) extension_list: [[u8; EXTENSION_LEN]; MAX_EXTENSIONS],
    pub(super) cp_payload: U32,
    pub(super) version: [u8; 256],
    pub(super) init_version: [u8; 256],
    pub(super) feature: U32,
    pub(super) encryption_level: u8,
    pub(super) encrypt_pw_salt: [u8; 16],
    pub(super) devs: [RawDevice; MAX_DEVICES],
    pub(super) qf_ino: [U32; 3],
    pub(super) hot_ext_count: u8,
    pub(super) s_encoding: U16,
    pub(super) s_encoding_flags: U16,
    pub(super) s_stop_reason: [u8; 32],
    pub(super) s_errors: [u8; 16],
    pub(super) reserved: [u8; 258],
    pub(super) crc: U32,
}

const _: () = assert!(size_of::<RawSuperblock>() == SIZE);
const _: () = assert!(std::mem::offset_of!(RawSuperblock, uuid) == 108);
const _: () = assert!(std::mem::offset_of!(RawSuperblock, feature) == 2180);
const _: () = assert!(std::mem::offset_of!(RawSuperblock, devs) == 2201);
const _: () = assert!(std::mem::offset_of!(RawSuperblock, crc) == CHECKSUM_OFFSET);
