//! sync(2) and syncfs(2): the data of all files, then a checkpoint.

use std::sync::Arc;

use cairn_cache::writeback::WritebackMode;

use crate::checkpoint::Reason;
use crate::error::Result;
use crate::inode::{Inode, sync};
use crate::volume::Volume;

impl Volume {
    /// Makes everything durable. Nothing to do on a volume that is read-only by wish.
    ///
    /// # Errors
    /// A file could not be written; the volume has stopped, or stops now.
    pub fn sync(&self) -> Result<()> {
        let Some(store) = &self.store else { return Ok(()) };
        store.operation_lock.check_durable()?;
        if self.read_only.lock().is_some() {
            return Ok(());
        }
        let written = self.write_data();
        let checkpointed = self.checkpoint(Reason::Sync).map(drop);
        written.and(checkpointed)
    }

    /// Writes back the dirty data of all files, and waits. A file that cannot be written keeps no
    /// other from being. Call it with no lock held.
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
}
