//! `dump`: shows one structure of a volume, which need not mount. Nothing is written, and no chain
//! of fsynced nodes is replayed: what is shown is what stands on the device.

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

mod block;
pub(crate) mod checkpoint;
mod inode;
mod journal;
mod superblock;
pub(crate) mod tables;

pub use journal::show_journal;

use std::sync::Arc;

use cairn_block::BlockDevice;
use cairn_check::Fields;

use crate::error::Result;
use crate::raw::{Choice, RawVolume};

/// A structure. Inodes are named by a number or a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum What {
    /// The superblock in use.
    Superblock,
    /// Both checkpoint packs.
    Checkpoint,
    /// An inode.
    Inode(Vec<u8>),
    /// The nodes and the contents of an inode.
    Nodes(Vec<u8>),
    /// The extended attributes of an inode.
    Xattrs(Vec<u8>),
    /// The address of a node.
    Nat(u32),
    /// What is valid in a segment.
    Sit(u32),
    /// All segments in use.
    Segments,
    /// The owners of the blocks of a segment.
    Summary(u32),
    /// A block: what it is, whose it is, and its bytes.
    Block(u64),
}

/// Shows a structure.
///
/// # Errors
/// There is no superblock or checkpoint as asked for, or no such structure, or the device failed.
pub fn dump(device: Arc<dyn BlockDevice>, choice: Choice, what: &What) -> Result<Fields> {
    let volume = RawVolume::open(device, choice)?;
    let mut fields = match what {
        What::Superblock => superblock::show(&volume),
        What::Checkpoint => checkpoint::show(&volume),
        What::Inode(word) => inode::show(&volume, volume.find(word)?)?,
        What::Nodes(word) => inode::nodes(&volume, volume.find(word)?)?,
        What::Xattrs(word) => inode::xattrs(&volume, volume.find(word)?)?,
        What::Nat(nid) => tables::nat(&volume, *nid)?,
        What::Sit(segno) => tables::sit(&volume, *segno)?,
        What::Segments => tables::segments(&volume),
        What::Summary(segno) => tables::summary(&volume, *segno)?,
        What::Block(block) => block::show(&volume, *block)?,
    };
    if !volume.notes.is_empty() {
        fields.put("warnings", volume.notes.clone());
    }
    Ok(fields)
}
