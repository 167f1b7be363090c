//! Changes attributes (`setattr`): `chmod`, `chown`, `utimens`, `truncate`, `chattr`.

use std::sync::Arc;

use cairn_vfs::namespace::NamedInode;
use cairn_vfs::protection::without_privileges;
use cairn_vfs::{SetAttributes, Timestamp};

use crate::error::Result;
use crate::format::inode::InodeFlags;
use crate::inode::attributes::now;
use crate::inode::truncate::set_size;
use crate::inode::{Inode, State};
use crate::op::Operations;

/// Changes attributes.
///
/// # Errors
/// [`cairn_vfs::Error::NotPermitted`] by the flags; for a size, as [`super::truncate::set_size`];
/// the attributes are damaged, or the device or the journal failed.
pub(crate) fn setattr(
    ops: &Arc<Operations>,
    inode: &Arc<Inode>,
    set: &SetAttributes,
) -> Result<()> {
    ops.check_writable()?;
    inode.flags().check_attributes(set)?;
    if set.sets_times_only() && set_times_in_memory(ops, inode, set) {
        return Ok(());
    }
    if let Some(size) = set.size {
        set_size(ops, inode, size)?;
    }
    // The access control list changes with the permissions, and may have its own block.
    let credits = if set.permissions.is_some() { ops.credits.xattr } else { 0 };
    let handle = ops.begin(ops.credits.attributes + credits)?;
    let mut state = inode.state.write();
    let now = now(ops);
    if let Some(permissions) = set.permissions {
        crate::xattr_ops::follow_mode(ops, &handle, inode, &mut state, permissions)?;
    }
    apply(&mut state, inode, set, now);
    if set.sets_times_only() {
        inode.write_inode_times(ops, &handle, &mut state)?;
    } else {
        inode.write_inode(ops, &handle, &mut state)?;
    }
    handle.finish();
    Ok(())
}

/// Sets times without a transaction. Two kinds need none: times that the inode already has, and
/// times of an inode without a name, which a later link would write. A kernel with a writeback
/// cache sends both kinds, the second after each unlink. False if the times are of neither kind.
fn set_times_in_memory(ops: &Operations, inode: &Inode, set: &SetAttributes) -> bool {
    let mut state = inode.state.write();
    let record = &mut state.record;
    let old = [record.atime, record.mtime, record.ctime];
    let new = set.times(old, now(ops));
    if new == old {
        return true;
    }
    let unlinked = record.links == 0;
    if unlinked {
        [record.atime, record.mtime, record.ctime] = new;
        state.dirty = true;
        ops.unwritten.set(inode.ino, &mut state, true);
    }
    unlinked
}

fn apply(state: &mut State, inode: &Inode, set: &SetAttributes, now: Timestamp) {
    let record = &mut state.record;
    if set.kill_privileges {
        record.mode = without_privileges(record.mode, inode.kind);
    }
    if let Some(permissions) = set.permissions {
        let bits = u16::try_from(permissions & 0o7777).unwrap_or(0);
        record.mode = (record.mode & !0o7777) | bits;
    }
    record.uid = set.uid.unwrap_or(record.uid);
    record.gid = set.gid.unwrap_or(record.gid);
    [record.atime, record.mtime, record.ctime] =
        set.times([record.atime, record.mtime, record.ctime], now);
    if let Some(flags) = set.flags {
        let settable = cairn_vfs::InodeFlags::settable_on(inode.kind);
        let kept = record.flags.bits() & !cairn_vfs::InodeFlags::SETTABLE.bits();
        record.flags = InodeFlags::from_bits_retain(kept | (flags & settable).bits());
    }
}
