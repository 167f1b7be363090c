//! The node tree of an inode, for writing: the pointer of a file block, and the nodes on the path
//! to it.
//!
//! This is the one place that counts file blocks: [`Pointer::reserve`] and [`Pointer::free`] keep
//! the volume's counters, `i_blocks` and the SIT in step with the pointer.
//!
//! Locking: the caller holds the operation lock and the lock of the shape of the tree (see
//! [`super`]).

#![cfg_attr(
    not(test),
    deny(
        clippy::indexing_slicing,
        clippy::as_conversions,
        clippy::arithmetic_side_effects,
        clippy::unwrap_used,
        clippy::expect_used
    )
)]

use std::ops::Range;
use std::sync::Arc;

use cairn_base::units::as_index;

use super::Inode;
use crate::error::Result;
use crate::format::node;
use crate::format::path::NodePath;
use crate::format::{BlockAddr, Nid, block};
use crate::node::{Node, Owner};
use crate::op::Op;
use crate::segment;
use crate::store::Store;
use cairn_cache::durability::Part;

/// Where the words of an inode's node begin that hold pointers or inline contents.
const INODE_WORDS_AT: usize = 360;

/// The pointer of a file block.
#[derive(Clone)]
pub(crate) struct Pointer {
    /// The node it is in: the inode's own or a direct one.
    pub node: Arc<Node>,
    /// Which pointer of that node, counted from its first data pointer: `ofs_in_node`.
    pub slot: u16,
    /// Pointers from this one to the end of its node, itself included.
    pub rest: u32,
    /// The byte where it stands.
    at: usize,
}

impl Pointer {
    fn new(inode: &Inode, node: Arc<Node>, path: &NodePath) -> Self {
        let slot = path.slot(path.depth);
        let first = match path.depth {
            0 => word(INODE_WORDS_AT, inode.state.read().record.address_base()),
            _ => 0,
        };
        Self { node, slot, rest: path.rest, at: word(first, slot.into()) }
    }

    /// The bytes of it and the next pointers, `count` in all.
    fn bytes(&self, count: u32) -> Range<usize> {
        self.at..word(self.at, count)
    }

    /// The pointer `count` blocks further on, in the same node.
    ///
    /// # Panics
    /// That is in another node.
    #[must_use]
    pub(crate) fn after(&self, count: u32) -> Self {
        assert!(count < self.rest, "{count} pointers further on of {}", self.rest);
        let (node, slot) = (self.node.clone(), slot_after(self.slot, count));
        Self { node, slot, rest: self.rest.strict_sub(count), at: word(self.at, count) }
    }

    /// What it says.
    #[must_use]
    pub(crate) fn get(&self) -> BlockAddr {
        let image = self.node.image();
        let (words, _) = block::part(&image, self.bytes(1)).as_chunks::<4>();
        BlockAddr(u32::from_le_bytes(*block::entry(words, 0)))
    }

    /// Makes it say something else. Counters are the caller's business.
    pub(crate) fn set(&self, addr: BlockAddr) {
        self.replace(addr);
    }

    /// Makes it say something else, and returns what it said until then: cleaning may have changed
    /// it a moment ago.
    fn replace(&self, addr: BlockAddr) -> BlockAddr {
        let mut image = self.node.modify();
        let (words, _) = block::part_mut(&mut image, self.bytes(1)).as_chunks_mut::<4>();
        BlockAddr(u32::from_le_bytes(std::mem::replace(
            block::entry_mut(words, 0),
            addr.get().to_le_bytes(),
        )))
    }

    /// What it and the next pointers of its node say, `count` in all at most.
    #[must_use]
    pub(crate) fn get_run(&self, count: u32) -> Vec<BlockAddr> {
        let image = self.node.image();
        let (words, _) = block::part(&image, self.bytes(count.min(self.rest))).as_chunks::<4>();
        words.iter().map(|word| BlockAddr(u32::from_le_bytes(*word))).collect()
    }

    /// Makes it and the next pointers say the addresses from `first` on. Returns what they said.
    ///
    /// # Panics
    /// The run leaves the node.
    #[must_use]
    pub(crate) fn set_run(&self, first: BlockAddr, count: u32) -> Vec<BlockAddr> {
        assert!(count <= self.rest, "{count} pointers of {}", self.rest);
        let mut image = self.node.modify();
        let (words, _) = block::part_mut(&mut image, self.bytes(count)).as_chunks_mut::<4>();
        let swap = |(index, word): (u32, &mut [u8; 4])| {
            let new = first.get().strict_add(index).to_le_bytes();
            BlockAddr(u32::from_le_bytes(std::mem::replace(word, new)))
        };
        (0..count).zip(words).map(swap).collect()
    }

