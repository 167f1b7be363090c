//! The structures on disk: decoding, validation, encoding. There is no I/O and no lock here.
//!
//! `Raw*` types are the bytes; decoded values are valid. Source of every fact: the kernel's ext4
//! documentation (Documentation/filesystems/ext4).

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

pub mod backup;
mod buffer;
pub mod dir_entry;
pub mod error_record;
pub mod extent;
pub mod features;
pub mod group_desc;
pub mod htree;
pub mod indirect;
pub mod inode;
pub mod layout;
pub mod orphan;
pub mod superblock;
pub mod time;
pub mod xattr;

pub use features::{Access, Compat, Features, Incompat, RoCompat};
pub use group_desc::{GroupDesc, GroupFlags};
pub use inode::{Inode, InodeFlags};
pub use layout::Layout;
pub use superblock::Superblock;
