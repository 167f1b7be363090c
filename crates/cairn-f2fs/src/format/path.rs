//! Arithmetic of the node tree: which pointer of which node a file block is, and which node has
//! which offset.
//!
//! An inode has `inode_slots` data pointers of its own (it varies, see
//! `super::Inode::address_slots`) and five nids: two direct nodes, two indirect ones, one double
//! indirect. With N = 1018 pointers per node, offsets in the tree are: inode 0, direct 1 and 2,
//! indirect 3 with its directs 4…, indirect 4+N with its directs 5+N…, double indirect 5+2N, its
//! k-th indirect 6+2N+k(N+1), followed by that one's directs.

use cairn_base::units::{as_index, as_u64};

use super::layout::Layout;
use super::node::{FANOUT, NodeFooter, XATTR_OFFSET};
use super::units::BlockAddr;

/// [`FANOUT`] for file blocks.
const N: u64 = as_u64(as_index(FANOUT));
/// Offset of the first indirect node.
const FIRST_INDIRECT: u32 = 3;
/// Offset of the second indirect node.
const SECOND_INDIRECT: u32 = 4 + FANOUT;
/// Offset of the double indirect node.
const DOUBLE_INDIRECT: u32 = 5 + 2 * FANOUT;
/// Offset of the first indirect node below the double indirect one.
const INDIRECTS: u32 = DOUBLE_INDIRECT + 1;
/// Offsets that one of those and its direct nodes take.
const SUBTREE: u32 = 1 + FANOUT;
/// One more than the highest offset.
const END: u32 = INDIRECTS + FANOUT * SUBTREE;
/// Direct nodes that come before those below the double indirect node.
const DIRECTS_BEFORE: u32 = 2 + 2 * FANOUT;

/// Offsets of the nodes that an inode's five nids name, in their order.
pub(crate) const INODE_NODES: [u32; 5] = [1, 2, FIRST_INDIRECT, SECOND_INDIRECT, DOUBLE_INDIRECT];

/// The offset of the first child of the node at an offset, and the distance from each child to the
/// next; `None` if it has no children.
#[must_use]
pub(crate) const fn children(offset: u32) -> Option<(u32, u32)> {
    match NodeKind::at(offset) {
        Some(NodeKind::Indirect) => Some((child(offset, 0), 1)),
        Some(NodeKind::DoubleIndirect) => Some((child(offset, 0), SUBTREE)),
        _ => None,
    }
}

/// How many data pointers an inode and its direct nodes use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TreeShape {
    /// Data pointers in the inode (0 to 923).
    pub(crate) inode_slots: u32,
    /// Data pointers used in a direct node: 1018, or less where whole clusters must fit.
    pub(crate) node_slots: u32,
}

/// The path from an inode to a data pointer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NodePath {
    /// Nodes below the inode: 0 (the pointer is in the inode) to 3.
    pub(crate) depth: usize,
    /// With depth 0, `slots[0]` is the data pointer in the inode; else it is the index of the
    /// inode's nid (0 to 4) and `slots[d]` the index within the node at depth `d`.
    pub(crate) slots: [u16; 4],
    /// Offsets in the tree of the nodes at each depth; `offsets[0]` is 0, the inode.
    pub(crate) offsets: [u32; 4],
    /// Data pointers from this one to the end of its node, itself included.
    pub(crate) rest: u32,
}

impl NodePath {
    /// The index within the node at a depth; 0 beyond the last one.
    #[must_use]
    pub(crate) fn slot(&self, depth: usize) -> u16 {
        self.slots.get(depth).copied().unwrap_or_default()
    }

    /// The offset in the tree of the node at a depth; 0 beyond the last one.
    #[must_use]
    pub(crate) fn offset(&self, depth: usize) -> u32 {
        self.offsets.get(depth).copied().unwrap_or_default()
    }
}

/// The kind of node at an offset of the tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NodeKind {
    /// The inode.
    Inode,
    /// A direct node: pointers are block addresses.
    Direct,
    /// An indirect node: pointers are nids of direct nodes.
    Indirect,
    /// The double indirect node: pointers are nids of indirect nodes.
    DoubleIndirect,
    /// The attribute node.
    Xattr,
}

impl NodeKind {
    /// The kind at an offset; `None` beyond the tree.
    #[must_use]
    pub(crate) const fn at(offset: u32) -> Option<Self> {
        Some(match offset {
            0 => Self::Inode,
            XATTR_OFFSET => Self::Xattr,
            FIRST_INDIRECT | SECOND_INDIRECT => Self::Indirect,
            DOUBLE_INDIRECT => Self::DoubleIndirect,
            END.. => return None,
            1..DOUBLE_INDIRECT => Self::Direct,
            _ if offset % SUBTREE == INDIRECTS % SUBTREE => Self::Indirect,
            _ => Self::Direct,
        })
    }
}

