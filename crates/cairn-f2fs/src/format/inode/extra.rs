//! Extra attributes: the first words of `i_addr`. The inode has their number.

use cairn_vfs::Timestamp;
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::raw::{ADDR_AT, AddrWords, raw_time, time};

/// Most extra attributes, in bytes. The kernel gives this number to each new inode.
pub(crate) const EXTRA_SIZE: u16 = 36;
/// Where the checksum is, in the block.
pub(super) const CHECKSUM_AT: usize = 368;

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawExtra {
    i_extra_isize: U16,
    i_inline_xattr_size: U16,
    i_projid: U32,
    i_inode_checksum: U32,
    i_crtime: U64,
    i_crtime_nsec: U32,
    i_compr_blocks: U64,
    i_compress_algorithm: u8,
    i_log_cluster_size: u8,
    i_compress_flag: U16,
}

const _: () = assert!(size_of::<RawExtra>() == 36 && EXTRA_SIZE == 36);
const _: () = assert!(ADDR_AT + std::mem::offset_of!(RawExtra, i_inode_checksum) == CHECKSUM_AT);

/// `i_addr` of an inode that has extra attributes.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawAddr {
    extra: RawExtra,
    rest: [u8; size_of::<AddrWords>() - size_of::<RawExtra>()],
}

/// Times that an inode can have, in seconds: 35,000 years.
const TIMES: std::ops::Range<i64> = -(1 << 40)..1 << 40;

/// Extra attributes. A field whose end lies beyond `size` is 0 and is not written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ExtraAttr {
    /// `i_extra_isize`: bytes in use, 4 to [`EXTRA_SIZE`].
    pub(crate) size: u16,
    /// `i_inline_xattr_size`: words for inline attributes, with the feature
    /// `flexible_inline_xattr`.
    pub(crate) inline_xattr_size: u16,
    /// Project.
    pub(crate) projid: u32,
    /// Checksum as stored; [`super::seal`] writes it.
    pub(crate) inode_checksum: u32,
    /// Creation.
    pub(crate) crtime: Timestamp,
    /// Blocks saved by compression.
    pub(crate) compr_blocks: u64,
    /// 0 lzo, 1 lz4, 2 zstd, 3 lzo-rle.
    pub compress_algorithm: u8,
    /// log2 of the blocks per cluster.
    pub log_cluster_size: u8,
    /// Bit 0: clusters have a checksum; bits 8 to 15: level.
    pub compress_flag: u16,
}

impl ExtraAttr {
    pub(super) fn read(words: &AddrWords) -> Self {
        let RawAddr { extra: raw, .. } = zerocopy::transmute_ref!(words);
        let size = raw.i_extra_isize.get();
        let within = |end: u16| end <= size;
        let crtime =
            if within(24) { time(raw.i_crtime, raw.i_crtime_nsec) } else { Timestamp::default() };
        let compression = within(EXTRA_SIZE);
        Self {
            size,
            inline_xattr_size: raw.i_inline_xattr_size.get(),
            projid: if within(8) { raw.i_projid.get() } else { 0 },
            inode_checksum: if within(12) { raw.i_inode_checksum.get() } else { 0 },
            crtime,
            compr_blocks: if compression { raw.i_compr_blocks.get() } else { 0 },
            compress_algorithm: if compression { raw.i_compress_algorithm } else { 0 },
            log_cluster_size: if compression { raw.i_log_cluster_size } else { 0 },
            compress_flag: if compression { raw.i_compress_flag.get() } else { 0 },
        }
    }

    pub(super) fn write(&self, words: &mut AddrWords) {
        let mut raw = RawExtra::new_zeroed();
        raw.i_extra_isize = self.size.into();
        raw.i_inline_xattr_size = self.inline_xattr_size.into();
        raw.i_projid = self.projid.into();
        raw.i_inode_checksum = self.inode_checksum.into();
        (raw.i_crtime, raw.i_crtime_nsec) = raw_time(self.crtime);
        raw.i_compr_blocks = self.compr_blocks.into();
        raw.i_compress_algorithm = self.compress_algorithm;
        raw.i_log_cluster_size = self.log_cluster_size;
        raw.i_compress_flag = self.compress_flag.into();
        let used = words.as_mut_bytes().iter_mut().zip(raw.as_bytes()).take(self.size.into());
        used.for_each(|(to, byte)| *to = *byte);
    }

    /// Sets only the checksum.
    pub(super) fn write_checksum(words: &mut AddrWords, sum: u32) {
        let raw: &mut RawAddr = zerocopy::transmute_mut!(words);
        raw.extra.i_inode_checksum = sum.into();
    }

    /// True if the creation time is one that an inode can have.
    #[must_use]
    pub(crate) fn has_possible_crtime(&self) -> bool {
        TIMES.contains(&self.crtime.seconds)
    }

    /// True if there is room for the creation time.
    #[must_use]
    pub(crate) const fn has_crtime(&self) -> bool {
        self.size >= 24
    }

    /// True if there is room for a checksum.
    #[must_use]
    pub(crate) const fn has_checksum(&self) -> bool {
        self.size >= 12
    }

    /// True if there is room for the fields of compression.
    #[must_use]
    pub(crate) const fn has_compression(&self) -> bool {
        self.size >= EXTRA_SIZE
    }
}
