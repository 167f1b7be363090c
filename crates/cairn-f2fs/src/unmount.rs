//! Unmounting a volume, and shutting it down.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::checkpoint::Reason;
use crate::error::Result;
use crate::format::CheckpointFlags;
use crate::inode::{Inode, delete};
use crate::volume::Volume;

impl Volume {
    /// Unmounts the volume: deletes unlinked files, writes everything, and writes a checkpoint with
    /// the flag of a clean unmount. While checkpoints are disabled none is written.
    ///
    /// # Errors
    /// The volume had stopped, or a write failed: the last checkpoint counts.
    pub fn unmount(self: &Arc<Self>) -> Result<()> {
        if self.closed.load(Ordering::Acquire) {
            return Ok(());
        }
        // Unlinked files that are open are deleted below. An error here is met there again.
        let _ = crate::remount::thaw(self);
        self.runtime.drain_deferred();
        self.gc.merged.serve(false);
        let daemons = std::mem::take(&mut *self.daemons.lock());
        daemons.into_iter().for_each(cairn_base::runtime::DaemonHandle::stop);
        if let Some(store) = &self.store {
            store.checkpoints.stop_merging();
        }
        let outcome = if self.read_only_reason().is_none() { self.write_all() } else { self.stopped_by_error() };
        self.closed.store(true, Ordering::Release);
        if let Some(store) = &self.store {
            store.operation_lock.shut_down("the volume is unmounted");
        }
        outcome
    }

    fn stopped_by_error(&self) -> Result<()> {
        self.store.as_ref().map_or(Ok(()), |store| store.operation_lock.check_failed())
    }

    fn write_all(self: &Arc<Self>) -> Result<()> {
        let mut unlinked: Vec<Arc<Inode>> = Vec::new();
        self.inodes.for_each(|_, inode| {
            if inode.state.read().record.links == 0 {
                unlinked.push(inode.clone());
            }
        });
        // The first error is returned after everything else has been deleted and written.
        let deleted = unlinked.iter().map(|inode| self.observe(delete::delete_inode(self, inode)));
        let deleted = deleted.fold(Ok(()), Result::and);
        let written = self.write_data();
        // What that one frees is discarded behind it: as in Linux a second one says that nothing is left to be (`TRIMMED`).
        let checkpointed = self.checkpoint(Reason::Umount).and_then(|_| self.checkpoint(Reason::Umount)).map(drop);
        // Also where nothing had to be written: the device says if it is not what it was.
        let flushed = self.device.flush().map_err(crate::Error::from);
        deleted.and(written).and(checkpointed).and(flushed)
    }

    /// Writes a checkpoint that asks for fsck.f2fs, as all later ones do. The volume goes on.
    ///
    /// # Errors
    /// The volume is read-only or has stopped, or stops now.
    pub fn request_fsck(&self) -> Result<()> {
        self.check_writable()?;
        let checkpoints = &self.store()?.checkpoints;
        checkpoints.raise(CheckpointFlags::FSCK);
        checkpoints.write(Reason::Sync).map(drop)
    }

    /// Stops as a power cut would; with `flush_log` everything is written before.
    ///
    /// # Errors
    /// That write failed.
    pub fn shutdown(&self, flush_log: bool) -> Result<()> {
        let outcome = if flush_log { self.sync() } else { Ok(()) };
        match &self.store {
            Some(store) => store.operation_lock.shut_down("shut down on request"),
            None => *self.read_only.lock() = Some("shut down on request".into()),
        }
        outcome
    }
}
