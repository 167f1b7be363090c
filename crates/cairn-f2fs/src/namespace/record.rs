//! The changes of inode records by operations on names.

use std::sync::Arc;

use cairn_vfs::FileKind;

use super::parent;
use crate::error::Result;
use crate::format::Inode as Record;
use crate::inode::Inode;
use crate::op::Op;

/// Removes one link (all links of a directory). An inode without names becomes an orphan. Fails
/// before anything is changed.
pub(super) fn drop_link(op: &Op<'_>, inode: &Arc<Inode>) -> Result<()> {
    let last = inode.kind == FileKind::Directory || inode.state.read().record.links <= 1;
    if last {
        op.store.checkpoints.orphans.add(inode.nid)?;
    }
    let now = op.inodes.now();
    parent::changed(op, inode);
    change(op, inode, |record| {
        record.links = if last { 0 } else { record.links - 1 };
        record.ctime = now;
    });
    Ok(())
}

/// Updates a directory after a change of its entries: its times, and its link count by the change
/// of subdirectories.
pub(super) fn touch_parent(op: &Op<'_>, parent: &Arc<Inode>, subdirectories: i32) {
    let now = op.inodes.now();
    change(op, parent, |record| {
        (record.mtime, record.ctime) = (now, now);
        record.links = record.links.saturating_add_signed(subdirectories);
    });
}

/// Changes a record.
pub(super) fn change(op: &Op<'_>, inode: &Arc<Inode>, change: impl FnOnce(&mut Record)) {
    let mut state = inode.state.write();
    change(&mut state.record);
    inode.mark_dirty(op.inodes, &mut state);
}