impl NodeFooter {
    /// Can it be the footer of a node of this volume? Other blocks rarely look like one.
    #[must_use]
    pub(crate) fn is_possible(&self, layout: &Layout) -> bool {
        let next = self.next_blkaddr;
        let end = u64::from(layout.main).saturating_add(layout.main_blocks());
        layout.is_nid(self.nid)
            && layout.is_nid(self.ino)
            && self.is_inode() == (self.offset == 0)
            && NodeKind::at(self.offset).is_some()
            && (next == BlockAddr::NULL || layout.in_main(next) || u64::from(next.get()) == end)
    }
}

impl TreeShape {
    /// Blocks a file can have: one more than the last file block.
    #[must_use]
    pub(crate) fn max_blocks(self) -> u64 {
        const DIRECTS: u64 = 2 + 2 * N + N * N;
        u64::from(self.node_slots).strict_mul(DIRECTS).strict_add(self.inode_slots.into())
    }

    /// The path to a file block; `None` beyond [`TreeShape::max_blocks`].
    #[must_use]
    pub(crate) fn locate(self, block: u64) -> Option<NodePath> {
        let Some(block) = block.checked_sub(self.inode_slots.into()) else {
            let slot = u16::try_from(block).ok()?;
            let rest = self.inode_slots.checked_sub(slot.into())?;
            return Some(NodePath { depth: 0, slots: [slot, 0, 0, 0], offsets: [0; 4], rest });
        };
        // The other blocks are in direct nodes.
        let node = u64::from(self.node_slots);
        let direct = u32::try_from(block.checked_div(node)?).ok()?;
        let slot = u32::try_from(block.checked_rem(node)?).ok()?;
        let rest = self.node_slots.checked_sub(slot)?;
        let at =
            |depth, slots, offsets| Some(NodePath { depth, slots: narrow(slots)?, offsets, rest });
        let Some(direct) = direct.checked_sub(2) else {
            return at(1, [direct, slot, 0, 0], [0, child(0, direct), 0, 0]);
        };
        let Some(direct) = direct.checked_sub(2 * FANOUT) else {
            let (parent, indirect) =
                if direct < FANOUT { (2, FIRST_INDIRECT) } else { (3, SECOND_INDIRECT) };
            let index = direct % FANOUT;
            return at(2, [parent, index, slot, 0], [0, indirect, child(indirect, index), 0]);
        };
        let (which, index) = (direct / FANOUT, direct % FANOUT);
        if which >= FANOUT {
            return None;
        }
        let indirect = which.strict_mul(SUBTREE).strict_add(INDIRECTS);
        at(3, [4, which, index, slot], [0, DOUBLE_INDIRECT, indirect, child(indirect, index)])
    }

    /// The first file block that the pointers of an inode or a direct node map. `None` if the
    /// offset is that of another node.
    #[must_use]
    pub fn first_block(self, offset: u32) -> Option<u64> {
        // Offsets also count indirect nodes. The ones before it are subtracted.
        let direct = match (NodeKind::at(offset)?, offset) {
            (NodeKind::Inode, _) => return Some(0),
            (NodeKind::Direct, 1..=2) => offset.checked_sub(1)?,
            (NodeKind::Direct, 4..SECOND_INDIRECT) => offset.checked_sub(2)?,
            (NodeKind::Direct, SECOND_INDIRECT..DOUBLE_INDIRECT) => offset.checked_sub(3)?,
            (NodeKind::Direct, _) => {
                let within = offset.checked_sub(INDIRECTS)?;
                // The first of each subtree is its indirect node.
                let directs = (within / SUBTREE)
                    .strict_mul(FANOUT)
                    .strict_add((within % SUBTREE).checked_sub(1)?);
                directs.strict_add(DIRECTS_BEFORE)
            }
            _ => return None,
        };
        let before = u64::from(direct).strict_mul(self.node_slots.into());
        Some(before.strict_add(self.inode_slots.into()))
    }

    /// The file blocks (first, number) below the node at `depth` (1 or more) of a path to `block`.
    /// They are a hole if the node is missing.
    #[must_use]
    pub(crate) fn span(self, path: &NodePath, depth: usize, block: u64) -> (u64, u64) {
        let below = path.slots.get(depth..=path.depth).unwrap_or_default();
        let (mut within, mut len, mut fanout) = (0_u64, 1_u64, u64::from(self.node_slots));
        for slot in below.iter().rev() {
            within = within.strict_add(u64::from(*slot).strict_mul(len));
            len = len.strict_mul(fanout);
            fanout = N;
        }
        (block.strict_sub(within), len)
    }
}

/// Offset of a node's child, if the children follow their parent.
const fn child(parent: u32, index: u32) -> u32 {
    parent.strict_add(1).strict_add(index)
}

