//! The nodes below an inode whose blocks are known: direct nodes, which hold pointers to blocks,
//! and indirect nodes, which hold numbers of nodes. Each kind is numbered in the order of file
//! blocks.

use std::ops::Range;

use smallvec::SmallVec;

use crate::format::path::TreeShape;

/// Runs of file blocks that exist, apart.
pub(super) type Runs = SmallVec<[Range<u64>; 1]>;

/// Pointers that follow each other in one node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Piece {
    /// The direct node; none for pointers in the inode.
    pub(super) direct: Option<u32>,
    /// Offset of the node in the tree.
    pub(super) offset: u32,
    /// The first pointer.
    pub(super) slot: u16,
    /// How many.
    pub(super) len: u16,
}

/// The pointers of all blocks, in the order of file blocks.
///
/// # Panics
/// The tree has no place for a block: the survey checks that.
pub(super) fn pieces(shape: TreeShape, runs: &[Range<u64>]) -> impl Iterator<Item = Piece> + '_ {
    let mut runs = runs.iter().cloned();
    let mut run = runs.next().unwrap_or(0..0);
    let (mut directs, mut last) = (0, None);
    std::iter::from_fn(move || {
        if run.is_empty() {
            run = runs.next()?;
        }
        let path = shape.locate(run.start).expect("the survey checked the last block");
        let len = u64::from(path.rest).min(run.end - run.start);
        run.start += len;
        let offset = path.offset(path.depth);
        if path.depth > 0 && last != Some(offset) {
            directs += 1;
            last = Some(offset);
        }
        let direct = (path.depth > 0).then(|| directs - 1);
        Some(Piece { direct, offset, slot: path.slot(path.depth), len: len as u16 })
    })
}

/// A node below an inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Below {
    /// The direct node of this number.
    Direct(u32),
    /// The indirect node of this number.
    Indirect(u32),
}

/// The place of a node in the one above it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Link {
    /// The indirect node above it; none for the inode.
    pub(super) parent: Option<u32>,
    /// Which of its pointers.
    pub(super) slot: u16,
    /// The node.
    pub(super) node: Below,
    /// Its offset in the tree.
    pub(super) offset: u32,
}

/// The places of all nodes below the inode.
///
/// # Panics
/// As [`pieces`].
pub(super) fn links(shape: TreeShape, runs: &[Range<u64>]) -> Vec<Link> {
    let mut links = Vec::new();
    // Offset and number of the indirect nodes above the last direct one, by their depth.
    let mut above = [(0, 0); 3];
    let (mut directs, mut indirects, mut last) = (0, 0, None);
    for run in runs {
        let mut block = run.start;
        while block < run.end {
            let path = shape.locate(block).expect("the survey checked the last block");
            block += u64::from(path.rest);
            let mut parent = None;
            for (depth, known) in above.iter_mut().enumerate().take(path.depth).skip(1) {
                let offset = path.offset(depth);
                if known.0 != offset {
                    *known = (offset, indirects);
                    let (slot, node) = (path.slot(depth - 1), Below::Indirect(indirects));
                    links.push(Link { parent, slot, node, offset });
                    indirects += 1;
                }
                parent = Some(known.1);
            }
            let offset = path.offset(path.depth);
            if path.depth > 0 && last != Some(offset) {
                let (slot, node) = (path.slot(path.depth - 1), Below::Direct(directs));
                links.push(Link { parent, slot, node, offset });
                directs += 1;
                last = Some(offset);
            }
        }
    }
    links
}

/// Numbers of direct and of indirect nodes.
pub(super) fn counts(shape: TreeShape, runs: &[Range<u64>]) -> (u32, u32) {
    if runs.last().is_none_or(|run| run.end <= shape.inode_slots.into()) {
        return (0, 0);
    }
    links(shape, runs).iter().fold((0, 0), |(directs, indirects), link| match link.node {
        Below::Direct(_) => (directs + 1, indirects),
        Below::Indirect(_) => (directs, indirects + 1),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHAPE: TreeShape = TreeShape { inode_slots: 873, node_slots: 1018 };

    #[test]
    fn every_block_has_one_pointer() {
        let double = 873 + 2 * 1018 + 2 * 1018 * 1018;
        let runs = [0..2000, 3000..3001, 5000..1_040_000, double..double + 3000];
        let blocks: u64 = runs.iter().map(|run| run.end - run.start).sum();
        let all: Vec<Piece> = pieces(SHAPE, &runs).collect();
        assert_eq!(all.iter().map(|piece| u64::from(piece.len)).sum::<u64>(), blocks);
        assert_eq!(
            all[..3],
            [
                Piece { direct: None, offset: 0, slot: 0, len: 873 },
                Piece { direct: Some(0), offset: 1, slot: 0, len: 1018 },
                Piece { direct: Some(1), offset: 2, slot: 0, len: 109 },
            ]
        );
        let last = all.last().unwrap();
        let (directs, indirects) = counts(SHAPE, &runs);
        assert_eq!(last.direct, Some(directs - 1));
        // Two single ones, the double one, and one below it.
        assert_eq!(indirects, 4);
        let links = links(SHAPE, &runs);
        let offsets: Vec<u32> = links
            .iter()
            .filter(|link| matches!(link.node, Below::Direct(_)))
            .map(|link| link.offset)
            .collect();
        let mut of_pieces: Vec<u32> =
            all.iter().filter(|piece| piece.direct.is_some()).map(|piece| piece.offset).collect();
        of_pieces.dedup();
        assert_eq!(offsets, of_pieces);
    }

    #[test]
    fn small_files_have_no_nodes() {
        let counts_of = |run: Range<u64>| counts(SHAPE, &[run]);
        assert_eq!(counts(SHAPE, &[]), (0, 0));
        assert_eq!(counts_of(0..873), (0, 0));
        assert_eq!(counts_of(0..874), (1, 0));
        assert_eq!(counts_of(10_000..10_001), (1, 1));
    }
}
