//! The walk through an extent tree.

use cairn_base::{Ino, Pba};
use cairn_check::Kind;

use super::starts::{self, Around, Start};
use super::state::State;
use super::visitor::{Fault, Run, Visitor, Why};
use super::{kinds, one_bit};
use crate::checksum::InodeSeed;
use crate::corrupt::Corrupt;
use crate::format::extent::{
    Entries, Extent, Index, MAX_FILE_BLOCKS, NodeView, ROOT_CAPACITY, Site, block_capacity,
};
use crate::format::inode::Inode as Record;

struct Walk<'a> {
    state: &'a State,
    ino: Ino,
    seed: InodeSeed,
    visitor: &'a mut dyn Visitor,
    /// The first file block that the next entry may have.
    from: u64,
    /// Blocks of the inode's size.
    size: u64,
}

/// A node of the tree, as its parent describes it.
#[derive(Clone, Copy)]
struct Parent {
    depth: Option<u16>,
    index: Option<Index>,
    /// The first block of the node behind it.
    behind: Option<u64>,
}

/// Visits the extents of an inode.
pub(super) fn walk(state: &State, ino: Ino, record: &Record, visitor: &mut dyn Visitor) {
    let seed = record.seed(ino, &state.layout);
    let size = record.size.div_ceil(state.layout.block_size.into());
    let mut walk = Walk { state, ino, seed, visitor, from: 0, size };
    walk.node(&record.block, Parent { depth: None, index: None, behind: None });
}

impl Walk<'_> {
    fn fault(&mut self, kind: &'static Kind, at: u64, pba: Pba, why: Why) {
        self.visitor.fault(Fault { kind, at, pba, why });
    }

    fn node(&mut self, bytes: &[u8], parent: Parent) {
        let pba = parent.index.map_or(Pba(0), |index| index.child);
        let at = parent.index.map_or(0, |index| index.start);
        let site = Site { ino: self.ino, pba };
        let view = match NodeView::parse(bytes, parent.depth, site) {
            Ok(view) => view,
            Err(why) => return self.fault(&kinds::EXTENT_NODE, at, pba, Why::Decoder(why)),
        };
        self.check_capacity(&view, at, pba);
        if parent.index.is_some()
            && let Err(why) = view.verify_checksum(bytes, self.seed, site)
        {
            let kind = match why {
                Corrupt::Checksum { .. } => &kinds::EXTENT_CHECKSUM,
                _ => &kinds::EXTENT_NODE,
            };
            self.fault(kind, at, pba, Why::Decoder(why));
        }
        let node = view.decode();
        let first = node.entries.first_key();
        if let (Some(index), Some(first)) = (parent.index, first)
            && index.start != first
        {
            self.fault(&kinds::EXTENT_INDEX, at, pba, Why::Number(first));
        }
        if parent.index.is_some() && first.is_none() {
            self.fault(&kinds::EXTENT_NODE, at, pba, Why::Number(0));
        }
        match node.entries {
            Entries::Leaf(extents) => {
                let around = Around {
                    from: self.from,
                    behind: parent.behind,
                    size: self.size,
                    volume: self.state.layout.blocks_count,
                };
                for (extent, start) in extents.iter().zip(starts::of(&extents, around)) {
                    self.placed(extent, start, pba);
                }
            }
            Entries::Inner(indexes) => {
                let behind = indexes.iter().skip(1).map(|index| Some(index.start));
                let behind = behind.chain([parent.behind]);
                for (index, behind) in indexes.iter().zip(behind) {
                    self.child((*index, behind), node.depth, pba);
                }
            }
        }
    }

    /// The capacity in a header may be a little smaller than what there is room for.
    fn check_capacity(&mut self, view: &NodeView<'_>, at: u64, pba: Pba) {
        let room = match pba {
            Pba(0) => ROOT_CAPACITY,
            _ => block_capacity(self.state.layout.block_size),
        };
        if view.capacity().saturating_add(2) < room {
            let capacity = u64::try_from(view.capacity()).unwrap_or(u64::MAX);
            self.fault(&kinds::EXTENT_NODE, at, pba, Why::Number(capacity));
        }
    }

    fn placed(&mut self, extent: &Extent, start: Start, node: Pba) {
        let at = extent.start;
        match start {
            Start::Stored => self.extent(extent, node),
            Start::Unknown => self.fault(&kinds::EXTENT_ORDER, at, node, Why::Number(at)),
            Start::Moved(start) => {
                self.fault(&kinds::EXTENT_START, start, node, Why::Number(at));
                self.extent(&Extent { start, ..*extent }, node);
            }
        }
    }

    fn extent(&mut self, extent: &Extent, node: Pba) {
        let Extent { start, len, pba, unwritten } = *extent;
        if len == 0 {
            return self.fault(&kinds::EXTENT_NODE, start, node, Why::Number(0));
        }
        if start < self.from || extent.end() > MAX_FILE_BLOCKS {
            return self.fault(&kinds::EXTENT_ORDER, start, node, Why::Number(start));
        }
        self.from = extent.end();
        if !self.state.layout.contains(pba, len) {
            return self.fault(&kinds::MAP_RANGE, start, node, Why::Number(pba.get()));
        }
        self.visitor.data(Run { start, pba, len, unwritten });
    }

    fn child(&mut self, (index, behind): (Index, Option<u64>), depth: u16, node: Pba) {
        let Index { start, child } = index;
        if start < self.from || start >= MAX_FILE_BLOCKS {
            return self.fault(&kinds::EXTENT_ORDER, start, node, Why::Number(start));
        }
        if !self.state.layout.contains(child, 1) {
            return self.fault(&kinds::MAP_RANGE, start, node, Why::Number(child.get()));
        }
        if !self.visitor.node(start, child) {
            // What is below is not known, so that nothing behind it can be out of order.
            return;
        }
        match self.state.source.block(child) {
            Ok(block) => {
                let depth = depth.checked_sub(1);
                let site = Site { ino: self.ino, pba: child };
                let right = one_bit::extents(self.state, (site, self.seed, depth), &block);
                let block = right.as_deref().unwrap_or(&block);
                self.node(block, Parent { depth, index: Some(index), behind });
            }
            Err(error) => {
                let place = cairn_check::Place::inode(self.ino.get()).at_block(child.get());
                self.state.unreadable(place, &error);
            }
        }
    }
}
