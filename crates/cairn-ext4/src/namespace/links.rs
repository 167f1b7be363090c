//! Link counts, and the times that change with names.

use std::sync::Arc;

use crate::error::Result;
use crate::inode::{Inode, attributes};
use crate::txn::Handle;
use crate::volume::Volume;

/// Removes one link. An inode without links becomes an orphan.
pub(super) fn drop_link(volume: &Arc<Volume>, handle: &Handle, inode: &Inode) -> Result<()> {
    let mut state = inode.state.write();
    state.record.links = state.record.links.saturating_sub(1);
    state.record.ctime = attributes::now(volume);
    if state.record.links == 0 {
        volume.orphans.add(volume, handle, inode.ino)?;
    }
    inode.write_inode(volume, handle, &mut state)
}

/// Removes the last link of a directory.
pub(super) fn drop_directory(volume: &Arc<Volume>, handle: &Handle, inode: &Inode) -> Result<()> {
    let mut state = inode.state.write();
    let now = attributes::now(volume);
    state.record.links = 0;
    state.record.ctime = now;
    volume.orphans.add(volume, handle, inode.ino)?;
    inode.write_inode(volume, handle, &mut state)
}

/// Updates a directory after a change of its entries: its times, and its link count by
/// `subdirectories`.
pub(crate) fn touch_parent(
    volume: &Arc<Volume>,
    handle: &Handle,
    parent: &Inode,
    subdirectories: i32,
) -> Result<()> {
    let mut state = parent.state.write();
    let now = attributes::now(volume);
    state.record.mtime = now;
    state.record.ctime = now;
    state.record.version = state.record.version.wrapping_add(1);
    volume.count_subdirectories(&mut state, subdirectories);
    parent.write_inode(volume, handle, &mut state)
}
