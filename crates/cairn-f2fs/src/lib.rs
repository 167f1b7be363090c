//! The F2FS format: reading, writing, making.
//!
//! `format` decodes and encodes and does no I/O; everything else is built on it.

#![forbid(unsafe_code)]

pub mod blocks;
pub mod checkpoint;
pub mod corrupt;
pub mod error;
pub mod format;
pub mod gate;
pub mod nat;
pub mod node;
pub mod recovery;
pub mod segment;
pub mod space;
pub mod store;

pub use corrupt::Corrupt;
pub use error::{Error, Result};
