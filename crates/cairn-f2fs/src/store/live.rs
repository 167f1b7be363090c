//! The pointer to a data block, found by the summary of the block.

use std::sync::Arc;

use super::Store;
use crate::error::Result;
use crate::format::{BlockAddr, named};
use crate::node::Node;
use crate::segment::Owner;

/// A valid data block and the pointer to it.
pub(crate) struct Live {
    /// The block.
    pub(crate) addr: BlockAddr,
    /// Its owner by the summary.
    pub(crate) owner: Owner,
    /// The node with the pointer.
    pub(crate) node: Arc<Node>,
    /// The pointer's offset in the node, in bytes.
    pub(crate) at: usize,
}

impl Live {
    /// Sets the pointer's address.
    pub(crate) fn set(&self, addr: BlockAddr) {
        self.node.modify()[self.at..self.at + 4].copy_from_slice(&addr.get().to_le_bytes());
    }
}

/// The pointer to a data block, if its owner in the summary points to it.
///
/// # Errors
/// The owner is damaged, or the device failed.
pub(crate) fn find(store: &Store, addr: BlockAddr, owner: Owner) -> Result<Option<Live>> {
    match holder(store, owner)? {
        Some(node) => pointer(store, addr, owner, node),
        None => Ok(None),
    }
}

/// The pointer to a data block in this node, if there is one.
///
/// # Errors
/// The node is damaged.
pub(crate) fn pointer(
    store: &Store,
    addr: BlockAddr,
    owner: Owner,
    node: Arc<Node>,
) -> Result<Option<Live>> {
    let at = place(store, owner, &node)?.filter(|at| node.says(*at, addr));
    Ok(at.map(|at| Live { addr, owner, node, at }))
}

/// Where the pointer leads that a summary names, if there is one.
///
/// # Errors
/// As [`find`].
pub(crate) fn address(store: &Store, owner: Owner) -> Result<Option<BlockAddr>> {
    let Some(node) = holder(store, owner)? else { return Ok(None) };
    let Some(at) = place(store, owner, &node)? else { return Ok(None) };
    Ok(named::address_at(&node.image(), at))
}

/// The node with a pointer.
fn holder(store: &Store, owner: Owner) -> Result<Option<Arc<Node>>> {
    match store.nodes.peek(owner.nid) {
        Some(node) => Ok(Some(node)),
        None if store.nat.lookup(owner.nid)?.is_free() => Ok(None),
        None => store.nodes.get(owner.nid).map(Some),
    }
}

/// The offset of a pointer in its node, in bytes.
fn place(store: &Store, owner: Owner, node: &Node) -> Result<Option<usize>> {
    let of = (node.kind(), node.ino());
    Ok(named::place(|| node.image(), of, owner.ofs_in_node, store.layout.features)?)
}
