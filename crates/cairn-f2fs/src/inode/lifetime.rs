//! The life of an inode in memory: references, changes, writing it back, and eviction.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::{Inode, State, delete};
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

impl Inode {
    /// The record has changed: the next checkpoint stores it, if nobody does before.
    pub fn touch(self: &Arc<Self>, volume: &Volume, state: &mut State) {
        if !state.dirty && !state.deleted {
            state.dirty = true;
            volume.dirty.insert(self);
        }
    }

    /// The hint of the largest extent must be right if it is there: it goes before the first pointer changes.
    pub fn drop_hint(self: &Arc<Self>, volume: &Volume) {
        if self.state.read().record.ext.len == 0 {
            return;
        }
        let mut state = self.state.write();
        state.record.ext = Default::default();
        self.touch(volume, &mut state);
    }

    /// Writes the record into its node if it has changed. The caller holds the operation lock,
    /// shared or exclusively.
    ///
    /// # Errors
    /// The node is damaged, or the device failed.
    pub fn write_inode(&self, volume: &Volume) -> Result<()> {
        // The node first: nothing is read under the state.
        let store = volume.store()?;
        let node = match store.nodes.inode(self.nid)? {
            Some(node) => node,
            None if self.state.read().deleted => return Ok(()),
            None => return Err(cairn_vfs::Error::Stale.into()),
        };
        let mut state = self.state.write();
        if std::mem::take(&mut state.dirty) && !state.deleted {
            state.record.encode_into(&mut node.modify());
        }
        if !self.entries.is_dirty() {
            volume.dirty.remove(self.nid);
        }
        Ok(())
    }
}
