//! The F2FS format: reading, writing, making.
//!
//! `format` decodes and encodes and does no I/O; everything else is built on it.

#![forbid(unsafe_code)]

pub mod corrupt;
pub mod format;

pub use corrupt::Corrupt;
