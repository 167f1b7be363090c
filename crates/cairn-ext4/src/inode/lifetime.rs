//! Evicts inodes from memory, and deletes those without names.

use std::sync::Arc;

use cairn_base::Ino;

use crate::error::Result;
use crate::inode::Inode;
use crate::inode::delete::delete_inode;
use crate::volume::Volume;

impl Volume {
    /// Drops references. An inode without names and references is deleted.
    ///
    /// # Errors
    /// The inode could not be deleted; its orphan record stays.
    pub fn forget(self: &Arc<Self>, ino: Ino, count: u64) -> Result<()> {
        if self.inodes.release(ino, count) > 0 {
            return Ok(());
        }
        match self.inodes.get(ino) {
            Some(inode) => self.evict_inode(&inode),
            None => Ok(()),
        }
    }

    /// Deletes the inode if it has no names and no users.
    ///
    /// # Errors
    /// The inode could not be deleted; its orphan record stays.
    pub fn evict_inode(self: &Arc<Self>, inode: &Arc<Inode>) -> Result<()> {
        let nameless = inode.state.read().record.links == 0;
        if !nameless || self.inodes.references(inode.ino) > 0 || self.is_read_only() {
            return Ok(());
        }
        delete_inode(self, inode)
    }

    /// Drops a reference in another thread, for callers with locks or a handle.
    pub fn release_later(self: &Arc<Self>, ino: Ino) {
        let volume = self.clone();
        self.runtime.defer(Box::new(move || {
            if let Err(error) = volume.observe(volume.forget(ino, 1)) {
                tracing::warn!(%ino, %error, "an inode could not be deleted; recovery will");
            }
        }));
    }

    /// Deletes all inodes without names at unmount, whatever references the front-end holds.
    ///
    /// # Errors
    /// The first inode that could not be deleted. The others are.
    pub fn delete_nameless(self: &Arc<Self>) -> Result<()> {
        self.runtime.drain_deferred();
        let mut nameless = Vec::new();
        self.inodes.for_each(|_, inode| {
            if inode.state.read().record.links == 0 {
                nameless.push(inode.clone());
            }
        });
        let deleted = nameless.iter().map(|inode| delete_inode(self, inode));
        deleted.fold(Ok(()), Result::and)
    }
}
