//! Deletes an inode: frees blocks, attributes and nid when it has no links and no references.

use std::sync::Arc;

use super::{Inode, has_blocks, tree, truncate_blocks};
use crate::error::Result;
use crate::format::Nid;
use crate::format::node::XATTR_OFFSET;
use crate::inode::read_mapper::ReadMapper;
use crate::op::{Op, Operations};

/// Deletes an inode that has neither names nor users. It is among the orphans, so after a crash the
/// next mount deletes the rest.
///
/// # Errors
/// One of its nodes is damaged, or the device failed.
pub(crate) fn delete_inode(ops: &Operations, inode: &Arc<Inode>) -> Result<()> {
    let _names = inode.namespace.write();
    let _data = inode.data.write();
    if inode.state.read().deleted {
        return Ok(());
    }
    inode.cache.drop_all(&ReadMapper::new(&ops.disk, inode));
    inode.entries.clear(&ops.inodes.dirty_entries);
    if has_blocks(&inode.state.read().record) {
        truncate_blocks::truncate_blocks(ops, inode, 0)?;
    }
    let xattrs = inode.state.read().record.xattr_nid;
    if !xattrs.is_none() {
        // An error is one before anything changes.
        ops.store()?.nodes.child(xattrs, inode.nid, XATTR_OFFSET)?;
    }
    ops.change(0, |op| finish(op, inode))
}

/// As [`delete_inode`], within an operation, for an inode that was just made and has few blocks.
///
/// # Errors
/// As [`delete_inode`].
pub(crate) fn erase(op: &mut Op<'_>, inode: &Arc<Inode>) -> Result<()> {
    inode.entries.clear(&op.inodes.dirty_entries);
    if has_blocks(&inode.state.read().record) {
        truncate_blocks::truncate_within(op, inode, 0)?;
    }
    finish(op, inode)
}

/// Frees the attributes, the inode's own node and its number.
fn finish(op: &mut Op<'_>, inode: &Arc<Inode>) -> Result<()> {
    let xattrs = inode.state.read().record.xattr_nid;
    if !xattrs.is_none() {
        tree::remove_xattr_node(op, inode, xattrs)?;
        inode.state.write().record.xattr_nid = Nid::NONE;
    }
    {
        let mut state = inode.state.write();
        (state.deleted, state.dirty) = (true, false);
    }
    op.inodes.dirty.remove(inode.nid);
    let removed = op.store.nodes.remove(inode.nid)?;
    op.store.checkpoints.orphans.remove(inode.nid);
    // Done before the operation lock is released: the number can be allocated again after a
    // checkpoint, or from the next line on.
    op.inodes.table.remove(inode.nid.ino());
    op.store.nodes.release(removed);
    Ok(())
}
