//! Regular files: which blocks hold data, and the extents that map them.

use std::ops::Range;

use cairn_vfs::new_tree::{check_ranges, segments};

use super::settings::Settings;
use super::stream::Stream;
use crate::format::extent::{
    Entries, Extent, Index, MAX_FILE_BLOCKS, MAX_WRITTEN, Node, ROOT_CAPACITY, block_capacity,
};
use crate::format::features::RoCompat;

/// Largest file without the feature large_file.
const SMALL_FILE_MAX: u64 = (1 << 31) - 1;

/// Checks the ranges of a file, and counts the blocks that hold data.
pub(super) fn data_blocks(
    size: u64,
    data: &[Range<u64>],
    settings: &Settings,
) -> Result<u64, String> {
    if size > SMALL_FILE_MAX && !settings.features.ro_compat(RoCompat::LARGE_FILE) {
        return Err(format!("{size} bytes need the feature large_file"));
    }
    if size.div_ceil(settings.block_size as u64) > MAX_FILE_BLOCKS {
        return Err(format!("{size} bytes are more than a file can have"));
    }
    check_ranges(size, data)?;
    Ok(segments(data, settings.block_size as u64).map(|run| run.end - run.start).sum())
}

/// The extents of a file whose blocks follow each other in the stream from `at` on.
pub(super) fn extents(
    segments: impl Iterator<Item = Range<u64>>,
    at: u64,
    stream: &Stream,
) -> Vec<Extent> {
    let mut extents = Vec::new();
    let mut at = at;
    for segment in segments {
        let mut start = segment.start;
        while start < segment.end {
            let (pba, len) = stream.run(at, (segment.end - start).min(MAX_WRITTEN));
            extents.push(Extent { start, len, pba, unwritten: false });
            start += len;
            at += len;
        }
    }
    extents
}

/// Blocks of the tree below the root that hold this many extents.
pub(super) fn tree_blocks(extents: usize, block_size: u32) -> u64 {
    let (mut nodes, mut blocks) = (extents, 0);
    while nodes > ROOT_CAPACITY {
        nodes = nodes.div_ceil(block_capacity(block_size));
        blocks += nodes as u64;
    }
    blocks
}

/// The root, and the nodes below it. Their blocks follow each other in the stream from `at` on.
pub(super) fn tree(
    extents: Vec<Extent>,
    at: u64,
    stream: &Stream,
    block_size: u32,
) -> (Node, Vec<Node>) {
    let mut below = Vec::new();
    let mut root = Node { depth: 0, entries: Entries::Leaf(extents) };
    while root.entries.len() > ROOT_CAPACITY {
        let mut indexes = Vec::new();
        let depth = root.depth;
        let mut rest = root.entries;
        while rest.len() > 0 {
            let capacity = block_capacity(block_size).min(rest.len());
            let behind = rest.split_off(capacity);
            let child = stream.run(at + below.len() as u64, 1).0;
            indexes.push(Index { start: rest.first_key().unwrap_or(0), child });
            below.push(Node { depth, entries: rest });
            rest = behind;
        }
        root = Node { depth: depth + 1, entries: Entries::Inner(indexes) };
    }
    (root, below)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trees_have_the_blocks_that_were_counted() {
        let stream = Stream::new(vec![(100, 1_000_000)]);
        for count in [1, 4, 5, 84, 85, 336, 337, 30_000] {
            let data: Vec<_> = (0..count).map(|n| n * 2048..n * 2048 + 1).collect();
            let all = extents(segments(&data, 1024), 0, &stream);
            let expected = tree_blocks(all.len(), 1024);
            let (root, below) = tree(all, count, &stream, 1024);
            assert_eq!(below.len() as u64, expected, "{count} extents");
            assert!(root.entries.len() <= ROOT_CAPACITY);
        }
    }
}
