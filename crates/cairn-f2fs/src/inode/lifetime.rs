//! References to inodes: acquired, dropped, and the eviction of an inode that nothing keeps.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::{Inode, delete};
use crate::error::Result;
use crate::volume::Volume;

impl Volume {
    /// Drops references; an inode without names and references is deleted.
    ///
    /// # Errors
    /// It could not be deleted: the next mount does it.
    pub fn forget(&self, ino: cairn_base::Ino, count: u64) -> Result<()> {
        if self.inodes.release(ino, count) > 0 {
            return Ok(());
        }
        match self.inodes.get(ino) {
            Some(inode) => self.evict_inode(&inode),
            None => Ok(()),
        }
    }

    /// Evicts an inode: deletes it if it has neither names nor references. The caller holds no
    /// lock.
    ///
    /// # Errors
    /// As [`Volume::forget`].
    pub fn evict_inode(&self, inode: &Arc<Inode>) -> Result<()> {
        let unlinked = inode.state.read().record.links == 0;
        let kept = self.inodes.references(inode.nid.ino()) > 0;
        if !unlinked || kept || self.read_only_reason().is_some() || self.closed.load(Ordering::Acquire) {
            return Ok(());
        }
        delete::delete_inode(self, inode)
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