    /// Makes it and the next `count` pointers holes. Returns what they said.
    fn clear_run(&self, count: u32) -> Vec<BlockAddr> {
        let mut image = self.node.modify();
        let (words, _) =
            block::part_mut(&mut image, self.bytes(count.min(self.rest))).as_chunks_mut::<4>();
        words.iter_mut().map(|word| BlockAddr(u32::from_le_bytes(std::mem::take(word)))).collect()
    }

    /// Turns the holes among it and the next `count` pointers into blocks without an address.
    /// Returns how many those were.
    #[must_use]
    pub(crate) fn fill_run(&self, count: u32) -> u32 {
        assert!(count <= self.rest, "{count} pointers of {}", self.rest);
        if !self.get_run(count).contains(&BlockAddr::NULL) {
            return 0;
        }
        let mut image = self.node.modify();
        let (words, _) = block::part_mut(&mut image, self.bytes(count)).as_chunks_mut::<4>();
        let holes = words.iter_mut().filter(|word| **word == BlockAddr::NULL.get().to_le_bytes());
        let filled = holes.map(|word| *word = BlockAddr::NEW.get().to_le_bytes()).count();
        u32::try_from(filled).unwrap_or(count)
    }

    /// Who owns the block that it will point to.
    #[must_use]
    pub(crate) fn owner(&self) -> segment::Owner {
        segment::Owner {
            nid: self.node.nid(),
            version: self.node.version(),
            ofs_in_node: self.slot,
        }
    }

    /// The same of the blocks that it and the next pointers, `count` in all, will point to.
    ///
    /// # Panics
    /// The run leaves the node.
    pub(crate) fn owners(&self, count: u32) -> impl Iterator<Item = segment::Owner> + use<> {
        assert!(count <= self.rest, "{count} pointers of {}", self.rest);
        let first = self.owner();
        (0..count).map(move |index| segment::Owner {
            ofs_in_node: slot_after(first.ofs_in_node, index),
            ..first
        })
    }

    /// A hole becomes a block without an address: it counts from now on. True if it was a hole.
    pub(crate) fn reserve(&self, op: &mut Op<'_>, inode: &Arc<Inode>) -> bool {
        if self.get() != BlockAddr::NULL {
            return false;
        }
        op.reservation.take(1);
        self.set(BlockAddr::NEW);
        count_blocks(op, inode, 1);
        true
    }

    /// The block was written at `addr`: the old place is taken back.
    ///
    /// # Errors
    /// The old block was not in use: the volume is damaged.
    pub(crate) fn moved(&self, store: &Store, addr: BlockAddr) -> Result<()> {
        let old = self.replace(addr);
        if old.is_address() {
            store.segments.invalidate(old)?;
        }
        Ok(())
    }

    /// The block is no more. True if there was one.
    ///
    /// # Errors
    /// It was not in use: the volume is damaged.
    pub(crate) fn free(&self, op: &Op<'_>, inode: &Arc<Inode>) -> Result<bool> {
        // Cleaning may give it another address meanwhile, but none to a hole.
        if self.get() == BlockAddr::NULL {
            return Ok(false);
        }
        let old = self.replace(BlockAddr::NULL);
        if old.is_address() {
            op.store.segments.invalidate(old)?;
        }
        op.store.space.release(1);
        count_blocks(op, inode, -1);
        Ok(true)
    }
}

/// Where the pointer number `count` behind the one at this byte stands.
const fn word(at: usize, count: u32) -> usize {
    at.strict_add(as_index(count).strict_mul(4))
}

/// The number of the pointer `count` further on; a node has at most 1018.
fn slot_after(slot: u16, count: u32) -> u16 {
    slot.saturating_add(u16::try_from(count).unwrap_or(u16::MAX))
}

/// Gives back the blocks of the first `count` pointers from this one on.
///
/// # Errors
/// One was not in use: the volume is damaged.
pub(crate) fn free_run(
    op: &Op<'_>,
    inode: &Arc<Inode>,
    pointer: &Pointer,
    count: u32,
) -> Result<()> {
    if pointer.get_run(count).iter().all(|addr| *addr == BlockAddr::NULL) {
        return Ok(());
    }
    let old = pointer.clear_run(count);
    let mut freed = 0_u64;
    for addr in old.into_iter().filter(|addr| *addr != BlockAddr::NULL) {
        if addr.is_address() {
            op.store.segments.invalidate(addr)?;
        }
        freed = freed.strict_add(1);
    }
    op.store.space.release(freed);
    count_blocks(op, inode, freed.cast_signed().strict_neg());
    Ok(())
}

/// Adds blocks to an inode's count, or takes them off.
pub(crate) fn count_blocks(op: &Op<'_>, inode: &Arc<Inode>, change: i64) {
    let mut state = inode.state.write();
    state.record.blocks = state.record.blocks.saturating_add_signed(change);
    inode.touch(op.inodes, &mut state);
}

