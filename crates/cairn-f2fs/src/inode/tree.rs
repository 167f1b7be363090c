//! The node tree of an inode, for writing: the pointer of a file block, and the nodes on the path
//! to it.
//!
//! This is the one place that counts file blocks: [`Pointer::reserve`] and [`free_run`] keep
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

use cairn_base::units::{as_index, as_u64};

use super::Inode;
use super::freed::{self, GivenUp};
use crate::error::Result;
use crate::format::node;
use crate::format::path::NodePath;
use crate::format::{BlockAddr, Nid, block};
use crate::mount_state::MountState;
use crate::node::{Node, Owner};
use crate::op::Op;
use crate::segment;
use crate::store::Store;
use cairn_cache::durability::Part;

/// Offset of the first word of an inode's node that holds pointers or inline contents.
const INODE_WORDS_AT: usize = 360;

/// The pointer to a file block.
#[derive(Clone)]
pub(crate) struct Pointer {
    /// The node that contains it: the inode's own or a direct one.
    pub(crate) node: Arc<Node>,
    /// Its index among the data pointers of that node: `ofs_in_node`.
    pub(crate) slot: u16,
    /// Number of pointers from this one to the end of its node.
    pub(crate) rest: u32,
    /// Its offset in the node, in bytes.
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

    /// The bytes of `count` pointers from this one on.
    fn bytes(&self, count: u32) -> Range<usize> {
        self.at..word(self.at, count)
    }

    /// The pointer `count` blocks later in the same node.
    ///
    /// # Panics
    /// That pointer is in another node.
    #[must_use]
    pub(crate) fn after(&self, count: u32) -> Self {
        assert!(count < self.rest, "{count} pointers further on of {}", self.rest);
        let (node, slot) = (self.node.clone(), slot_after(self.slot, count));
        Self { node, slot, rest: self.rest.strict_sub(count), at: word(self.at, count) }
    }

    /// Its address.
    #[must_use]
    pub(crate) fn get(&self) -> BlockAddr {
        let image = self.node.image();
        let (words, _) = block::part(&image, self.bytes(1)).as_chunks::<4>();
        BlockAddr(u32::from_le_bytes(*block::entry(words, 0)))
    }

    /// Sets its address. The caller updates the counters.
    pub(crate) fn set(&self, addr: BlockAddr) {
        self.replace(addr);
    }

    /// Sets its address and returns the old one, which cleaning may have changed just before.
    fn replace(&self, addr: BlockAddr) -> BlockAddr {
        let mut image = self.node.modify();
        let (words, _) = block::part_mut(&mut image, self.bytes(1)).as_chunks_mut::<4>();
        BlockAddr(u32::from_le_bytes(std::mem::replace(
            block::entry_mut(words, 0),
            addr.get().to_le_bytes(),
        )))
    }

    /// The addresses of at most `count` pointers of its node, from this one on.
    #[must_use]
    pub(crate) fn get_run(&self, count: u32) -> Vec<BlockAddr> {
        let image = self.node.image();
        let (words, _) = block::part(&image, self.bytes(count.min(self.rest))).as_chunks::<4>();
        words.iter().map(|word| BlockAddr(u32::from_le_bytes(*word))).collect()
    }

    /// Sets this pointer and the next ones to the addresses from `first` on. Returns the old
    /// addresses.
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

    /// Makes `count` pointers from this one on holes. Returns the old addresses.
    fn clear_run(&self, count: u32) -> Vec<BlockAddr> {
        let mut image = self.node.modify();
        let (words, _) =
            block::part_mut(&mut image, self.bytes(count.min(self.rest))).as_chunks_mut::<4>();
        words.iter_mut().map(|word| BlockAddr(u32::from_le_bytes(std::mem::take(word)))).collect()
    }

    /// Turns the holes among `count` pointers from this one on into blocks without an address.
    /// Returns the number of holes.
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

    /// The owner of the block that it will point to.
    #[must_use]
    pub(crate) fn owner(&self) -> segment::Owner {
        segment::Owner {
            nid: self.node.nid(),
            version: self.node.version(),
            ofs_in_node: self.slot,
        }
    }

    /// The owners of the blocks that `count` pointers from this one on will point to.
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

    /// Turns a hole into a block without an address, and counts it. True if it was a hole.
    pub(crate) fn reserve(&self, op: &mut Op<'_>, inode: &Arc<Inode>) -> bool {
        if self.get() != BlockAddr::NULL {
            return false;
        }
        op.reservation.take(1);
        self.set(BlockAddr::NEW);
        count_blocks(op, inode, 1);
        true
    }

