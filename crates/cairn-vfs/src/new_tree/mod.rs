//! The tree that a new volume is filled with, before any format: what it is ([`Source`]), how its
//! nodes are named ([`names()`]), which blocks of files hold data, and their contents.

mod contents;
mod error;
mod names;
mod source;

pub use contents::{Segments, check_ranges, read_blocks, read_part, segments};
pub use error::TreeError;
pub use names::{Named, ROOT, find, names};
pub use source::{Kind, Node, ReadResult, Source};
