//! Android's sparse images, version 1.0: [`pack`] makes one of an image, [`unpack`] an image of
//! one.
//!
//! An image is a row of *chunks*: blocks as they are, blocks that repeat four bytes, and blocks
//! that nobody cares about. Nothing of a sparse file is trusted: sizes are checked before anything
//! is written, and no more is written than the host has room for.

mod crc;
mod format;
mod pack;
mod unpack;

pub(crate) use pack::{Form, write};
pub use pack::{PackOptions, pack};
pub use unpack::{UnpackOptions, unpack};
