//! Link counts, and the times that change with names.

use crate::error::Result;
use crate::inode::{Inode, attributes};
use crate::op::Operations;
use crate::txn::Handle;

/// Removes one link. An inode without links becomes an orphan.
pub(super) fn drop_link(ops: &Operations, handle: &Handle, inode: &Inode) -> Result<()> {
    let mut state = inode.state.write();
    state.record.links = state.record.links.saturating_sub(1);
    state.record.ctime = attributes::now(ops);
    if state.record.links == 0 {
        ops.orphans.add(ops, handle, inode.ino)?;
    }
    inode.write_inode(ops, handle, &mut state)
}

/// Removes the last link of a directory.
pub(super) fn drop_directory(ops: &Operations, handle: &Handle, inode: &Inode) -> Result<()> {
    let mut state = inode.state.write();
    let now = attributes::now(ops);
    state.record.links = 0;
    state.record.ctime = now;
    ops.orphans.add(ops, handle, inode.ino)?;
    inode.write_inode(ops, handle, &mut state)
}

/// Updates a directory after a change of its entries: its times, and its link count by
/// `subdirectories`.
pub(crate) fn touch_parent(
    ops: &Operations,
    handle: &Handle,
    parent: &Inode,
    subdirectories: i32,
) -> Result<()> {
    let mut state = parent.state.write();
    let now = attributes::now(ops);
    state.record.mtime = now;
    state.record.ctime = now;
    state.record.version = state.record.version.wrapping_add(1);
    state.count_subdirectories(subdirectories);
    parent.write_inode(ops, handle, &mut state)
}
