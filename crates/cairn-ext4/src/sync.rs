//! `sync`: makes the whole volume durable.

use std::sync::Arc;

use cairn_block::BlockDevice;
use cairn_cache::writeback::{Expired, WritebackMode};

use crate::error::{Error, Result};
use crate::inode::writeback::{write_file, write_inode_if_dirty};
use crate::mount_state::MountState;
use crate::op::Operations;
use crate::txn::Txn;

/// `commit=`: after data of that age was written, its metadata is committed at once.
impl Expired for Operations {
    fn written(&self) {
        match &self.txn() {
            Txn::Journaled(journal) => journal.request_commit(journal.newest_tid()),
            Txn::Direct(buffers) => {
                let written = buffers.write_back().and_then(|()| self.flushes.flush());
                if let Err(error) = self.observe(written.map_err(Error::from)) {
                    tracing::error!(%error, "metadata could not be written");
                }
            }
        }
    }
}

/// Writes all files and inodes, and commits. A file that cannot be written does not keep others
/// from being written: the first error is returned at the end. All errors were
/// [observed](Operations::observe).
pub(crate) fn sync(ops: &Arc<Operations>) -> Result<()> {
    if ops.is_read_only() {
        return ops.check_readable();
    }
    let mut outcome = Ok(());
    for file in ops.pages.dirty_files() {
        // It observes its own errors.
        outcome = outcome.and(file.flush(WritebackMode::Sync).map(drop).map_err(Error::from));
        ops.check_readable()?;
    }
    for ino in ops.unwritten.list() {
        // Another thread has deleted it.
        let Some(inode) = ops.table.get(ino) else { continue };
        outcome = outcome.and(ops.observe(write_file(ops, &inode)));
        outcome = outcome.and(ops.observe(write_inode_if_dirty(ops, &inode)));
        ops.check_readable()?;
    }
    outcome.and(ops.observe(commit_all(ops)))
}

fn commit_all(mount: &MountState) -> Result<()> {
    match &mount.txn() {
        Txn::Journaled(journal) => journal.force_commit()?,
        Txn::Direct(buffers) => buffers.write_back()?,
    }
    mount.flushes.cover(mount.flushes.mark())?;
    Ok(())
}
