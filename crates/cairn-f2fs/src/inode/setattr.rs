//! Changes of attributes: chmod, chown, utimens, truncate and chattr.

use std::sync::Arc;

use cairn_vfs::namespace::NamedInode;
use cairn_vfs::protection::without_privileges;
use cairn_vfs::{InodeFlags, SetAttributes, Timestamp};

use super::attributes::SETTABLE;
use super::{Inode, truncate};
use crate::error::Result;
use crate::format::inode::Inode as Record;
use crate::op::Operations;
use crate::xattr;

/// `chmod`, `chown`, `utimens`, `truncate`, `chattr`.
///
/// # Errors
/// The inode's flags forbid it; the size is impossible; the volume cannot be written or is damaged;
/// or the device failed.
pub(crate) fn setattr(
    ops: &Arc<Operations>,
    inode: &Arc<Inode>,
    set: &SetAttributes,
) -> Result<()> {
    ops.mount.check_writable()?;
    inode.flags().check_attributes(set)?;
    if set.sets_times_only() && set_times_in_memory(ops, inode, set) {
        return Ok(());
    }
    if let Some(size) = set.size {
        truncate::set_size(ops, inode, size)?;
    }
    let _data = inode.data.write();
    // An access control list is updated with the permissions. Its size does not change.
    ops.change(0, |op| {
        if let Some(permissions) = set.permissions {
            xattr::edit::follow_mode(op, inode, permissions)?;
        }
        let mut state = inode.state.write();
        apply(&mut state.record, set, ops.inodes.now());
        inode.mark_dirty(&ops.inodes, &mut state);
        Ok(())
    })
}

/// Sets times without an operation. Two kinds need none: times that the inode already has, and
/// times of an inode without a name, which a later link would write. A kernel with a writeback
/// cache sends both kinds, the second after each unlink. False if the times are of neither kind.
fn set_times_in_memory(ops: &Operations, inode: &Inode, set: &SetAttributes) -> bool {
    let mut state = inode.state.write();
    let record = &mut state.record;
    let old = [record.atime, record.mtime, record.ctime];
    let new = set.times(old, ops.inodes.now());
    let unlinked = record.links == 0;
    if unlinked {
        [record.atime, record.mtime, record.ctime] = new;
    }
    unlinked || new == old
}

fn apply(record: &mut Record, set: &SetAttributes, now: Timestamp) {
    if set.kill_privileges {
        record.permissions = without_privileges(record.permissions, record.kind);
    }
    if let Some(permissions) = set.permissions {
        record.permissions = (permissions & 0o7777) as u16;
    }
    record.uid = set.uid.unwrap_or(record.uid);
    record.gid = set.gid.unwrap_or(record.gid);
    [record.atime, record.mtime, record.ctime] =
        set.times([record.atime, record.mtime, record.ctime], now);
    if let Some(flags) = set.flags {
        let flags = flags & InodeFlags::settable_on(record.kind);
        for (stored, shown) in SETTABLE {
            record.flags.set(stored, flags.contains(shown));
        }
    }
}
