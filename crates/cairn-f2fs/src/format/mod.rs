//! The structures on disk: decoding, validation, encoding. No I/O and no locks here.
//!
//! `Raw*` types are the bytes; what has been decoded is validated and safe to compute with. All
//! integers are little-endian, a block is 4096 bytes, a segment 512 blocks. Source of every fact:
//! the kernel's F2FS documentation (Documentation/filesystems/f2fs) and images made by f2fs-tools.
//!
//! Functions that take a whole block (`&[u8]` of [`units::BLOCK_SIZE`] bytes) panic on any other
//! length. The caller chooses the length of a buffer; only its contents come from the disk.
//!
//! Three bit orders exist: version bitmaps and `valid_map` count bits from the most significant one
//! ([`bits`]), dentry bitmaps from the least significant one (`cairn_base::bitmap`).

#![cfg_attr(
    not(test),
    deny(
        clippy::indexing_slicing,
        clippy::as_conversions,
        clippy::arithmetic_side_effects,
        clippy::unwrap_used,
        clippy::expect_used
    )
)]

pub mod bits;
pub(crate) mod block;

pub mod checkpoint;
pub mod checksum;
pub(crate) mod compact;
pub(crate) mod dentry;
pub(crate) mod error_record;
pub(crate) mod features;
pub(crate) mod hash;
pub mod inode;
pub mod layout;
pub mod log;
pub(crate) mod named;
pub mod nat;
pub mod node;
pub(crate) mod orphan;
pub mod pack;
pub(crate) mod path;
pub mod sit;
pub(crate) mod summary;
pub(crate) mod superblock;
pub mod units;
pub(crate) mod xattr;

pub use checkpoint::{Checkpoint, CheckpointFlags};
pub use features::Features;
pub use inode::Inode;
pub use layout::Layout;
pub use log::Log;
pub(crate) use nat::NatEntry;
pub use node::NodeFooter;
pub use sit::SitEntry;
pub(crate) use summary::Summary;
pub use superblock::Superblock;
pub use units::{BlockAddr, Nid, SegNo};

#[cfg(test)]
mod image_tests;
