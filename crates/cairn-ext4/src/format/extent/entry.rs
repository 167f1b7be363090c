//! Entries of a node of an extent tree, and the range of the file and of the volume that a node may
//! map.

use cairn_base::units::{as_index, as_u64, stored};
use cairn_base::{FileBlock, Ino, Pba};
use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::corrupt::Corrupt;

/// `eh_magic`.
pub(crate) const MAGIC: u16 = 0xf30a;
/// Deepest tree the format allows (`eh_depth` of the root).
pub(crate) const MAX_DEPTH: u16 = 5;
/// Longest written extent, in blocks. A larger stored `ee_len` is that of an unwritten extent plus
/// this.
pub(crate) const MAX_WRITTEN: u64 = 32768;
/// Longest unwritten extent, in blocks.
pub(crate) const MAX_UNWRITTEN: u64 = 32767;
/// File blocks are below this number: the last 32-bit number is not a block.
pub(crate) const MAX_FILE_BLOCKS: u64 = as_u64(as_index(u32::MAX));
/// Bytes of `i_block`, which hold the root.
pub(crate) const ROOT_BYTES: usize = 60;

/// Bytes of a header and of every entry.
pub(super) const ENTRY: usize = 12;

/// `struct ext4_extent_header`.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub(super) struct RawHeader {
    pub(super) eh_magic: U16,
    pub(super) eh_entries: U16,
    pub(super) eh_max: U16,
    pub(super) eh_depth: U16,
    pub(super) eh_generation: U32,
}

/// `struct ext4_extent_idx`.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub(super) struct RawIndex {
    pub(super) ei_block: U32,
    pub(super) ei_leaf_lo: U32,
    pub(super) ei_leaf_hi: U16,
    pub(super) ei_unused: U16,
}

/// `struct ext4_extent`.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub(super) struct RawExtent {
    pub(super) ee_block: U32,
    pub(super) ee_len: U16,
    pub(super) ee_start_hi: U16,
    pub(super) ee_start_lo: U32,
}

const _: () = assert!(size_of::<RawHeader>() == ENTRY);
const _: () = assert!(size_of::<RawIndex>() == ENTRY);
const _: () = assert!(size_of::<RawExtent>() == ENTRY);

/// Contiguous blocks of a file that are contiguous on the volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Extent {
    /// First block of the file.
    pub start: u64,
    /// Blocks, at least 1.
    pub len: u64,
    /// First block on the volume.
    pub pba: Pba,
    /// The blocks are allocated, were never written, and read as zeros.
    pub unwritten: bool,
}

impl Extent {
    /// The file block after the last.
    #[must_use]
    pub(crate) const fn end(&self) -> u64 {
        self.start.saturating_add(self.len)
    }

    /// Longest extent in the state of this one.
    #[must_use]
    pub(crate) const fn max_len(&self) -> u64 {
        if self.unwritten { MAX_UNWRITTEN } else { MAX_WRITTEN }
    }

    /// The part inside `start..end`, if any.
    #[must_use]
    pub(crate) fn clip(&self, start: u64, end: u64) -> Option<Self> {
        let from = self.start.max(start);
        let to = self.end().min(end);
        (from < to).then(|| Self {
            start: from,
            len: to.saturating_sub(from),
            pba: Pba(self.pba.get().saturating_add(from.saturating_sub(self.start))),
            ..*self
        })
    }

    /// True if `next` continues this extent in the file, on the volume and in its state.
    #[must_use]
    pub(crate) fn continues_with(&self, next: &Self) -> bool {
        self.end() == next.start
            && self.pba.get().saturating_add(self.len) == next.pba.get()
            && self.unwritten == next.unwritten
    }
}

impl From<&RawExtent> for Extent {
    fn from(raw: &RawExtent) -> Self {
        let stored = u64::from(raw.ee_len.get());
        let unwritten = stored > MAX_WRITTEN;
        Self {
            start: u64::from(raw.ee_block.get()),
            len: if unwritten { stored.saturating_sub(MAX_WRITTEN) } else { stored },
            pba: address(raw.ee_start_hi, raw.ee_start_lo),
            unwritten,
        }
    }
}

