//! Finds the node that points to a file block.

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

use cairn_base::units::as_index;
use cairn_cache::block::Image;

use super::NodeCache;
use crate::corrupt::Corrupt;
use crate::error::Result;
use crate::format::inode::Inode;
use crate::format::layout::Layout;
use crate::format::node;
use crate::format::path::NodePath;
use crate::format::units::{BlockAddr, Nid};

/// The node with a file block's pointer.
pub(crate) enum Leaf {
    /// A node; see [`Pointers`].
    Node(Pointers),
    /// None: this many blocks from here on are a hole.
    Hole(u64),
}

/// The pointers from a file block to the end of its node.
pub(crate) struct Pointers {
    nid: Nid,
    image: Image,
    path: NodePath,
}

impl Pointers {
    /// Pointers from the block on, at least 1.
    #[must_use]
    pub(crate) fn len(&self) -> u32 {
        self.path.rest
    }

    /// The node, and the number of the block's pointer in it.
    #[must_use]
    pub(crate) fn place(&self) -> (Nid, u16) {
        (self.nid, self.path.slot(self.path.depth))
    }

    /// The pointer before that of the block, if it is in the same node.
    #[must_use]
    pub(crate) fn before(&self, inode: &Inode) -> Option<BlockAddr> {
        let slot = u32::from(self.path.slot(self.path.depth)).checked_sub(1)?;
        Some(self.at(inode, slot))
    }

    /// Pointer number `index` from the block on.
    ///
    /// # Panics
    /// It is not below [`Pointers::len`].
    #[must_use]
    pub(crate) fn get(&self, inode: &Inode, index: u32) -> BlockAddr {
        assert!(index < self.len(), "pointer {index} of {}", self.len());
        self.at(inode, u32::from(self.path.slot(self.path.depth)).saturating_add(index))
    }

    fn at(&self, inode: &Inode, slot: u32) -> BlockAddr {
        match self.path.depth {
            0 => inode.data_pointer(&self.image, slot),
            _ => node::data_pointer(&self.image, as_index(slot)),
        }
    }
}

/// Finds the pointers of a file block. Reads at most four nodes.
///
/// # Errors
/// A node on the way is damaged or missing, or the device failed.
pub(crate) fn find(nodes: &NodeCache, ino: Nid, inode: &Inode, block: u64) -> Result<Leaf> {
    let shape = inode.shape();
    let Some(path) = shape.locate(block) else {
        return Ok(Leaf::Hole(u64::MAX.saturating_sub(block)));
    };
    if path.depth == 0 {
        let missing = || Corrupt::Nat { nid: ino, what: "the inode is gone", value: 0 };
        let image = nodes.inode(ino)?.ok_or_else(missing)?;
        return Ok(Leaf::Node(Pointers { nid: ino, image, path }));
    }
    let mut nid = inode.nids.get(usize::from(path.slot(0))).copied().unwrap_or(Nid::NONE);
    for depth in 1..=path.depth {
        if nid.is_none() {
            let (first, len) = shape.span(&path, depth, block);
            return Ok(Leaf::Hole(len.saturating_sub(block.saturating_sub(first))));
        }
        let image = nodes.read(nid, ino, path.offset(depth))?;
        if depth == path.depth {
            return Ok(Leaf::Node(Pointers { nid, image, path }));
        }
        nid = node::child(&image, usize::from(path.slot(depth)));
    }
    unreachable!("the last step returns")
}

/// Checks that a pointer is one of the special values or lies in the main area.
///
/// # Errors
/// The pointer is outside the main area.
pub(crate) fn check_pointer(
    addr: BlockAddr,
    ino: Nid,
    block: u64,
    layout: &Layout,
) -> Result<(), Corrupt> {
    if !addr.is_address() || layout.in_main(addr) {
        return Ok(());
    }
    let what = "the pointer leads out of the main area";
    Err(Corrupt::Mapping { ino, block, what, value: addr.get().into() })
}