    /// Points to the block's new address `addr`, which is counted already, and frees the old one.
    ///
    /// # Errors
    /// The segment table is damaged.
    pub(crate) fn moved(&self, mount: &MountState, inode: &Inode, addr: BlockAddr) -> Result<()> {
        let old = self.replace(addr);
        let kept = self.give_up(mount, inode, &[old])?;
        mount.store()?.space.keep(kept);
        Ok(())
    }

    /// Frees the blocks to which pointers from this one on led, which are cleared or have other
    /// addresses. Returns the number of addresses whose blocks were not freed: see
    /// [`super::freed`].
    ///
    /// # Errors
    /// The segment table is damaged.
    pub(crate) fn give_up(
        &self,
        mount: &MountState,
        inode: &Inode,
        old: &[BlockAddr],
    ) -> Result<u64> {
        let given_up = GivenUp { node: &self.node, first: self.owner(), old };
        freed::free(mount, inode, &given_up)
    }
}

/// Offset of the pointer `count` places after the one at this offset.
const fn word(at: usize, count: u32) -> usize {
    at.strict_add(as_index(count).strict_mul(4))
}

/// The index of the pointer `count` places later. A node has at most 1018.
fn slot_after(slot: u16, count: u32) -> u16 {
    slot.saturating_add(u16::try_from(count).unwrap_or(u16::MAX))
}

/// Frees the blocks of `count` pointers from this one on, but for those of others.
///
/// # Errors
/// The segment table is damaged.
pub(crate) fn free_run(
    op: &Op<'_>,
    inode: &Arc<Inode>,
    pointer: &Pointer,
    count: u32,
) -> Result<()> {
    // Cleaning may change an address meanwhile, but gives none to a hole.
    if pointer.get_run(count).iter().all(|addr| *addr == BlockAddr::NULL) {
        return Ok(());
    }
    let old = pointer.clear_run(count);
    let cleared = as_u64(old.iter().filter(|addr| **addr != BlockAddr::NULL).count());
    let kept = pointer.give_up(&op.inodes.mount, inode, &old)?;
    op.store.space.release(cleared.saturating_sub(kept));
    count_blocks(op, inode, cleared.cast_signed().strict_neg());
    Ok(())
}

/// Adds `change` to an inode's count of blocks.
pub(crate) fn count_blocks(op: &Op<'_>, inode: &Arc<Inode>, change: i64) {
    let mut state = inode.state.write();
    state.record.blocks = state.record.blocks.saturating_add_signed(change);
    inode.mark_dirty(op.inodes, &mut state);
}

/// The pointer of a file block, if the nodes that lead to it are there. Otherwise the length of the
/// hole from here on, in blocks.
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

/// The tree offsets of the missing nodes of a path.
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

/// The pointer to a file block. Makes missing nodes from the operation's reservation (at most 3).
///
/// # Errors
/// The block is beyond the largest file, no nid is free, a node on the path is damaged, or the
/// device failed.
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
/// The node is gone or damaged, or the device failed.
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
        inode.mark_dirty(op.inodes, &mut state);
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
    let nid = op.store.allocate_nid()?;
    let owner = owner_of(inode);
    let made = op.store.nodes.create(nid, inode.nid, offset, owner, &mut op.reservation);
    let made = made.inspect_err(|_| op.store.nat.give_back(nid))?;
    count_blocks(op, inode, 1);
    Ok(made)
}

/// Frees a node that nothing points to any more.
///
/// # Errors
/// The node is damaged, or the device failed.
pub(crate) fn remove_node(op: &Op<'_>, inode: &Arc<Inode>, nid: Nid) -> Result<()> {
    op.store.nodes.release(op.store.nodes.remove(nid)?);
    inode.ledger.changed(Part::Data, op.store.checkpoints.version());
    count_blocks(op, inode, -1);
    Ok(())
}

/// Frees the node of the inode's attributes.
///
/// # Errors
/// As [`remove_node`]; or the node is another inode's.
pub(crate) fn remove_xattr_node(op: &Op<'_>, inode: &Arc<Inode>, nid: Nid) -> Result<()> {
    op.store.nodes.child(nid, inode.nid, node::XATTR_OFFSET)?;
    remove_node(op, inode, nid)
}

/// The log of the inode's nodes.
#[must_use]
pub(crate) fn owner_of(inode: &Inode) -> Owner {
    match inode.kind {
        cairn_vfs::FileKind::Directory => Owner::Directory,
        _ => Owner::Other,
    }
}
