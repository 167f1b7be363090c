//! The journal's structures on disk. All integers are big-endian.
//!
//! Source: "Journal (jbd2)" in the kernel's ext4 documentation.

pub mod blocks;
pub mod superblock;
pub mod tags;

use cairn_base::Tid;
use zerocopy::big_endian::U32;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// `h_magic` of every journal block that is not a copy of a metadata block.
pub const MAGIC: u32 = 0xc03b_3998;

/// Kinds of journal blocks (`h_blocktype`).
pub mod kind {
    /// Descriptor: tags of the copies that follow.
    pub const DESCRIPTOR: u32 = 1;
    /// Commit record.
    pub const COMMIT: u32 = 2;
    /// Superblock, version 1.
    pub const SUPERBLOCK_V1: u32 = 3;
    /// Superblock, version 2.
    pub const SUPERBLOCK_V2: u32 = 4;
    /// Revoke records.
    pub const REVOKE: u32 = 5;
}

/// `journal_header_t`.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct RawHeader {
    /// [`MAGIC`].
    pub h_magic: U32,
    /// One of [`kind`].
    pub h_blocktype: U32,
    /// Transaction.
    pub h_sequence: U32,
}

/// Bytes of a header.
pub const HEADER: usize = size_of::<RawHeader>();
const _: () = assert!(HEADER == 12);

impl RawHeader {
    /// A header of this kind.
    #[must_use]
    pub fn new(kind: u32, tid: Tid) -> Self {
        Self { h_magic: MAGIC.into(), h_blocktype: kind.into(), h_sequence: tid.0.into() }
    }

    /// The header of a block, if it starts with one.
    #[must_use]
    pub fn read(block: &[u8]) -> Option<Self> {
        let (header, _) = Self::read_from_prefix(block).ok()?;
        (header.h_magic.get() == MAGIC).then_some(header)
    }

    /// Transaction number.
    #[must_use]
    pub fn tid(&self) -> Tid {
        Tid(self.h_sequence.get())
    }
}

bitflags::bitflags! {
    /// `s_feature_incompat`.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct Incompat: u32 {
        /// Revoke blocks may occur.
        const REVOKE = 0x1;
        /// Tags and revoke records hold 64-bit addresses.
        const BITS_64 = 0x2;
        /// The commit record may be written together with its transaction.
        const ASYNC_COMMIT = 0x4;
        /// Checksums, second layout.
        const CSUM_V2 = 0x8;
        /// Checksums, third layout: larger tags with a whole checksum.
        const CSUM_V3 = 0x10;
        /// Fast-commit blocks may follow the log.
        const FAST_COMMIT = 0x20;
    }

    /// `s_feature_compat`.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct Compat: u32 {
        /// Commit records hold a checksum over the transaction's blocks.
        const CHECKSUM = 0x1;
    }
}
