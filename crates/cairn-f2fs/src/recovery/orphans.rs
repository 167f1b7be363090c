//! Orphan inodes at mount (`f2fs_recover_orphan_inodes`): deletes inodes without a name. These are
//! the orphans of the checkpoint, and inodes whose last name roll-forward has given to another.

use crate::error::{Error, Result};
use crate::format::CheckpointFlags;
use crate::inode::delete;
use crate::op::Operations;

/// Deletes all orphans.
///
/// # Errors
/// One could not be deleted.
pub(crate) fn delete_orphans(ops: &Operations) -> Result<()> {
    for orphan in ops.store()?.checkpoints.orphans.list() {
        match ops.inodes.inode(orphan.ino()) {
            Ok(inode) => delete::delete_inode(ops, &inode)?,
            Err(Error::Vfs(cairn_vfs::Error::Stale)) => {
                ops.store()?.checkpoints.orphans.remove(orphan);
            }
            // The orphan stays recorded. The volume is mounted all the same.
            Err(error) => {
                tracing::warn!(nid = %orphan, %error, "an orphan could not be read: check and \
                    repair the volume");
                ops.store()?.checkpoints.raise(CheckpointFlags::FSCK);
                let _ = ops.mount.observe(Err::<(), _>(error));
            }
        }
    }
    Ok(())
}
