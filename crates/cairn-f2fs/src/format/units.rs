//! Numbers of F2FS that must not be mixed up, and its fixed sizes.

pub(super) use cairn_base::units::stored;
use cairn_base::units::{as_index, as_u64};
use cairn_base::{Ino, Pba, unit};

/// Bytes per block. The only size that Linux accepts on a machine with 4 KiB pages.
pub const BLOCK_SIZE: usize = 4096;
/// [`BLOCK_SIZE`] for byte offsets.
pub(crate) const BLOCK_BYTES: u64 = as_u64(BLOCK_SIZE);
/// Blocks per segment.
pub const BLOCKS_PER_SEGMENT: u32 = 512;
/// Bytes per segment.
pub(crate) const SEGMENT_BYTES: u64 = as_u64(as_index(BLOCKS_PER_SEGMENT)) * BLOCK_BYTES;
/// Entries per NAT block, as a number of nids; the last byte of the block is unused.
pub(crate) const NIDS_PER_BLOCK: u32 = 455;
/// Inode numbers per orphan block, as a number of orphans.
pub(crate) const ORPHANS_PER_BLOCK: u32 = 1020;
/// The longest name in bytes.
pub(crate) const NAME_MAX: usize = 255;

unit!(
    /// Node id: names a node block through the NAT. An inode's number is the nid of its inode
    /// block.
    Nid(u32)
);
unit!(
    /// Segment number within the main area.
    SegNo(u32)
);
unit!(
    /// A block pointer as stored: an address from the volume's start, or one of three special
    /// values.
    BlockAddr(u32)
);

impl SegNo {
    /// The number as an index.
    #[must_use]
    pub const fn index(self) -> usize {
        as_index(self.0)
    }
}

impl Nid {
    /// No node.
    pub(crate) const NONE: Self = Self(0);
    /// The kernel's inode of all node blocks (never on disk, but its NAT entry is).
    pub(crate) const NODE_INO: Self = Self(1);
    /// The kernel's inode of all metadata blocks (never on disk, but its NAT entry is).
    pub(crate) const META_INO: Self = Self(2);
    /// The root directory.
    pub const ROOT: Self = Self(3);

    /// The inode number of the same value.
    #[must_use]
    pub const fn ino(self) -> Ino {
        Ino(as_u64(self.index()))
    }

    /// The nid of an inode number; `None` beyond 32 bits.
    #[must_use]
    pub fn of(ino: Ino) -> Option<Self> {
        u32::try_from(ino.get()).ok().map(Self)
    }

    /// The number as an index.
    #[must_use]
    pub const fn index(self) -> usize {
        as_index(self.0)
    }

    /// True if there is none.
    #[must_use]
    pub(crate) const fn is_none(self) -> bool {
        self.0 == 0
    }
}

impl BlockAddr {
    /// Nothing allocated: a hole, or a free nid.
    pub const NULL: Self = Self(0);
    /// Space is reserved without an address. Reads as zeros. Never the address of a node on disk.
    pub(crate) const NEW: Self = Self(u32::MAX);
    /// First slot of a compressed cluster.
    pub const COMPRESS: Self = Self(u32::MAX - 1);

    /// True if it is an address and none of the special values.
    #[must_use]
    pub(crate) const fn is_address(self) -> bool {
        !matches!(self, Self::NULL | Self::NEW | Self::COMPRESS)
    }

    /// The block on the volume. Meaningful only if [`BlockAddr::is_address`].
    #[must_use]
    pub(crate) fn pba(self) -> Pba {
        Pba(self.0.into())
    }

    /// Byte offset on the volume.
    #[must_use]
    pub fn bytes(self) -> u64 {
        // 2^32 blocks have 2^44 bytes.
        u64::from(self.0).strict_mul(BLOCK_BYTES)
    }
}
