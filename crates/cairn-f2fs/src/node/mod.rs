//! Nodes of a mounted volume: found through the NAT, checked by their footers.
//!
//! The buffer cache holds clean node blocks under their addresses. Nodes that roll-forward changed
//! take precedence. A node is accepted only if its footer has the nid, the inode and the offset by
//! which it was found. So a wrong pointer is detected, and no walk finds the same block in two
//! places.
//!
//! All code reads nodes through [`NodeCache`]. On a writable volume it asks [`Nodes`], where they
//! are changed.

mod block;
mod chain;
mod index;
mod nodes;
pub(crate) mod tree;
mod write;

use std::sync::Arc;

use cairn_cache::block::{BufferCache, Image};

use crate::corrupt::Corrupt;
use crate::error::Result;
use crate::format::inode;
use crate::format::layout::Layout;
use crate::format::node::NodeFooter;
use crate::format::units::{BlockAddr, Nid};
use crate::nat::NatTable;
use crate::recovery::overlay::Overlay;
use crate::sit::SitTable;

use nodes::old_version;

pub(crate) use block::Node;
pub(crate) use block::NodeGuard;
pub(crate) use block::Owner;
pub(crate) use nodes::Room;
pub(crate) use nodes::{NODE_BYTES, Nodes};
pub(crate) use write::PlacedNodes;

/// Reads nodes, and keeps those that roll-forward changed.
pub(crate) struct NodeCache {
    layout: Arc<Layout>,
    buffers: Arc<BufferCache>,
    nat: Arc<NatTable>,
    overlay: Overlay,
    /// The nodes of a writable volume, which has no overlay.
    live: Option<Arc<Nodes>>,
    /// The SIT of a volume that is only read.
    sit: Option<SitTable>,
}

impl NodeCache {
    /// The nodes of a volume, with the changes of roll-forward.
    #[must_use]
    pub(crate) fn new(
        layout: Arc<Layout>,
        buffers: Arc<BufferCache>,
        nat: Arc<NatTable>,
        sit: SitTable,
        overlay: Overlay,
    ) -> Self {
        Self { layout, buffers, nat, overlay, live: None, sit: Some(sit) }
    }

    /// The nodes of a volume that is written.
    #[must_use]
    pub(crate) fn live(
        layout: Arc<Layout>,
        buffers: Arc<BufferCache>,
        nat: Arc<NatTable>,
        nodes: Arc<Nodes>,
    ) -> Self {
        Self { layout, buffers, nat, overlay: Overlay::default(), live: Some(nodes), sit: None }
    }

    /// The changes of roll-forward.
    #[must_use]
    pub(crate) fn overlay(&self) -> &Overlay {
        &self.overlay
    }

    /// The block of a node that belongs to inode `ino` at `offset` of its tree.
    ///
    /// # Errors
    /// There is no such node, its block has another node, or the device failed.
    pub(crate) fn read(&self, nid: Nid, ino: Nid, offset: u32) -> Result<Image> {
        if let Some(live) = &self.live {
            return Ok(live.child(nid, ino, offset)?.image());
        }
        let (image, footer, addr) = match self.overlay.node(nid, &self.buffers, &self.layout)? {
            Some(image) => {
                let footer = NodeFooter::read(&image);
                (image, footer, BlockAddr::NULL)
            }
            None => self.read_stored(nid, ino)?,
        };
        footer.check(nid, ino, addr)?;
        if footer.offset != offset {
            let what = "the footer has another offset";
            return Err(Corrupt::Node { nid, addr, what, value: footer.offset.into() }.into());
        }
        Ok(image)
    }

    fn read_stored(&self, nid: Nid, ino: Nid) -> Result<(Image, NodeFooter, BlockAddr)> {
        let entry = self.nat.lookup(nid)?;
        let addr = entry.block_addr;
        let bad = |what, value: u32| Corrupt::Node { nid, addr, what, value: value.into() };
        if entry.is_free() {
            return Err(bad("a pointer names a node that does not exist", nid.get()).into());
        }
        if entry.ino != ino {
            return Err(bad("the NAT names another inode", entry.ino.get()).into());
        }
        let image = self.buffers.get(addr.pba())?.image();
        let footer = NodeFooter::read(&image);
        self.check_valid(nid, addr)?;
        Ok((image, footer, addr))
    }

    /// The block of an inode, its checksum verified; `None` if there is no such inode.
    ///
    /// # Errors
    /// Its block is another or damaged, or the device failed.
    pub(crate) fn inode(&self, ino: Nid) -> Result<Option<Image>> {
        if let Some(live) = &self.live {
            return Ok(live.inode(ino)?.map(|node| node.image()));
        }
        if let Some(image) = self.overlay.node(ino, &self.buffers, &self.layout)? {
            let footer = NodeFooter::read(&image);
            return Ok((footer.ino == ino).then_some(image));
        }
        let entry = self.nat.lookup(ino)?;
        // The number belongs to another kind of node, so no such inode exists.
        if entry.is_free() || entry.ino != ino {
            return Ok(None);
        }
        let buffer = self.buffers.get(entry.block_addr.pba())?;
        let image = buffer.image();
        NodeFooter::read(&image).check(ino, ino, entry.block_addr)?;
        if !buffer.is_verified() {
            inode::verify(&image, ino, &self.layout)?;
            self.check_valid(ino, entry.block_addr)?;
            buffer.set_verified();
        }
        Ok(Some(image))
    }

    /// Does the SIT of a volume that is only read have a block as used?
    pub(crate) fn calls_used(&self, addr: BlockAddr) -> bool {
        self.sit.as_ref().is_some_and(|sit| sit.is_used(addr) == Some(true))
    }

    /// Checks that the SIT has the block of a node as used.
    fn check_valid(&self, nid: Nid, addr: BlockAddr) -> Result<(), Corrupt> {
        match &self.sit {
            Some(sit) if sit.is_used(addr) == Some(false) => Err(old_version(nid, addr)),
            _ => Ok(()),
        }
    }
}
