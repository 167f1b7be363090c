//! `dump`: shows one structure of a volume, which need not mount. Nothing is written, and no log is
//! replayed: what is shown is what stands on the device.

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
mod groups;
mod htree;
mod inode;
mod journal;
mod map;
mod record;
mod superblock;
mod xattrs;

pub use journal::show_journal;

use std::sync::Arc;

use cairn_block::BlockDevice;
use cairn_check::Fields;

use crate::error::Result;
use crate::raw::{RawVolume, SuperblockChoice};

/// A structure. Inodes are named by a number or a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum What {
    /// The superblock in use.
    Superblock,
    /// A group descriptor, or all.
    Groups(Option<u32>),
    /// A block: what it is, whose it is, and its bytes.
    Block(u64),
    /// An inode's record.
    Inode(Vec<u8>),
    /// The block map of an inode.
    Extents(Vec<u8>),
    /// The index of a directory.
    Htree(Vec<u8>),
    /// The extended attributes of an inode.
    Xattrs(Vec<u8>),
}

/// Shows a structure.
///
/// # Errors
/// There is no superblock as asked for, or no such structure, or the device failed.
pub fn dump(device: Arc<dyn BlockDevice>, choice: SuperblockChoice, what: &What) -> Result<Fields> {
    let volume = RawVolume::open(device, choice)?;
    let mut fields = match what {
        What::Superblock => superblock::show(&volume),
        What::Groups(group) => groups::show(&volume, *group)?,
        What::Block(block) => block::show(&volume, *block)?,
        What::Inode(word) => inode::show(&volume, volume.find(word)?)?,
        What::Extents(word) => map::show(&volume, volume.find(word)?)?,
        What::Htree(word) => htree::show(&volume, volume.find(word)?)?,
        What::Xattrs(word) => xattrs::show(&volume, volume.find(word)?)?,
    };
    if !volume.notes.is_empty() {
        fields.put("warnings", volume.notes.clone());
    }
    Ok(fields)
}
