//! Bringing everything to the device, and the end of a mount.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use cairn_cache::writeback::WritebackMode;

use crate::checkpoint::Reason;
use crate::error::Result;
use crate::inode::{Inode, delete, sync};
use crate::volume::Volume;

impl Volume {
    /// Makes everything durable. Nothing to do on a volume that is read-only by wish.
    ///
    /// # Errors
    /// A file could not be written; the volume has stopped, or stops now.
    pub fn sync(&self) -> Result<()> {
        let Some(store) = &self.store else { return Ok(()) };
        store.gate.check_durable()?;
        if self.read_only.lock().is_some() {
            return Ok(());
        }
        let written = self.write_data();
        let landed = self.checkpoint(Reason::Sync).map(drop);
        written.and(landed)
    }

    /// Writes back the dirty data of all files, and waits. A file that cannot be written keeps no other from being. Call it
    /// with no lock held.
    ///
    /// # Errors
    /// The first file's that could not be written.
    pub fn write_data(&self) -> Result<()> {
        let mut dirty: Vec<Arc<Inode>> = Vec::new();
        self.inodes.for_each(|_, inode| {
            if inode.cache.has_dirty() {
                dirty.push(inode.clone());
            }
        });
        let written = dirty.iter().map(|inode| {
            let _data = inode.data.read();
            sync::write_back(self, inode, 0..u64::MAX, WritebackMode::Sync)
        });
        written.fold(Ok(()), Result::and)
    }

    /// Ends the mount: unlinked files are deleted, everything is written, the checkpoint is marked as a clean end. While
    /// checkpoints are disabled none is written: the volume is as it was when they were.
    ///
    /// # Errors
    /// The volume had stopped, or a write failed: the last checkpoint counts.
    pub fn close(self: &Arc<Self>) -> Result<()> {
        if self.closed.load(Ordering::Acquire) {
            return Ok(());
        }
        // What is unlinked but open goes with the mount. What fails now fails again below.
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
            store.gate.end("the volume is unmounted");
        }
        outcome
    }

    fn stopped_by_error(&self) -> Result<()> {
        self.store.as_ref().map_or(Ok(()), |store| store.gate.check_failed())
    }

    fn write_all(self: &Arc<Self>) -> Result<()> {
        let mut nameless: Vec<Arc<Inode>> = Vec::new();
        self.inodes.for_each(|_, inode| {
            if inode.state.read().record.links == 0 {
                nameless.push(inode.clone());
            }
        });
        // What cannot be deleted or written is told of at the end: everything else is.
        let deleted = nameless.iter().map(|inode| self.observe(delete::delete(self, inode)));
        let deleted = deleted.fold(Ok(()), Result::and);
        let written = self.write_data();
        let landed = self.checkpoint(Reason::Umount).map(drop);
        deleted.and(written).and(landed)
    }

    /// Stops as a power cut would; with `flush_log` everything is written before.
    ///
    /// # Errors
    /// That write failed.
    pub fn shutdown(&self, flush_log: bool) -> Result<()> {
        let outcome = if flush_log { self.sync() } else { Ok(()) };
        match &self.store {
            Some(store) => store.gate.end("shut down on request"),
            None => *self.read_only.lock() = Some("shut down on request".into()),
        }
        outcome
    }

    /// Drops references; an inode without names and references is deleted.
    ///
    /// # Errors
    /// It could not be deleted: the next mount does it.
    pub fn forget(&self, ino: cairn_base::Ino, count: u64) -> Result<()> {
        if self.inodes.release(ino, count) > 0 {
            return Ok(());
        }
        match self.inodes.get(ino) {
            Some(inode) => self.reap(&inode),
            None => Ok(()),
        }
    }

    /// Deletes the inode if nothing keeps it. The caller holds no lock.
    ///
    /// # Errors
    /// As [`Volume::forget`].
    pub fn reap(&self, inode: &Arc<Inode>) -> Result<()> {
        let nameless = inode.state.read().record.links == 0;
        let kept = self.inodes.references(inode.nid.ino()) > 0;
        if !nameless || kept || self.read_only_reason().is_some() || self.closed.load(Ordering::Acquire) {
            return Ok(());
        }
        delete::delete(self, inode)
    }

    /// The inode, with a reference for the caller's front-end.
    ///
    /// # Errors
    /// As [`Volume::inode`].
    pub fn acquire(&self, ino: cairn_base::Ino) -> Result<Arc<Inode>> {
        let inode = self.inode(ino)?;
        // Whoever holds the value keeps it in the table, unless it is deleted.
        self.inodes.acquire(ino).ok_or(cairn_vfs::Error::Stale)?;
        Ok(inode)
    }
}
