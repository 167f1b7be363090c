//! Evicts inodes from memory, and deletes those without names.

use std::sync::Arc;

use cairn_base::Ino;

use crate::error::Result;
use crate::inode::Inode;
use crate::inode::delete::delete_inode;
use crate::op::Operations;

impl Operations {
    /// Drops references. An inode without names and references is deleted.
    ///
    /// # Errors
    /// The inode could not be deleted; its orphan record stays.
    pub(crate) fn forget(self: &Arc<Self>, ino: Ino, count: u64) -> Result<()> {
        if self.table.release(ino, count) > 0 {
            return Ok(());
        }
        match self.table.get(ino) {
            Some(inode) => self.evict_inode(&inode),
            None => Ok(()),
        }
    }

    /// Deletes the inode if it has no names and no users.
    ///
    /// # Errors
    /// The inode could not be deleted; its orphan record stays.
    pub(crate) fn evict_inode(self: &Arc<Self>, inode: &Arc<Inode>) -> Result<()> {
        let nameless = inode.state.read().record.links == 0;
        if !nameless || self.table.references(inode.ino) > 0 || self.is_read_only() {
            return Ok(());
        }
        delete_inode(self, inode)
    }

    /// Drops a reference in another thread, for callers with locks or a handle.
    pub(crate) fn release_later(self: &Arc<Self>, ino: Ino) {
        let ops = self.clone();
        self.runtime.defer(Box::new(move || {
            if let Err(error) = ops.observe(ops.forget(ino, 1)) {
                tracing::warn!(%ino, %error, "an inode could not be deleted; the next recovery \
                    deletes it");
            }
        }));
    }

    /// Deletes all inodes without names at unmount, whatever references the front-end holds.
    ///
    /// # Errors
    /// The first inode that could not be deleted. The others are.
    pub(crate) fn delete_nameless(self: &Arc<Self>) -> Result<()> {
        self.runtime.drain_deferred();
        let mut nameless = Vec::new();
        self.table.for_each(|_, inode| {
            if inode.state.read().record.links == 0 {
                nameless.push(inode.clone());
            }
        });
        let deleted = nameless.iter().map(|inode| delete_inode(self, inode));
        deleted.fold(Ok(()), Result::and)
    }
}
