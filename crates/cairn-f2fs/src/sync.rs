//! sync(2) and syncfs(2): the data of all files, then a checkpoint.

use cairn_cache::writeback::WritebackMode;

use crate::checkpoint::Reason;
use crate::error::Result;
use crate::op::Operations;

/// Makes everything durable. Does nothing on a volume that was mounted read-only.
///
/// # Errors
/// A file could not be written; the volume has stopped, or stops now.
pub(crate) fn sync(ops: &Operations) -> Result<()> {
    let Some(store) = &ops.disk.store else { return Ok(()) };
    store.operation_lock.check_durable()?;
    if ops.mount.is_read_only() {
        return Ok(());
    }
    let written = write_data(ops);
    let checkpointed = ops.checkpoint(Reason::Sync).map(drop);
    written.and(checkpointed)
}

/// Writes back the dirty data of all files, and waits. Continues after a file that cannot be
/// written. Call it with no lock held.
///
/// # Errors
/// The error of the first file that could not be written.
pub(crate) fn write_data(ops: &Operations) -> Result<()> {
    let written = ops.inodes.pages.dirty_files().into_iter().map(|file| {
        file.flush(WritebackMode::Sync)?;
        Ok(())
    });
    written.fold(Ok(()), Result::and)
}
