//! The journal's structures on disk. All integers are big-endian.
//!
//! Each `Raw*` struct has the field names of the specification. The other types hold validated
//! values. Source: "Journal (jbd2)" in the kernel's ext4 documentation.

#![deny(
    clippy::indexing_slicing,
    clippy::as_conversions,
    clippy::arithmetic_side_effects,
    clippy::unwrap_used,
    clippy::expect_used
)]

pub(crate) mod blocks;
pub(crate) mod superblock;
pub(crate) mod tags;

use cairn_base::Tid;
use zerocopy::big_endian::U32;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// `h_magic` of every journal block that is not a copy of a metadata block.
pub(crate) const MAGIC: u32 = 0xc03b_3998;

/// Does a block begin with `h_magic`, as the first one of a journal does?
#[must_use]
pub fn has_magic(block: &[u8]) -> bool {
    block.first_chunk() == Some(&MAGIC.to_be_bytes())
}

/// Kinds of journal blocks (`h_blocktype`).
pub(crate) mod kind {
    /// Descriptor block: holds the tags of the metadata blocks that follow.
    pub(crate) const DESCRIPTOR: u32 = 1;
    /// Commit block.
    pub(crate) const COMMIT: u32 = 2;
    /// Superblock, version 1.
    pub(crate) const SUPERBLOCK_V1: u32 = 3;
    /// Superblock, version 2.
    pub(crate) const SUPERBLOCK_V2: u32 = 4;
    /// Revoke block.
    pub(crate) const REVOKE: u32 = 5;
}

/// `journal_header_t`.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub(crate) struct RawHeader {
    /// [`MAGIC`].
    pub(crate) h_magic: U32,
    /// One of [`kind`].
    pub(crate) h_blocktype: U32,
    /// Transaction that the block belongs to.
    pub(crate) h_sequence: U32,
}

/// Bytes of a header.
pub(crate) const HEADER: usize = size_of::<RawHeader>();
const _: () = assert!(HEADER == 12);

impl RawHeader {
    /// A header of this kind.
    pub(crate) fn new(kind: u32, tid: Tid) -> Self {
        Self { h_magic: MAGIC.into(), h_blocktype: kind.into(), h_sequence: tid.0.into() }
    }

    /// The header of a block. `None` if the block does not begin with [`MAGIC`].
    pub(crate) fn read(block: &[u8]) -> Option<Self> {
        let (header, _) = Self::read_from_prefix(block).ok()?;
        (header.h_magic.get() == MAGIC).then_some(header)
    }

    /// Transaction that the block belongs to.
    pub(crate) fn tid(&self) -> Tid {
        Tid(self.h_sequence.get())
    }
}

bitflags::bitflags! {
    /// `s_feature_incompat`.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct Incompat: u32 {
        /// Revoke blocks may occur in the log.
        const REVOKE = 0x1;
        /// Tags and revoke records hold 64-bit addresses.
        const BITS_64 = 0x2;
        /// The commit block may be written together with the rest of its transaction.
        const ASYNC_COMMIT = 0x4;
        /// Checksums, version 2.
        const CSUM_V2 = 0x8;
        /// Checksums, version 3: the tag is larger and holds all 32 bits of the checksum.
        const CSUM_V3 = 0x10;
        /// The journal has a fast-commit area behind the log.
        const FAST_COMMIT = 0x20;
    }

    /// `s_feature_compat`.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct Compat: u32 {
        /// Commit blocks hold a CRC-32 of the transaction's blocks.
        const CHECKSUM = 0x1;
    }
}