/// The pointer of a file block, if the nodes that lead to it are there. Otherwise so many blocks
/// from here on are a hole.
///
/// # Errors
/// A node on the way is damaged, or the device failed.
pub(crate) fn find(store: &Store, inode: &Inode, block: u64) -> Result<Result<Pointer, u64>> {
    let shape = inode.state.read().record.shape();
    let Some(path) = shape.locate(block) else { return Ok(Err(u64::MAX.saturating_sub(block))) };
    let mut node = own_node(store, inode)?;
    for depth in 1..=path.depth {
        let nid = child_at(inode, &node, &path, depth);
        if nid.is_none() {
            let (first, len) = shape.span(&path, depth, block);
            return Ok(Err(len.saturating_sub(block.saturating_sub(first))));
        }
        node = store.nodes.child(nid, inode.nid, path.offset(depth))?;
    }
    Ok(Ok(Pointer::new(inode, node, &path)))
}

/// The offsets in the tree of the nodes that a path lacks, from the first one on.
///
/// # Errors
/// A node on the way is damaged, or the device failed.
pub(crate) fn missing(store: &Store, inode: &Inode, path: &NodePath) -> Result<Vec<u32>> {
    let mut node = own_node(store, inode)?;
    for depth in 1..=path.depth {
        let nid = child_at(inode, &node, path, depth);
        if nid.is_none() {
            return Ok(path.offsets.get(depth..=path.depth).unwrap_or_default().to_vec());
        }
        if depth < path.depth {
            node = store.nodes.child(nid, inode.nid, path.offset(depth))?;
        }
    }
    Ok(Vec::new())
}

/// The pointer of a file block; nodes that are missing are made, out of the operation's reservation
/// (at most 3).
///
/// # Errors
/// The file can have no such block, no nid is free, a node on the way is damaged, or the device
/// failed.
pub(crate) fn make(op: &mut Op<'_>, inode: &Arc<Inode>, block: u64) -> Result<Pointer> {
    let shape = inode.state.read().record.shape();
    let path = shape.locate(block).ok_or(cairn_vfs::Error::TooLarge)?;
    let mut node = own_node(op.store, inode)?;
    for depth in 1..=path.depth {
        let nid = child_at(inode, &node, &path, depth);
        node = if nid.is_none() {
            make_node(op, inode, &node, &path, depth)?
        } else {
            op.store.nodes.child(nid, inode.nid, path.offset(depth))?
        };
    }
    Ok(Pointer::new(inode, node, &path))
}

/// The node of the inode itself.
///
/// # Errors
/// There is none any more, it is damaged, or the device failed.
pub(crate) fn own_node(store: &Store, inode: &Inode) -> Result<Arc<Node>> {
    Ok(store.nodes.inode(inode.nid)?.ok_or(cairn_vfs::Error::Stale)?)
}

fn child_at(inode: &Inode, parent: &Arc<Node>, path: &NodePath, depth: usize) -> Nid {
    let slot = usize::from(path.slot(depth.strict_sub(1)));
    match depth {
        1 => inode.state.read().record.nids.get(slot).copied().unwrap_or(Nid::NONE),
        _ => node::child(&parent.image(), slot),
    }
}

fn make_node(
    op: &mut Op<'_>,
    inode: &Arc<Inode>,
    parent: &Arc<Node>,
    path: &NodePath,
    depth: usize,
) -> Result<Arc<Node>> {
    let made = new_node(op, inode, path.offset(depth))?;
    let slot = usize::from(path.slot(depth.strict_sub(1)));
    if depth == 1 {
        let mut state = inode.state.write();
        *block::entry_mut(&mut state.record.nids, slot) = made.nid();
        inode.touch(op.inodes, &mut state);
    } else {
        node::set_child(&mut parent.modify(), slot, made.nid());
    }
    Ok(made)
}

/// A new node at an offset of the inode's tree, counted; the caller points to it.
///
/// # Errors
/// No nid is free, or the NAT cannot be read.
pub(crate) fn new_node(op: &mut Op<'_>, inode: &Arc<Inode>, offset: u32) -> Result<Arc<Node>> {
    let nid = op.store.nat.allocate()?;
    let owner = owner_of(inode);
    let made = op.store.nodes.create(nid, inode.nid, offset, owner, &mut op.reservation);
    let made = made.inspect_err(|_| op.store.nat.give_back(nid))?;
    count_blocks(op, inode, 1);
    Ok(made)
}

/// Gives a node back that nothing points to any more.
///
/// # Errors
/// It is damaged, or the device failed.
pub(crate) fn remove_node(op: &Op<'_>, inode: &Arc<Inode>, nid: Nid) -> Result<()> {
    op.store.nodes.release(op.store.nodes.remove(nid)?);
    inode.ledger.changed(Part::Data, op.store.checkpoints.version());
    count_blocks(op, inode, -1);
    Ok(())
}

/// Which logs the inode's nodes go to.
#[must_use]
pub(crate) fn owner_of(inode: &Inode) -> Owner {
    match inode.kind {
        cairn_vfs::FileKind::Directory => Owner::Directory,
        _ => Owner::Other,
    }
}