/// Indices of pointers: they are below [`FANOUT`].
fn narrow(slots: [u32; 4]) -> Option<[u16; 4]> {
    let mut narrow = [0; 4];
    for (to, slot) in narrow.iter_mut().zip(slots) {
        *to = u16::try_from(slot).ok()?;
    }
    Some(narrow)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHAPE: TreeShape = TreeShape { inode_slots: 873, node_slots: 1018 };

    #[test]
    fn borders_of_every_level() {
        let at = |block| SHAPE.locate(block).unwrap();
        let path = |depth, slots, offsets, rest| NodePath { depth, slots, offsets, rest };
        assert_eq!(at(0), path(0, [0; 4], [0; 4], 873));
        assert_eq!(at(872), path(0, [872, 0, 0, 0], [0; 4], 1));
        assert_eq!(at(873), path(1, [0, 0, 0, 0], [0, 1, 0, 0], 1018));
        assert_eq!(at(873 + 1018), path(1, [1, 0, 0, 0], [0, 2, 0, 0], 1018));
        assert_eq!(at(873 + 2 * 1018), path(2, [2, 0, 0, 0], [0, 3, 4, 0], 1018));
        let second = 873 + 2 * 1018 + 1018 * 1018;
        assert_eq!(at(second - 1), path(2, [2, 1017, 1017, 0], [0, 3, 4 + 1017, 0], 1));
        assert_eq!(at(second), path(2, [3, 0, 0, 0], [0, 1022, 1023, 0], 1018));
        let double = second + 1018 * 1018;
        assert_eq!(at(double), path(3, [4, 0, 0, 0], [0, 2041, 2042, 2043], 1018));
        let next = double + 1018 * 1018;
        assert_eq!(at(next), path(3, [4, 1, 0, 0], [0, 2041, 2042 + 1019, 2043 + 1019], 1018));
        assert_eq!(at(SHAPE.max_blocks() - 1).slots, [4, 1017, 1017, 1017]);
        assert_eq!(SHAPE.locate(SHAPE.max_blocks()), None);
        assert_eq!(SHAPE.locate(u64::MAX), None);
        assert_eq!(SHAPE.max_blocks(), 1_057_053_389);
    }

    #[test]
    fn offsets_lead_back_to_file_blocks() {
        let compressed = TreeShape { inode_slots: 868, node_slots: 1016 };
        for shape in [SHAPE, compressed] {
            let step = 1018 * 400 + 7;
            for block in (0..5000).chain((5000..shape.max_blocks()).step_by(step)) {
                let path = shape.locate(block).unwrap();
                let leaf = path.offsets[path.depth];
                let first = shape.first_block(leaf).unwrap();
                assert_eq!(first + u64::from(path.slots[path.depth]), block);
                let kind = if path.depth == 0 { NodeKind::Inode } else { NodeKind::Direct };
                assert_eq!(NodeKind::at(leaf), Some(kind));
                for depth in 1..path.depth {
                    assert_eq!(shape.first_block(path.offsets[depth]), None);
                }
            }
        }
    }

    #[test]
    fn children_have_the_offsets_of_paths() {
        for block in (0..SHAPE.max_blocks()).step_by(1018 * 333 + 5) {
            let path = SHAPE.locate(block).unwrap();
            if path.depth == 0 {
                continue;
            }
            assert_eq!(INODE_NODES[usize::from(path.slots[0])], path.offsets[1]);
            for depth in 1..path.depth {
                let (first, step) = children(path.offsets[depth]).unwrap();
                let offset = first + step * u32::from(path.slots[depth]);
                assert_eq!(offset, path.offsets[depth + 1]);
            }
            assert_eq!(children(path.offsets[path.depth]), None);
        }
        assert_eq!((children(0), children(XATTR_OFFSET)), (None, None));
    }

    #[test]
    fn kinds_of_offsets() {
        let kinds =
            [0, 1, 3, 4, 1022, 1023, 2041, 2042, 2043, 2042 + 1019, XATTR_OFFSET].map(NodeKind::at);
        use NodeKind::{Direct, DoubleIndirect, Indirect, Inode, Xattr};
        let right = [
            Inode,
            Direct,
            Indirect,
            Direct,
            Indirect,
            Direct,
            DoubleIndirect,
            Indirect,
            Direct,
            Indirect,
            Xattr,
        ];
        assert_eq!(kinds, right.map(Some));
        assert_eq!(NodeKind::at(END), None);
        assert_eq!(NodeKind::at(END - 1), Some(Direct));
        assert_eq!((SHAPE.first_block(XATTR_OFFSET), SHAPE.first_block(END)), (None, None));
    }

    #[test]
    fn spans_of_missing_nodes() {
        let double = 873 + 2 * 1018 + 2 * 1018 * 1018;
        let block = double + 1018 * 1018 + 5 * 1018 + 9;
        let path = SHAPE.locate(block).unwrap();
        assert_eq!(SHAPE.span(&path, 1, block), (double, 1018 * 1018 * 1018));
        assert_eq!(SHAPE.span(&path, 2, block), (double + 1018 * 1018, 1018 * 1018));
        assert_eq!(SHAPE.span(&path, 3, block), (block - 9, 1018));
        let direct = SHAPE.locate(873 + 4).unwrap();
        assert_eq!(SHAPE.span(&direct, 1, 873 + 4), (873, 1018));
    }
}
