//! The ext4 format: reading, writing, making.
//!
//! Layers inside the crate, downward only: [`volume`] and the `vfs` front wire the parts; `inode`, `dir`, `xattr`,
//! `extent`, `indirect` and `alloc` each know one structure and get only the parts below them; `format` decodes and
//! encodes and does no I/O. Every metadata change goes through a [`txn::Handle`].

#![forbid(unsafe_code)]

pub mod checksum;
pub mod corrupt;
pub mod error;
pub mod extent;
pub mod format;
pub mod indirect;
pub mod map;
pub mod space;
pub mod status;
pub mod txn;

pub use corrupt::Corrupt;
pub use error::{Error, Result};
