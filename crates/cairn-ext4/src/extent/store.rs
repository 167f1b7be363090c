//! Stores a leaf's new entries in place, or splits, grows, frees and collapses nodes.

use cairn_base::Pba;
use cairn_base::units::as_u64;

use super::path::{Path, read};
use crate::error::Result;
use crate::format::extent::{
    Entries, Extent, Index, MAX_DEPTH, Node, NodeView, ROOT_BYTES, ROOT_CAPACITY, block_capacity,
};
use crate::map::MapContext;
use crate::space::Freed;
use crate::txn::Handle;

/// A change of one tree in one handle.
pub(super) struct Edit<'e> {
    pub context: &'e MapContext<'e>,
    pub handle: &'e Handle,
    pub root: &'e mut [u8; ROOT_BYTES],
    /// Blocks added to the file so far.
    pub blocks: i64,
}

/// Merges neighbours and splits extents that are too long.
pub(super) fn coalesce(extents: impl IntoIterator<Item = Extent>) -> Vec<Extent> {
    let mut out: Vec<Extent> = Vec::new();
    for mut extent in extents {
        if let Some(last) = out.last_mut().filter(|last| last.continues_with(&extent)) {
            let taken = last.max_len().saturating_sub(last.len).min(extent.len);
            last.len = last.len.saturating_add(taken);
            match extent.clip(extent.start.saturating_add(taken), u64::MAX) {
                Some(rest) => extent = rest,
                None => continue,
            }
        }
        while let Some(rest) = extent.clip(extent.start.saturating_add(extent.max_len()), u64::MAX)
        {
            out.push(Extent { len: extent.max_len(), ..extent });
            extent = rest;
        }
        out.push(extent);
    }
    out
}

/// A changed node that is not written yet.
struct Pending {
    entries: Entries,
    /// The change is at the node's end, where more will follow: a split then leaves the left half
    /// full.
    appended: bool,
}

