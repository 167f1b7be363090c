//! `sync`: makes the whole volume durable.

use std::sync::Arc;

use cairn_block::BlockDevice;
use cairn_cache::writeback::Expired;

use crate::error::Result;
use crate::inode::writeback::{write_file, write_inode_if_dirty};
use crate::txn::Txn;
use crate::volume::Volume;

/// `commit=`: after data of that age was written, its metadata is committed at once.
impl Expired for Volume {
    fn written(&self) {
        match &self.txn() {
            Txn::Journaled(journal) => journal.request_commit(journal.newest_tid()),
            Txn::Direct(buffers) => {
                let written = buffers.write_back().and_then(|()| self.flushes.flush());
                if let Err(error) = self.observe(written.map_err(crate::Error::from)) {
                    tracing::error!(%error, "metadata could not be written");
                }
            }
        }
    }
}

/// Writes all files and inodes, and commits. A file that cannot be written does not keep others
/// from being written: the first error is returned at the end. All errors were
/// [observed](Volume::observe).
pub(crate) fn sync(volume: &Arc<Volume>) -> Result<()> {
    if volume.is_read_only() {
        return volume.check_readable();
    }
    let mut all = Vec::new();
    volume.inodes.for_each(|_, inode| all.push(inode.clone()));
    let mut outcome = Ok(());
    for inode in &all {
        outcome = outcome.and(volume.observe(write_file(volume, inode)));
        outcome = outcome.and(volume.observe(write_inode_if_dirty(volume, inode)));
        volume.check_readable()?;
    }
    outcome.and(volume.observe(commit_all(volume)))
}

fn commit_all(volume: &Arc<Volume>) -> Result<()> {
    match &volume.txn() {
        Txn::Journaled(journal) => journal.force_commit()?,
        Txn::Direct(buffers) => buffers.write_back()?,
    }
    volume.flushes.cover(volume.flushes.mark())?;
    Ok(())
}