impl From<&Extent> for RawExtent {
    fn from(extent: &Extent) -> Self {
        assert!(
            extent.len >= 1 && extent.len <= extent.max_len(),
            "extent of {} blocks",
            extent.len
        );
        let len = if extent.unwritten { extent.len.strict_add(MAX_WRITTEN) } else { extent.len };
        let (hi, lo) = halves(extent.pba);
        Self {
            ee_block: U32::new(file_block(extent.start)),
            ee_len: U16::new(stored(len)),
            ee_start_hi: hi,
            ee_start_lo: lo,
        }
    }
}

/// Entry of an inner node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Index {
    /// First file block of the child's range.
    pub start: u64,
    /// Address of the child.
    pub child: Pba,
}

impl From<&RawIndex> for Index {
    fn from(raw: &RawIndex) -> Self {
        Self {
            start: u64::from(raw.ei_block.get()),
            child: address(raw.ei_leaf_hi, raw.ei_leaf_lo),
        }
    }
}

impl From<&Index> for RawIndex {
    fn from(index: &Index) -> Self {
        let (hi, lo) = halves(index.child);
        Self {
            ei_block: U32::new(file_block(index.start)),
            ei_leaf_lo: lo,
            ei_leaf_hi: hi,
            ei_unused: U16::ZERO,
        }
    }
}

pub(super) fn address(hi: U16, lo: U32) -> Pba {
    Pba(u64::from(hi.get()) << 32 | u64::from(lo.get()))
}

pub(super) fn halves(pba: Pba) -> (U16, U32) {
    // Block addresses have 48 bits.
    (U16::new(stored(pba.get() >> 32)), U32::new(stored(pba.get() & u64::from(u32::MAX))))
}

pub(super) fn file_block(block: u64) -> u32 {
    stored(block)
}

/// The place of a node, for errors.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Site {
    /// The file.
    pub ino: Ino,
    /// The node's block; 0 is the inode.
    pub pba: Pba,
}

impl Site {
    /// A defect of this node.
    #[must_use]
    pub(crate) fn corrupt(&self, at: u64, what: &'static str, value: u64) -> Corrupt {
        Corrupt::Mapping { ino: self.ino, at: FileBlock(at), pba: self.pba, what, value }
    }
}

/// The range of the file that a node may map, and the blocks of the volume that it may refer to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Bounds<'a> {
    /// First file block.
    pub start: u64,
    /// File block after the last.
    pub end: u64,
    /// First block of the volume that can belong to a file.
    pub volume_start: u64,
    /// Block after the last one of the volume.
    pub volume_end: u64,
    /// Blocks in between that belong to the volume's own structures.
    pub system: SystemBlocks<'a>,
}

impl Bounds<'_> {
    /// True if `len` blocks from `pba` on can belong to a file.
    #[must_use]
    pub(crate) fn holds(&self, pba: Pba, len: u64) -> bool {
        let inside = pba.get() >= self.volume_start
            && pba.get().checked_add(len).is_some_and(|end| end <= self.volume_end);
        inside && !self.system.overlap(pba, len)
    }
}

/// Ranges of blocks (first block, block after the last one), sorted and disjoint. In Linux this is
/// the system zone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SystemBlocks<'a>(pub &'a [(u64, u64)]);

impl SystemBlocks<'_> {
    /// No ranges, for a volume whose structures are not known yet.
    pub(crate) const NONE: Self = Self(&[]);

    /// True if one of `len` blocks from `pba` on is in a range.
    #[must_use]
    pub(crate) fn overlap(&self, pba: Pba, len: u64) -> bool {
        let end = pba.get().saturating_add(len);
        let behind = self.0.partition_point(|range| range.1 <= pba.get());
        self.0.get(behind).is_some_and(|range| range.0 < end)
    }
}

/// Number of entries in a block of `block_size` bytes. The checksum fits behind them at every block
/// size.
#[must_use]
pub(crate) fn block_capacity(block_size: u32) -> usize {
    as_index(block_size).saturating_sub(ENTRY) / ENTRY
}

/// Number of entries in the root.
pub(crate) const ROOT_CAPACITY: usize = (ROOT_BYTES - ENTRY) / ENTRY;
