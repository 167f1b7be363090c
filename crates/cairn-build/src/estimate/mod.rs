//! How much room a tree takes in a new ext4 volume that is filled through a mount: an upper bound,
//! computed before the volume is made.
//!
//! The bound is close: it counts every block of data, maps, attributes and directories. Only the
//! fill of hashed directories is estimated, because it depends on the names' hashes.

mod blocks;
mod ext4;

pub(crate) use self::blocks::BLOCK;
use crate::tree::Tree;

/// What a tree takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Need {
    /// Blocks of 4096 bytes, beside what mkfs takes.
    pub(crate) blocks: u64,
    /// Inodes, the root included.
    pub(crate) inodes: u64,
}

/// What the tree takes.
pub(crate) fn need(tree: &Tree) -> Need {
    let nodes = tree.nodes();
    let blocks = nodes.iter().map(ext4::blocks).fold(0_u64, u64::saturating_add);
    let inodes = nodes.len() as u64;
    Need { blocks: ext4::with_slack(blocks), inodes }
}

/// Blocks of an empty volume that a mount gives to no file.
pub(crate) fn held_back(blocks: u64) -> u64 {
    ext4::held_back(blocks)
}
