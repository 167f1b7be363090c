//! Truncates a node tree: frees blocks and nodes from a file block on, from the end, in one
//! operation for each part.
//!
//! Each part leaves a valid tree, so a checkpoint may come between two of them. If the whole
//! truncation must survive a crash, the caller first makes the inode an orphan or lowers its size.
//! So does a part that ends before a node that cannot be read: that is no operation half done.

use std::sync::Arc;

use super::Inode;
use super::tree;
use crate::error::{Error, Result};
use crate::format::Nid;
use crate::format::node::{self, POINTERS};
use crate::format::path::{NodeKind, TreeShape};
use crate::node::Node;
use crate::op::{Op, Operations};

/// Direct nodes emptied in one operation.
const NODES_A_PIECE: u32 = 16;

/// Frees everything from the file block `from` on, in operations of its own. The caller holds the
/// lock that guards the tree's shape, and does *not* hold the operation lock.
///
/// # Errors
/// A node is damaged (blocks below it stay in use), or the device failed.
pub(crate) fn truncate_blocks(ops: &Operations, inode: &Arc<Inode>, from: u64) -> Result<()> {
    to_the_end(|| ops.change(0, |op| truncate_piece(op, inode, from)))
}

/// As [`truncate_blocks`], within an operation, for an inode with few blocks.
///
/// # Errors
/// As [`truncate_blocks`].
pub(crate) fn truncate_within(op: &mut Op<'_>, inode: &Arc<Inode>, from: u64) -> Result<()> {
    to_the_end(|| truncate_piece(op, inode, from))
}

fn to_the_end(mut next: impl FnMut() -> Result<Piece>) -> Result<()> {
    loop {
        match next()? {
            Piece::Last => return Ok(()),
            Piece::Unfinished => {}
            Piece::Unreadable(error) => return Err(error),
        }
    }
}

/// What a part of a truncation has left.
pub(crate) enum Piece {
    /// Nothing: it was the last one.
    Last,
    /// Further parts.
    Unfinished,
    /// What is before a node that cannot be read. The tree is valid.
    Unreadable(Error),
}

/// A bounded part of [`truncate_blocks`].
///
/// # Errors
/// As [`truncate_blocks`], when the part is half done.
pub(crate) fn truncate_piece(op: &mut Op<'_>, inode: &Arc<Inode>, from: u64) -> Result<Piece> {
    let mut cutter =
        Cutter { op, inode, from, shape: inode.state.read().record.shape(), budget: NODES_A_PIECE };
    // The tree shrinks from its end, so the inode's nids come in reverse order.
    for slot in (0..5_usize).rev() {
        let nid = inode.state.read().record.nids[slot];
        if nid.is_none() {
            continue;
        }
        let offset = [1, 2, 3, 4 + POINTERS as u32, 5 + 2 * POINTERS as u32][slot];
        match cutter.subtree(nid, offset)? {
            Truncated::Gone => {
                let mut state = inode.state.write();
                state.record.nids[slot] = Nid::NONE;
                inode.mark_dirty(cutter.op.inodes, &mut state);
            }
            Truncated::Kept => {}
            Truncated::Unfinished => return Ok(Piece::Unfinished),
            Truncated::Unreadable(error) => return Ok(Piece::Unreadable(error)),
        }
    }
    let own = u64::from(cutter.shape.inode_slots);
    if from < own {
        cutter.inode_pointers()?;
    }
    Ok(Piece::Last)
}

enum Truncated {
    /// The node is empty and has been freed.
    Gone,
    /// The node has blocks before the new end and stays.
    Kept,
    /// The piece is full.
    Unfinished,
    /// The node, or one below it, cannot be read.
    Unreadable(Error),
}

struct Cutter<'a, 'v> {
    op: &'a mut Op<'v>,
    inode: &'a Arc<Inode>,
    from: u64,
    shape: TreeShape,
    /// Direct nodes that may still be emptied in this operation.
    budget: u32,
}

impl Cutter<'_, '_> {
    fn subtree(&mut self, nid: Nid, offset: u32) -> Result<Truncated> {
        let node = match self.op.store.nodes.child(nid, self.inode.nid, offset) {
            Ok(node) => node,
            Err(error) => return Ok(Truncated::Unreadable(error)),
        };
        match node.kind() {
            NodeKind::Indirect | NodeKind::DoubleIndirect => self.indirect(&node),
            _ => self.direct(&node),
        }
    }

    /// Truncates the children of an indirect node, the last one first.
    fn indirect(&mut self, node: &Arc<Node>) -> Result<Truncated> {
        let step = if node.kind() == NodeKind::DoubleIndirect { POINTERS as u32 + 1 } else { 1 };
        let mut kept = false;
        for slot in (0..POINTERS).rev() {
            let nid = node::child(&node.image(), slot);
            if nid.is_none() {
                continue;
            }
            let offset = node.offset() + 1 + slot as u32 * step;
            match self.subtree(nid, offset)? {
                Truncated::Gone => node::set_child(&mut node.modify(), slot, Nid::NONE),
                Truncated::Kept => {
                    // All earlier children are before the new end, too.
                    kept = true;
                    break;
                }
                unfinished => return Ok(unfinished),
            }
        }
        self.end_of(node, kept)
    }

    fn direct(&mut self, node: &Arc<Node>) -> Result<Truncated> {
        let first = self.shape.first_block(node.offset()).unwrap_or(u64::MAX);
        let last = first.saturating_add(self.shape.node_slots.into());
        if last <= self.from {
            return Ok(Truncated::Kept);
        }
        if self.budget == 0 {
            return Ok(Truncated::Unfinished);
        }
        self.budget -= 1;
        let keep = self.from.saturating_sub(first);
        self.pointers(first + keep..last)?;
        self.end_of(node, keep > 0)
    }

    fn end_of(&mut self, node: &Arc<Node>, kept: bool) -> Result<Truncated> {
        if kept {
            return Ok(Truncated::Kept);
        }
        tree::remove_node(self.op, self.inode, node.nid())?;
        Ok(Truncated::Gone)
    }

    fn inode_pointers(&mut self) -> Result<()> {
        self.pointers(self.from..u64::from(self.shape.inode_slots))
    }

    /// Frees the pointers of one node.
    fn pointers(&mut self, blocks: std::ops::Range<u64>) -> Result<()> {
        if let Ok(pointer) = tree::find(self.op.store, self.inode, blocks.start)? {
            let count =
                u32::try_from(blocks.end - blocks.start).unwrap_or(u32::MAX).min(pointer.rest);
            tree::free_run(self.op, self.inode, &pointer, count)?;
        }
        Ok(())
    }
}
