//! Builds ext4 and F2FS images from directories, archives, container images and other images, and
//! turns images back into archives.
//!
//! Sources are put over each other in an *assembly*, which becomes a [`Tree`]: inodes with dense
//! ids in an order that depends on names alone. File contents stay where they are. A sink reads the
//! tree once and writes the volume. Everything that is written follows from the sources and the
//! options: the same sources give the same bytes.
//!
//! Bytes of archives are not trusted: see [`crate::error::Error::Member`].

#![forbid(unsafe_code)]
#![warn(unreachable_pub)]

mod assembly;
mod base64;
mod before;
mod build;
mod compare;
mod delivery;
mod direct;
mod disk;
pub mod error;
mod estimate;
mod export;
mod extents;
mod holes;
mod leftovers;
mod manifest;
mod node;
mod options;
mod output;
mod path;
mod qcow2;
mod read;
mod regular;
mod rules;
mod sink;
mod sparse;
mod store;
mod temporary;
mod times;
mod tree;
mod users;
mod volume;

pub use build::build;
pub use compare::{Change, CompareOptions, Difference, compare};
pub use delivery::Shape;
pub use disk::options::{Contents, DiskOptions, KindWish, PartitionOptions};
pub use error::{Error, Result};
pub use export::{
    Compression, ExportOptions, Left, OciOptions, Target, export, remove_inherited_lists,
};
pub use leftovers::{LEFTOVERS, Leftovers, Made, Touched};
pub use node::{Kind, Metadata, Node, NodeId, RegularFile, Xattr};
pub use options::{Built, Free, Options, Size};
pub use output::{check_replaceable, replace};
pub use read::{Source, assemble, is_layout};
pub use rules::{IdRange, PathTest, Rules};
pub use sink::{WriteError, Writer};
pub use sparse::{PackOptions, UnpackOptions, pack, unpack};
pub use store::Limits;
pub use temporary::abandon;
pub use times::settle_times;
pub use tree::{TakeName, Tree};
