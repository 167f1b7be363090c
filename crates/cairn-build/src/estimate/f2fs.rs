//! F2FS: a node block for each inode and attribute set, direct nodes for large files, and
//! directories of hashed levels.

use super::blocks::{BLOCK, data_blocks};
use crate::node::{Kind, Node};

/// Block addresses in an inode with inline attributes, and in a direct node.
const IN_INODE: u64 = 873;
const IN_NODE: u64 = 1018;
/// Largest file, and target, that an inode holds.
const INLINE: u64 = 3400;
/// Slots of 8 bytes of name in an inode, and in a block.
const INLINE_SLOTS: u64 = 160;
const SLOTS: u64 = 214;
/// Bytes of attributes in an inode.
const INLINE_XATTR: usize = 200 - 24 - 4;

/// Blocks of a node.
pub(super) fn blocks(node: &Node) -> u64 {
    let (data, last) = match &node.kind {
        Kind::Regular(file) => {
            let is_inline = file.size <= INLINE;
            let last = file.data.last().map_or(0, |range| range.end.div_ceil(BLOCK));
            if is_inline { (0, 0) } else { (data_blocks(node).0, last) }
        }
        Kind::Directory(entries) => {
            let slots = entries.iter().map(|(name, _)| (name.len() as u64).div_ceil(8)).sum();
            let blocks = directory(slots);
            (blocks, blocks * 2)
        }
        Kind::Symlink(target) => {
            let data = u64::from(target.len() as u64 > INLINE);
            (data, data)
        }
        _ => (0, 0),
    };
    1_u64
        .saturating_add(data)
        .saturating_add(direct_nodes(node, data, last))
        .saturating_add(u64::from(needs_attribute_node(node)))
}

/// Nodes that hold block addresses: those behind the inode, of ranges with data only.
fn direct_nodes(node: &Node, data: u64, last: u64) -> u64 {
    let Some(behind) = last.checked_sub(IN_INODE).filter(|behind| *behind > 0) else { return 0 };
    let dense = behind.div_ceil(IN_NODE);
    let direct = match &node.kind {
        Kind::Regular(file) => {
            let spread = data.div_ceil(IN_NODE).saturating_add(file.data.len() as u64 * 2);
            dense.min(spread)
        }
        _ => dense,
    };
    // Two single indirect nodes, a double one and those below it.
    direct + direct.div_ceil(IN_NODE) + 2 + if last > 2_000_000 { 2 * direct.min(1018) } else { 0 }
}

/// A directory has levels of 1, 2, 4… buckets of two blocks. A level is used when a bucket of the
/// one before it is full.
fn directory(slots: u64) -> u64 {
    if slots <= INLINE_SLOTS {
        return 0;
    }
    let (mut blocks, mut room) = (0_u64, 0_u64);
    let mut buckets = 1_u64;
    // Names do not spread evenly: a level is left when most of it is full.
    while room < slots {
        blocks += buckets * 2;
        room += buckets * 2 * SLOTS * 3 / 4;
        buckets *= 2;
    }
    blocks.min(slots.div_ceil(SLOTS / 4) + 8)
}

fn needs_attribute_node(node: &Node) -> bool {
    let bytes: usize = node
        .metadata
        .xattrs
        .iter()
        .map(|xattr| (4 + xattr.name.len() + xattr.value.len()).next_multiple_of(4))
        .sum();
    bytes > INLINE_XATTR
}

/// A checkpoint in the middle writes nodes again.
pub(super) fn with_slack(blocks: u64) -> u64 {
    blocks + blocks / 100 + 64
}
