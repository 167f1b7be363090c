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

pub(crate) mod backup;
mod buffer;
pub(crate) mod dir_entry;
pub(crate) mod error_record;
pub(crate) mod extent;
pub(crate) mod features;
pub(crate) mod group_desc;
pub(crate) mod htree;
pub(crate) mod indirect;
pub(crate) mod inode;
pub(crate) mod layout;
pub(crate) mod mmp;
pub(crate) mod orphan;
pub(crate) mod superblock;
pub(crate) mod time;
pub(crate) mod xattr;
