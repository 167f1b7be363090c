//! Unmounting a volume: everything is written, the journal ends empty, the superblock says that the volume is clean.

use std::sync::Arc;

use crate::error::Result;
use crate::mount::stop_daemons;
use crate::remount::thaw;
use crate::superblock::Mark;
use crate::sync;
use crate::volume::Volume;

/// Writes everything, marks the volume clean, stops its daemons.
pub(crate) fn unmount(volume: &Arc<Volume>) -> Result<()> {
    // What is unlinked but open goes with the mount. What fails now fails again below.
    let _ = thaw(volume);
    let _exclusive = volume.access.exclusive();
    if volume.is_read_only() {
        stop_daemons(volume);
        let ended = volume.check_failed();
        // Nobody may make it writable any more.
        volume.stop("unmounted");
        return ended;
    }
    // A file that cannot be deleted or written is told of at the end: the others are.
    let reaped = volume.observe(volume.delete_nameless());
    let synced = sync::sync(volume);
    stop_daemons(volume);
    volume.check_failed()?;
    volume.stop("unmounted");
    if let Some(journal) = volume.journal() {
        journal.shutdown()?;
    }
    volume.superblock.mark(volume, Mark::Clean, !volume.orphans.is_empty())?;
    reaped.and(synced)
}
