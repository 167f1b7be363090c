//! Unmounting a volume, and shutting it down.

use std::sync::Arc;

use crate::checkpoint::Reason;
use crate::disk::Disk;
use crate::error::Result;
use crate::format::CheckpointFlags;
use crate::inode::{Inode, delete};
use crate::mount_state::MountState;
use crate::op::Operations;
use crate::sync;
use crate::volume::F2fs;

/// Unmounts the volume: deletes unlinked files, writes everything, and writes a checkpoint with
/// the flag of a clean unmount. While checkpoints are disabled, nothing is.
///
/// # Errors
/// The volume had stopped, or a write failed: the last checkpoint is the state on the disk.
pub(crate) fn unmount(volume: &F2fs) -> Result<()> {
    if volume.mount.is_closed() {
        return Ok(());
    }
    // Unlinked files that are open are deleted below. An error here is met there again.
    let _ = crate::remount::thaw(&volume.operations);
    volume.inodes.runtime.drain_deferred();
    volume.cleaner.merged.serve(false);
    let daemons = std::mem::take(&mut *volume.daemons.lock());
    daemons.into_iter().for_each(cairn_base::runtime::DaemonHandle::stop);
    if let Some(store) = &volume.disk.store {
        store.checkpoints.stop_merging();
    }
    let outcome = if volume.mount.read_only_reason().is_none() {
        write_all(volume)
    } else {
        stopped_by_error(&volume.disk)
    };
    volume.mount.close();
    if let Some(store) = &volume.disk.store {
        store.operation_lock.shut_down("the volume is unmounted");
    }
    outcome
}

fn stopped_by_error(disk: &Disk) -> Result<()> {
    disk.store.as_ref().map_or(Ok(()), |store| store.operation_lock.check_failed())
}

fn write_all(volume: &F2fs) -> Result<()> {
    let flush = || volume.disk.device.flush().map_err(crate::Error::from);
    // No checkpoint follows, so that whatever is written now is never found.
    if volume.disk.store.as_ref().is_some_and(|store| store.checkpoints.is_disabled()) {
        return flush();
    }
    let mut unlinked: Vec<Arc<Inode>> = Vec::new();
    volume.inodes.table.for_each(|_, inode| {
        if inode.state.read().record.links == 0 {
            unlinked.push(inode.clone());
        }
    });
    // The first error is returned after everything else has been deleted and written.
    let deleted = unlinked
        .iter()
        .map(|inode| volume.mount.observe(delete::delete_inode(&volume.operations, inode)));
    let deleted = deleted.fold(Ok(()), Result::and);
    let written = sync::write_data(&volume.operations);
    debug_assert!(written.is_err() || is_all_written(volume), "write-back has left a file out");
    let checkpoint = || volume.operations.checkpoint(Reason::Umount);
    // Blocks that this checkpoint frees are discarded after it. As in Linux, a second checkpoint
    // then says that all free space is discarded (`TRIMMED`).
    let checkpointed = checkpoint().and_then(|_| checkpoint()).map(drop);
    // Checked even if nothing was written: the device reports if it has changed, such as a
    // truncated image.
    deleted.and(written).and(checkpointed).and(flush())
}

fn is_all_written(volume: &F2fs) -> bool {
    let mut all = true;
    volume.inodes.table.for_each(|_, inode| all &= !inode.cache.has_dirty());
    all
}

/// Writes a checkpoint that asks for fsck.f2fs, as all later ones do. The volume continues.
///
/// # Errors
/// The volume is read-only or has stopped, or stops now.
pub(crate) fn request_fsck(mount: &MountState) -> Result<()> {
    mount.check_writable()?;
    let checkpoints = &mount.store()?.checkpoints;
    checkpoints.raise(CheckpointFlags::FSCK);
    checkpoints.write(Reason::Sync).map(drop)
}

/// Stops as a power cut would. With `flush_log` everything is written before.
///
/// # Errors
/// That write failed.
pub(crate) fn shutdown(ops: &Operations, flush_log: bool) -> Result<()> {
    let outcome = if flush_log { sync::sync(ops) } else { Ok(()) };
    match &ops.disk.store {
        Some(store) => store.operation_lock.shut_down("shut down on request"),
        None => ops.mount.set_read_only(Some("shut down on request".into())),
    }
    outcome
}
