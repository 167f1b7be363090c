//! Unmounts a volume: everything is written, the log is empty, the superblock says that the volume
//! is clean.

use std::sync::Arc;

use crate::error::Result;
use crate::mount::stop_daemons;
use crate::remount::thaw;
use crate::superblock::Mark;
use crate::sync;
use crate::volume::Volume;

/// Writes everything, marks the volume clean, stops its daemons.
pub(crate) fn unmount(volume: &Arc<Volume>) -> Result<()> {
    // Inodes that are unlinked but open are deleted, which needs a thawed volume. An error of the
    // thaw occurs again below.
    let _ = thaw(volume);
    let _exclusive = volume.access.exclusive();
    if volume.is_read_only() {
        stop_daemons(volume);
        let ended = volume.check_failed();
        // The volume can no longer become writable.
        volume.stop("unmounted");
        return ended;
    }
    // A file that cannot be deleted or written does not keep others from that. The error is
    // returned at the end.
    let deleted = volume.observe(volume.delete_nameless());
    let synced = sync::sync(volume);
    stop_daemons(volume);
    volume.check_failed()?;
    volume.stop("unmounted");
    if let Some(journal) = volume.journal() {
        journal.shutdown()?;
    }
    volume.superblock.mark(volume, Mark::Clean, !volume.orphans.is_empty())?;
    deleted.and(synced)
}
