//! The life of an inode in memory: references, changes and eviction.

use std::sync::Arc;

use super::{Inode, State, delete};
use crate::error::Result;
use crate::inodes::Inodes;
use crate::op::Operations;

/// Drops references; an inode without names and references is deleted.
///
/// # Errors
/// The inode could not be deleted; the next mount does it.
pub(crate) fn forget(ops: &Operations, ino: cairn_base::Ino, count: u64) -> Result<()> {
    if ops.inodes.table.release(ino, count) > 0 {
        return Ok(());
    }
    match ops.inodes.table.get(ino) {
        Some(inode) => evict_inode(ops, &inode),
        None => Ok(()),
    }
}

/// Evicts an inode: deletes it if it has neither names nor references. The caller holds no
/// lock.
///
/// # Errors
/// As [`forget`].
pub(crate) fn evict_inode(ops: &Operations, inode: &Arc<Inode>) -> Result<()> {
    let unlinked = inode.state.read().record.links == 0;
    let kept = ops.inodes.table.references(inode.nid.ino()) > 0;
    if !unlinked || kept || ops.mount.read_only_reason().is_some() || ops.mount.is_closed() {
        return Ok(());
    }
    delete::delete_inode(ops, inode)
}

impl Inode {
    /// Marks the record as changed: the next checkpoint stores it at the latest.
    pub(crate) fn mark_dirty(self: &Arc<Self>, inodes: &Inodes, state: &mut State) {
        if !state.dirty && !state.deleted {
            state.dirty = true;
            inodes.dirty.insert(self);
        }
    }

    /// Removes the hint of the largest extent before the first pointer changes, because a wrong
    /// hint is damage.
    pub(crate) fn drop_hint(self: &Arc<Self>, inodes: &Inodes) {
        if self.state.read().record.ext.len == 0 {
            return;
        }
        let mut state = self.state.write();
        state.record.ext = Default::default();
        self.mark_dirty(inodes, &mut state);
    }
}
