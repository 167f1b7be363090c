//! ext4: extents, index blocks, attribute blocks and hashed directories, with blocks of 4096 bytes
//! and inodes of 256.

use super::blocks::{BLOCK, data_blocks};
use crate::node::{Kind, Node};

/// Bytes for attributes in an inode of 256 bytes, behind the 4 bytes of their magic number.
const IN_INODE: usize = 256 - 128 - 32 - 4;
/// Longest target that an inode holds.
const FAST_SYMLINK: usize = 59;
/// Extents in an inode, and in a block.
const ROOT_EXTENTS: u64 = 4;
const LEAF_EXTENTS: u64 = 340;
/// Longest run of blocks that a group has beside its metadata, if nothing else is in it. Files that
/// are larger have several extents; this many blocks are expected for each.
const RUN: u64 = 8192;
/// Bytes of a directory block for entries: a checksum is behind them.
const DIRECTORY: u64 = BLOCK - 12;
/// Entries of an index block.
const INDEX: u64 = 500;

/// Blocks of a node.
pub(super) fn blocks(node: &Node) -> u64 {
    let own = match &node.kind {
        Kind::Regular(_) => {
            let (blocks, runs) = data_blocks(node);
            let extents = runs + blocks / RUN;
            let map = if extents > ROOT_EXTENTS { map_blocks(extents) } else { 0 };
            blocks.saturating_add(map)
        }
        Kind::Directory(entries) => directory(entries.iter().map(|(name, _)| name.len() as u64)),
        Kind::Symlink(target) => u64::from(target.len() > FAST_SYMLINK),
        _ => 0,
    };
    own.saturating_add(u64::from(needs_attribute_block(node)))
}

/// Leaves of an extent tree that is filled from left to right, and the nodes above them.
fn map_blocks(extents: u64) -> u64 {
    let leaves = extents.div_ceil(LEAF_EXTENTS - 1);
    leaves + if leaves > ROOT_EXTENTS { leaves.div_ceil(LEAF_EXTENTS - 1) } else { 0 }
}

/// A leaf of a hashed directory is split in halves when it is full: it is between half full and
/// full, and two thirds full in the mean of many.
fn directory(names: impl Iterator<Item = u64>) -> u64 {
    let bytes: u64 = names.map(|len| 8 + len.next_multiple_of(4)).sum();
    if bytes + 24 <= DIRECTORY {
        return 1;
    }
    let least = bytes.div_ceil(DIRECTORY);
    let leaves = if least < 32 { least * 2 } else { least + least * 3 / 5 };
    let indexes = leaves.div_ceil(INDEX / 2);
    1 + leaves + if leaves > INDEX / 2 { indexes } else { 0 }
}

fn needs_attribute_block(node: &Node) -> bool {
    let size = |len: usize| len.next_multiple_of(4);
    let bytes: usize = node
        .metadata
        .xattrs
        .iter()
        .map(|xattr| 16 + size(xattr.name.len()) + size(xattr.value.len()))
        .sum();
    // An end mark of 4 bytes follows the entries.
    bytes > 0 && bytes + 4 > IN_INODE
}

/// The allocator may keep a few blocks back while it works.
pub(super) fn with_slack(blocks: u64) -> u64 {
    blocks + blocks / 200 + 8
}

/// ext4 keeps blocks for maps of delayed data (Linux: `s_resv_clusters`): two per cent, at most
/// 4096.
pub(super) fn held_back(blocks: u64) -> u64 {
    (blocks / 50).min(4096)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directories_grow_with_their_names() {
        assert_eq!(directory(std::iter::empty()), 1);
        assert_eq!(directory([10; 100].into_iter()), 1);
        let large = directory(std::iter::repeat_n(10, 100_000));
        let exact = 100_000 * 20 / DIRECTORY;
        assert!((exact..exact * 2).contains(&large), "{large}");
    }
}
