//! The walk through the nodes and pointers of an inode, whatever their bytes are.
//!
//! A node is followed once, so that a walk ends. Its [`Visitor`] says where nodes come from: the
//! NAT, or an old version of them in the log.

use std::collections::HashSet;

use cairn_base::units::as_index;
use cairn_cache::block::Image;

use super::RawVolume;
use crate::format::Inode;
use crate::format::node::{self, NodeFooter};
use crate::format::path::{self, NodeKind};
use crate::format::units::{BlockAddr, Nid};

/// A node below an inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Below {
    pub(crate) nid: Nid,
    pub(crate) ino: Nid,
    /// Its offset in the tree.
    pub(crate) offset: u32,
}

/// A data pointer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pointer {
    /// The file block.
    pub(crate) block: u64,
    pub(crate) addr: BlockAddr,
    /// The node that has it, and which of its pointers it is.
    pub(crate) holder: Nid,
    pub(crate) slot: u32,
}

/// Who looks at a tree.
pub(crate) trait Visitor {
    /// The bytes of a node.
    fn fetch(&mut self, volume: &RawVolume, below: Below) -> Result<(BlockAddr, Image), String> {
        volume.node_below(below)
    }

    /// A node that was read.
    fn node(&mut self, below: Below, addr: BlockAddr);

    /// A pointer that is not null.
    fn pointer(&mut self, pointer: Pointer);

    /// A node that cannot be followed.
    fn fault(&mut self, below: Below, what: String);
}

impl RawVolume {
    /// A node of an inode, as the NAT has it.
    ///
    /// # Errors
    /// The NAT leads to no such node.
    pub(crate) fn node_below(&self, below: Below) -> Result<(BlockAddr, Image), String> {
        let (addr, image) = self.node(below.nid)?;
        check(below, addr, &image)?;
        Ok((addr, image))
    }
}

/// Checks that a block is the node that is meant.
///
/// # Errors
/// Its footer says something else.
pub(crate) fn check(below: Below, addr: BlockAddr, image: &[u8]) -> Result<(), String> {
    let footer = NodeFooter::read(image);
    footer.check(below.nid, below.ino, addr).map_err(|error| error.to_string())?;
    match footer.offset == below.offset {
        true => Ok(()),
        false => Err(format!("block {addr}: the footer has the offset {}", footer.offset)),
    }
}

struct Walk<'a> {
    volume: &'a RawVolume,
    record: &'a Inode,
    ino: Nid,
    visitor: &'a mut dyn Visitor,
    followed: HashSet<Nid>,
}

/// Visits the tree of an inode, in the order of the file.
pub(crate) fn walk(
    volume: &RawVolume,
    ino: Nid,
    (record, image): (&Inode, &[u8]),
    visitor: &mut dyn Visitor,
) {
    let mut walk = Walk { volume, record, ino, visitor, followed: HashSet::from([ino]) };
    walk.pointers(ino, 0, record.data_pointers(image));
    for (nid, offset) in record.nids.into_iter().zip(path::INODE_NODES) {
        walk.below(nid, offset);
    }
}

impl Walk<'_> {
    /// The depth of the calls is at most three, that of the tree.
    fn below(&mut self, nid: Nid, offset: u32) {
        if nid.is_none() {
            return;
        }
        let below = Below { nid, ino: self.ino, offset };
        if !self.followed.insert(nid) {
            return self.visitor.fault(below, format!("node {nid} is in the tree twice"));
        }
        if !self.volume.allowance.structure() {
            let what = "the inodes of the volume name too many nodes".to_owned();
            return self.visitor.fault(below, what);
        }
        let (addr, image) = match self.visitor.fetch(self.volume, below) {
            Ok(found) => found,
            Err(why) => return self.visitor.fault(below, why),
        };
        self.visitor.node(below, addr);
        match (NodeKind::at(offset), path::children(offset)) {
            (Some(NodeKind::Direct), _) => {
                let shape = self.record.shape();
                let first = shape.first_block(offset).unwrap_or(u64::MAX);
                let used = node::data_pointers(&image).take(as_index(shape.node_slots));
                self.pointers(nid, first, used);
            }
            (_, Some((first, step))) => {
                let mut offset = first;
                for index in 0..node::POINTERS {
                    self.below(node::child(&image, index), offset);
                    offset = offset.saturating_add(step);
                }
            }
            _ => {}
        }
    }

    fn pointers(&mut self, holder: Nid, first: u64, pointers: impl Iterator<Item = BlockAddr>) {
        for (slot, addr) in (0_u32..).zip(pointers) {
            if addr != BlockAddr::NULL {
                let block = first.saturating_add(slot.into());
                self.visitor.pointer(Pointer { block, addr, holder, slot });
            }
        }
    }
}
