//! Virtual disks in files: each format takes the device that holds the file, and is itself a
//! [`BlockDevice`](cairn_block::BlockDevice), the disk. Nothing above knows which it is.
//!
//! [`qcow2`] is read and written. [`zst`] is read. This crate knows no paths: whoever opens a disk
//! opens the files that it needs.

#![forbid(unsafe_code)]
#![warn(unreachable_pub)]
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

pub mod qcow2;
mod recognise;
pub mod zst;
mod zstd_frame;

pub use recognise::{Kind, recognise};
