//! Unmounts a volume: everything is written, the log is empty, the superblock says that the volume
//! is clean.

use crate::error::Result;
use crate::mount::stop_daemons;
use crate::op::Operations;
use crate::remount::thaw;
use crate::superblock::Mark;
use crate::sync;
use crate::volume::Ext4;

/// Writes everything, marks the volume clean, stops its daemons.
pub(crate) fn unmount(volume: &Ext4) -> Result<()> {
    let ops = &volume.ops;
    // Inodes that are unlinked but open are deleted, which needs a thawed volume. An error of the
    // thaw occurs again below.
    let _ = thaw(volume);
    let _exclusive = ops.access.exclusive();
    if ops.is_read_only() {
        stop_daemons(volume);
        let ended = ops.check_failed();
        // The volume can no longer become writable.
        ops.stop("unmounted");
        return ended;
    }
    // A file that cannot be deleted or written does not keep others from that. The error is
    // returned at the end.
    let deleted = ops.observe(ops.delete_nameless());
    if let Some(defect) = ops.space.defect() {
        ops.note_left_out(defect);
    }
    let synced = sync::sync(ops);
    debug_assert!(synced.is_err() || is_all_written(ops), "sync has left an inode out");
    stop_daemons(volume);
    ops.check_failed()?;
    ops.stop("unmounted");
    if let Some(journal) = ops.journal() {
        journal.shutdown()?;
    }
    ops.superblock.mark(ops, Mark::Clean, !ops.orphans.is_empty())?;
    deleted.and(synced)
}

fn is_all_written(ops: &Operations) -> bool {
    let mut all = true;
    ops.table.for_each(|_, inode| {
        let state = inode.state.read();
        let named = !state.deleted && state.record.links > 0;
        all &= !named || (inode.is_written(&state) && !inode.cache.has_dirty());
    });
    all
}
