//! Blocks of data.

use crate::node::{Kind, Node};

/// Bytes of a block.
pub(crate) const BLOCK: u64 = 4096;

/// Blocks with data of a regular file, and the runs that they form. A block that two ranges share
/// counts once.
pub(super) fn data_blocks(node: &Node) -> (u64, u64) {
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
