//! Access times, as with `relatime`.

use std::sync::Arc;

use super::Inode;
use crate::format::inode::FileFlags;
use crate::inodes::Inodes;
use crate::op::Operations;

/// Access times older than this are renewed by `relatime`.
const RELATIME_SECONDS: i64 = 24 * 60 * 60;

/// True if a read must renew the access time, as with `relatime`.
#[must_use]
pub(crate) fn is_due(inodes: &Inodes, inode: &Inode) -> bool {
    let now = inodes.now();
    let stale = {
        let record = &inode.state.read().record;
        let old = now.seconds.saturating_sub(record.atime.seconds) >= RELATIME_SECONDS;
        let tells = record.atime <= record.mtime || record.atime <= record.ctime;
        !record.flags.contains(FileFlags::NOATIME) && (tells || old)
    };
    stale && inodes.disk.store.is_some() && inodes.mount.options().access_times
}

/// Sets the access time to now. Call it with no lock held. On a volume that is full or read-only
/// the time stays as it was.
pub(crate) fn touch(ops: &Operations, inode: &Arc<Inode>) {
    if ops.mount.read_only_reason().is_some() {
        return;
    }
    let kept = ops.change(0, |_| {
        let mut state = inode.state.write();
        state.record.atime = ops.inodes.now();
        inode.mark_dirty(&ops.inodes, &mut state);
        Ok(())
    });
    if let Err(error) = kept {
        tracing::debug!(ino = %inode.nid, %error, "the access time could not be updated");
    }
}
