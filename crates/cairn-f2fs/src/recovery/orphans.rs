//! Orphan inodes at mount (`f2fs_recover_orphan_inodes`): deletes inodes without a name. These are
//! the orphans of the checkpoint, and inodes whose last name roll-forward has given to another.
//!
//! An inode with links is none of them, whatever the list says: it stays, and leaves the list.
//! (Linux deletes it.)

use crate::corrupt::Corrupt;
use crate::error::{Error, Result};
use crate::format::{CheckpointFlags, Nid};
use crate::inode::delete;
use crate::op::Operations;

/// Deletes all orphans.
///
/// # Errors
/// One could not be deleted, and the volume has stopped.
pub(crate) fn delete_orphans(ops: &Operations) -> Result<()> {
    for orphan in ops.store()?.checkpoints.orphans.list() {
        match ops.inodes.inode(orphan.ino()) {
            Ok(inode) if inode.with_record(|record| record.links) > 0 => keep(ops, orphan)?,
            Ok(inode) => {
                if let Err(error) = delete::delete_inode(ops, &inode) {
                    ops.mount.check_writable()?;
                    leave(ops, orphan, error)?;
                }
            }
            Err(Error::Vfs(cairn_vfs::Error::Stale)) => {
                ops.store()?.checkpoints.orphans.remove(orphan);
            }
            Err(error) => leave(ops, orphan, error)?,
        }
    }
    Ok(())
}

/// An orphan that cannot be deleted stays recorded. The volume is mounted all the same.
fn leave(ops: &Operations, orphan: Nid, error: Error) -> Result<()> {
    tracing::warn!(nid = %orphan, %error, "an orphan could not be read: check and repair the \
        volume");
    ops.store()?.checkpoints.raise(CheckpointFlags::FSCK);
    let _ = ops.mount.observe(Err::<(), _>(error));
    Ok(())
}

/// Takes an inode with links out of the list. The list is damaged.
fn keep(ops: &Operations, ino: Nid) -> Result<()> {
    let store = ops.store()?;
    store.checkpoints.orphans.remove(ino);
    store.checkpoints.raise(CheckpointFlags::FSCK);
    let what = "an inode with links is in the list of those that are to be deleted";
    let error: Error = Corrupt::Orphan { what, value: ino.get().into() }.into();
    tracing::warn!(%error, "it is kept: check and repair the volume");
    let _ = ops.mount.observe(Err::<(), _>(error));
    Ok(())
}
