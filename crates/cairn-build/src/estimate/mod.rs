//! How much room a tree takes in a new volume: an upper bound, computed before the volume is made.
//!
//! The bound is close: it counts every block of data, maps, attributes and directories. Only the
//! fill of hashed directories is estimated, because it depends on the names' hashes.

mod ext4;
mod f2fs;

use cairn::Format;

use crate::node::{Kind, Node};
use crate::tree::Tree;

/// Bytes of a block, in both formats.
pub(crate) const BLOCK: u64 = 4096;

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

/// Blocks with data of a regular file: a block that two ranges share counts once.
fn data_blocks(node: &Node) -> (u64, u64) {
    let Kind::Regular(file) = &node.kind else { return (0, 0) };
    let (mut blocks, mut runs, mut end) = (0_u64, 0_u64, None);
    for range in &file.data {
        let first = range.start / BLOCK;
        let last = range.end.div_ceil(BLOCK);
        let from = end.map_or(first, |end: u64| first.max(end));
        blocks = blocks.saturating_add(last.saturating_sub(from));
        runs += u64::from(end.is_none_or(|end| first > end));
        end = Some(last);
    }
    (blocks, runs)
}
