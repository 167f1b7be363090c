//! The path from the root to one leaf, decoded.

use cairn_base::Pba;
use cairn_cache::block::Image;

use crate::error::Result;
use crate::format::extent::{Bounds, Entries, Extent, Node, NodeView, ROOT_BYTES};
use crate::map::MapContext;

/// One node of a path.
pub(super) struct Step {
    /// Its block; 0 is the inode.
    pub pba: Pba,
    /// The decoded node.
    pub node: Node,
    /// Index of the child on the path; unused in the leaf.
    pub at: usize,
}

/// The nodes from the root to a leaf.
pub(super) struct Path {
    /// From the root to the leaf; never empty.
    pub steps: Vec<Step>,
    /// Blocks before this one belong to leaves on the left.
    pub lower: u64,
    /// Blocks from this one on belong to leaves on the right.
    pub upper: u64,
}

/// Reads a block of the tree. Its header and checksum are verified, and its entries unless they
/// were since the block was read.
pub(super) fn read(
    context: &MapContext<'_>,
    pba: Pba,
    depth: u16,
    bounds: &Bounds<'_>,
) -> Result<Image> {
    let buffer = context.buffers.get(pba)?;
    let image = buffer.image();
    let site = context.site(pba);
    let view = NodeView::parse(&image, Some(depth), site)?;
    if !buffer.is_verified() {
        view.verify_checksum(&image, context.seed, site)?;
        view.validate(bounds, site)?;
        buffer.set_verified();
    }
    Ok(image)
}

impl Path {
    /// Finds the leaf whose range contains `block`. All entries of the nodes on the path are
    /// checked.
    pub(super) fn descend(
        context: &MapContext<'_>,
        i_block: &[u8; ROOT_BYTES],
        block: u64,
    ) -> Result<Self> {
        let mut bounds = context.bounds();
        let mut path = Self { steps: Vec::new(), lower: bounds.start, upper: bounds.end };
        let site = context.site(Pba(0));
        let root = NodeView::parse(i_block, None, site)?;
        root.validate(&bounds, site)?;
        let mut pba = Pba(0);
        let mut node = root.decode();
        while let Entries::Inner(indexes) = &node.entries {
            let at = indexes.partition_point(|index| index.start <= block).saturating_sub(1);
            let Some(index) = indexes.get(at) else {
                unreachable!("the parser refuses inner nodes without entries")
            };
            bounds.start = index.start;
            bounds.end = indexes.get(at.saturating_add(1)).map_or(bounds.end, |next| next.start);
            // Blocks before the first key of a tree belong to its first leaf.
            path.lower = if at == 0 { path.lower } else { index.start };
            path.upper = bounds.end;
            let (child, depth) = (index.child, node.depth.saturating_sub(1));
            path.steps.push(Step { pba, node, at });
            let image = read(context, child, depth, &bounds)?;
            let site = context.site(child);
            let view = NodeView::parse(&image, Some(depth), site)?;
            view.validate(&bounds, site)?;
            (pba, node) = (child, view.decode());
        }
        path.steps.push(Step { pba, node, at: 0 });
        Ok(path)
    }

    /// Levels below the root.
    pub(super) fn depth(&self) -> u16 {
        self.steps.first().map_or(0, |root| root.node.depth)
    }

    /// The leaf's extents.
    pub(super) fn extents(&self) -> &[Extent] {
        match self.steps.last().map(|leaf| &leaf.node.entries) {
            Some(Entries::Leaf(extents)) => extents,
            _ => unreachable!("a path ends in a leaf"),
        }
    }
}
