//! How much room a tree takes in a new volume: an upper bound, computed before the volume is made.
//!
//! The bound is close: it counts every block of data, maps, attributes and directories. Only the
//! fill of hashed directories is estimated, because it depends on the names' hashes.

mod blocks;
mod ext4;
mod f2fs;

use cairn::Format;

pub(crate) use self::blocks::BLOCK;
use crate::node::Node;
use crate::tree::Tree;

/// What a tree takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Need {
    /// Blocks of 4096 bytes, beside what mkfs takes.
    pub(crate) blocks: u64,
    /// Inodes, the root included.
    pub(crate) inodes: u64,
}

/// What the tree takes on a volume of this format.
pub(crate) fn need(format: Format, tree: &Tree) -> Need {
    let of = |node: &Node| match format {
        Format::F2fs => f2fs::blocks(node),
        _ => ext4::blocks(node),
    };
    let nodes = tree.nodes();
    let blocks = nodes.iter().map(of).fold(0_u64, u64::saturating_add);
    let inodes = nodes.len() as u64;
    let blocks = match format {
        Format::F2fs => f2fs::with_slack(blocks),
        _ => ext4::with_slack(blocks),
    };
    Need { blocks, inodes }
}

/// Blocks of an empty volume that a mount gives to no file.
pub(crate) fn held_back(format: Format, blocks: u64) -> u64 {
    match format {
        Format::F2fs => 0,
        _ => ext4::held_back(blocks),
    }
}