impl Edit<'_> {
    /// Replaces the entries of the path's leaf. `appended`: the new entries are the last ones.
    pub(super) fn replace_leaf(
        &mut self,
        path: Path,
        extents: Vec<Extent>,
        appended: bool,
    ) -> Result<()> {
        let shrunk = extents.len() < path.extents().len();
        let capacity = block_capacity(self.context.layout.block_size);
        let needed = blocks_needed(&path, extents.len(), capacity);
        if needed >= path.steps.len() && path.depth() >= MAX_DEPTH {
            return Err(cairn_vfs::Error::TooLarge.into());
        }
        let goal = match path.steps.as_slice() {
            [_, .., leaf] => leaf.pba,
            _ => extents.first().map_or(Pba(0), |extent| extent.pba),
        };
        let mut fresh = self.context.allocate(self.handle, needed, goal)?;
        self.blocks = self.blocks.saturating_add_unsigned(as_u64(needed));
        self.climb(
            path,
            Pending { entries: Entries::Leaf(extents), appended },
            &mut fresh,
            capacity,
        )?;
        assert!(fresh.is_empty(), "a tree change allocates what it needs");
        if shrunk { self.collapse() } else { Ok(()) }
    }

    /// Writes the changed node of each level, from the leaf up to the first node that does not
    /// change.
    fn climb(
        &mut self,
        mut path: Path,
        mut pending: Pending,
        fresh: &mut Vec<Pba>,
        capacity: usize,
    ) -> Result<()> {
        while let Some(step) = path.steps.pop() {
            let depth = step.node.depth;
            let Some(parent) = path.steps.last() else {
                return self.write_root(depth, pending.entries, fresh);
            };
            let Entries::Inner(mut indexes) = parent.node.entries.clone() else {
                unreachable!("parents are inner nodes")
            };
            let (at, next) = (parent.at, parent.at.saturating_add(1));
            let last_child = next == indexes.len();
            let Some(first) = pending.entries.first_key() else {
                self.free_node(step.pba)?;
                indexes.remove(at);
                pending = Pending { entries: Entries::Inner(indexes), appended: false };
                continue;
            };
            let right = self.split(&mut pending, capacity);
            self.write_node(step.pba, &Node { depth, entries: pending.entries })?;
            let Some(index) = indexes.get_mut(at) else {
                unreachable!("the path follows an entry")
            };
            let key_changed = std::mem::replace(&mut index.start, first) != first;
            match right {
                Some(right) => {
                    let pba = take(fresh);
                    let Some(start) = right.first_key() else {
                        unreachable!("a split leaves entries on both sides")
                    };
                    self.create_node(pba, &Node { depth, entries: right })?;
                    indexes.insert(next, Index { start, child: pba });
                    pending = Pending { entries: Entries::Inner(indexes), appended: last_child };
                }
                None if key_changed => {
                    pending = Pending { entries: Entries::Inner(indexes), appended: false }
                }
                None => return Ok(()),
            }
        }
        Ok(())
    }

    /// Removes the right part of a node that is too full, and returns it.
    fn split(&self, pending: &mut Pending, capacity: usize) -> Option<Entries> {
        let count = pending.entries.len();
        if count <= capacity {
            return None;
        }
        assert!(count.div_ceil(2) <= capacity, "one change adds at most a node's worth of entries");
        Some(pending.entries.split_off(if pending.appended { capacity } else { count.div_ceil(2) }))
    }

    /// Writes the root. If it is too full, its entries move to a new block and the tree gets one
    /// more level.
    fn write_root(&mut self, depth: u16, entries: Entries, fresh: &mut Vec<Pba>) -> Result<()> {
        let node = match entries.first_key() {
            None => Node::empty(),
            Some(start) if entries.len() > ROOT_CAPACITY => {
                let child = take(fresh);
                self.create_node(child, &Node { depth, entries })?;
                Node {
                    depth: depth.strict_add(1),
                    entries: Entries::Inner(vec![Index { start, child }]),
                }
            }
            Some(_) => Node { depth, entries },
        };
        node.encode_root(self.root);
        Ok(())
    }

    /// As long as the root has one child whose entries fit the root, moves them there.
    fn collapse(&mut self) -> Result<()> {
        let site = self.context.site(Pba(0));
        loop {
            let root = NodeView::parse(self.root, None, site)?.decode();
            let Entries::Inner(indexes) = &root.entries else { return Ok(()) };
            let [only] = indexes.as_slice() else { return Ok(()) };
            let depth = root.depth.saturating_sub(1);
            let bounds = self.context.bounds();
            let image = read(self.context, only.child, depth, &bounds)?;
            let site = self.context.site(only.child);
            let view = NodeView::parse(&image, Some(depth), site)?;
            if view.len() > ROOT_CAPACITY {
                return Ok(());
            }
            view.validate(&bounds, site)?;
            view.decode().encode_root(self.root);
            self.free_node(only.child)?;
        }
    }

    fn write_node(&self, pba: Pba, node: &Node) -> Result<()> {
        let buffer = self.context.buffers.get(pba)?;
        node.encode_block(&mut self.handle.write(&buffer)?, self.context.seed);
        Ok(())
    }

    fn create_node(&self, pba: Pba, node: &Node) -> Result<()> {
        let buffer = self.handle.create(pba)?;
        node.encode_block(&mut self.handle.write(&buffer)?, self.context.seed);
        buffer.set_verified();
        Ok(())
    }

    fn free_node(&mut self, pba: Pba) -> Result<()> {
        self.blocks = self.blocks.saturating_sub(1);
        self.context.source.free(self.handle, pba, 1, Freed::Metadata)
    }
}

/// The next of the blocks that [`blocks_needed`] has counted.
fn take(fresh: &mut Vec<Pba>) -> Pba {
    fresh.pop().unwrap_or_else(|| panic!("a tree change needs more blocks than were counted"))
}

/// Number of blocks needed to store `count` entries in the path's leaf: one for each node that
/// splits, and one if the root grows.
fn blocks_needed(path: &Path, count: usize, capacity: usize) -> usize {
    let mut count = count;
    let mut needed = 0_usize;
    let parents = path.steps.iter().rev().skip(1);
    for parent in parents {
        if count <= capacity {
            return needed;
        }
        needed = needed.saturating_add(1);
        count = parent.node.entries.len().saturating_add(1);
    }
    needed.saturating_add(usize::from(count > ROOT_CAPACITY))
}
