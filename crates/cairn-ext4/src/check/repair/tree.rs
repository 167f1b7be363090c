//! Extent trees, rewritten where they are: what a [`Policy`] drops goes, indexes and checksums are
//! put right.

use std::collections::HashSet;

use cairn_base::{Ino, Pba};

use super::super::starts::{self, Around, Start};
use super::super::visitor::Run;
use super::mender::Mender;
use super::policy::{Fate, Policy};
use crate::checksum::InodeSeed;
use crate::error::Result;
use crate::format::extent::{Entries, Extent, Index, MAX_FILE_BLOCKS, Node, NodeView, Site};
use crate::format::inode::Inode as Record;

struct Rewrite<'a, 'm> {
    mender: &'a Mender<'m>,
    ino: Ino,
    seed: InodeSeed,
    policy: &'a mut dyn Policy,
    /// The first file block that the next entry may have.
    from: u64,
    /// Blocks of the inode's size.
    size: u64,
    /// Nodes that were visited: each is one of the tree once.
    seen: HashSet<u64>,
    /// A block of the tree was written.
    is_changed: bool,
}

/// Rewrites the tree of an inode. True if something of it has changed.
pub(super) fn rewrite(
    mender: &Mender<'_>,
    ino: Ino,
    record: &mut Record,
    policy: &mut dyn Policy,
) -> Result<bool> {
    let seed = record.seed(ino, &mender.state.layout);
    let seen = HashSet::new();
    let size = record.size.div_ceil(mender.state.layout.block_size.into());
    let mut rewrite = Rewrite { mender, ino, seed, policy, from: 0, size, seen, is_changed: false };
    let old = record.block;
    let root = rewrite.node(&old, (None, None), Pba(0))?.unwrap_or_else(Node::empty);
    root.encode_root(&mut record.block);
    Ok(rewrite.is_changed || record.block != old)
}

impl Rewrite<'_, '_> {
    /// The node as it should be. `None` if nothing of it is left.
    fn node(
        &mut self,
        bytes: &[u8],
        (depth, behind): (Option<u16>, Option<u64>),
        pba: Pba,
    ) -> Result<Option<Node>> {
        let site = Site { ino: self.ino, pba };
        let Ok(view) = NodeView::parse(bytes, depth, site) else { return Ok(None) };
        let mut node = view.decode();
        node.entries = match node.entries {
            Entries::Leaf(extents) => {
                let volume = self.mender.state.layout.blocks_count;
                let around = Around { from: self.from, behind, size: self.size, volume };
                let mut kept = Vec::new();
                for (extent, start) in extents.iter().zip(starts::of(&extents, around)) {
                    let extent = match start {
                        Start::Stored => *extent,
                        Start::Moved(start) => Extent { start, ..*extent },
                        Start::Unknown => continue,
                    };
                    kept.extend(self.extent(extent)?);
                }
                Entries::Leaf(kept)
            }
            Entries::Inner(indexes) => {
                let mut kept = Vec::new();
                let next = indexes.iter().skip(1).map(|index| Some(index.start));
                for (index, behind) in indexes.iter().zip(next.chain([behind])) {
                    kept.extend(self.child((*index, behind), node.depth)?);
                }
                Entries::Inner(kept)
            }
        };
        Ok((node.entries.len() > 0).then_some(node))
    }

    fn extent(&mut self, extent: Extent) -> Result<Option<Extent>> {
        let Extent { start, len, pba, unwritten } = extent;
        if len == 0 || start < self.from || extent.end() > MAX_FILE_BLOCKS {
            return Ok(None);
        }
        let fate = self.policy.data(self.mender, Run { start, pba, len, unwritten })?;
        let kept = match fate {
            Fate::Keep => Some(extent),
            Fate::Drop => None,
            Fate::Part { skip, len } => extent
                .clip(start.saturating_add(skip), start.saturating_add(skip).saturating_add(len)),
            Fate::Move(pba) | Fate::Copied(pba) => Some(Extent { pba, ..extent }),
        };
        if let Some(kept) = &kept {
            self.from = kept.end();
        }
        Ok(kept)
    }

    fn child(
        &mut self,
        (index, behind): (Index, Option<u64>),
        depth: u16,
    ) -> Result<Option<Index>> {
        let Index { start, child } = index;
        let layout = &self.mender.state.layout;
        let is_possible = start >= self.from && start < MAX_FILE_BLOCKS;
        if !is_possible || !layout.contains(child, 1) || !self.seen.insert(child.get()) {
            return Ok(None);
        }
        let place = match self.policy.node(self.mender, child)? {
            Fate::Keep | Fate::Part { .. } => child,
            Fate::Move(place) => place,
            Fate::Copied(child) => return Ok(Some(Index { start, child })),
            Fate::Drop => return Ok(None),
        };
        let old = self.mender.read(child)?;
        let Some(node) = self.node(&old, (depth.checked_sub(1), behind), child)? else {
            return Ok(None);
        };
        let mut new = old.clone();
        node.encode_block(&mut new, self.seed);
        let start = node.entries.first_key().unwrap_or(start);
        if place == child && new == old {
            return Ok(Some(Index { start, child }));
        }
        let Some(place) = self.mender.place_of_node(child, place) else { return Ok(None) };
        self.mender.write(place, new)?;
        self.is_changed = true;
        Ok(Some(Index { start, child: place }))
    }
}
