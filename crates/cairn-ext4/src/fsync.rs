//! `fsync` and `fdatasync`: makes one file durable.

use std::sync::Arc;

use cairn_cache::durability::Part;

use crate::error::Result;
use crate::inode::Inode;
use crate::inode::writeback::{write_file, write_inode_if_dirty};
use crate::mount_state::MountState;
use crate::op::Operations;
use crate::txn::Txn;

/// Makes one inode durable: writes its data, updates its record, and commits the transaction that
/// refers to them.
///
/// # Errors
/// Data or metadata could not be written, or the journal was aborted.
pub(crate) fn fsync(ops: &Arc<Operations>, inode: &Arc<Inode>, data_only: bool) -> Result<()> {
    if ops.is_read_only() {
        return ops.check_readable();
    }
    write_file(ops, inode)?;
    if !data_only {
        write_inode_if_dirty(ops, inode)?;
    }
    commit(ops, inode, if data_only { Part::Data } else { Part::Attributes })
}

/// Makes `part` durable, unless the ledger says that it is: the transaction in which it last
/// changed, and the data. Usually the commit's flush covers the data.
fn commit(mount: &MountState, inode: &Inode, part: Part) -> Result<()> {
    match &mount.txn() {
        Txn::Journaled(journal) => {
            let written = inode.ledger.written();
            if let Some(tid) =
                inode.ledger.last_change(part).filter(|tid| !journal.is_committed(*tid))
            {
                journal.commit_and_wait(tid)?;
            }
            inode.ledger.cover(written)?;
        }
        Txn::Direct(buffers) => {
            buffers.write_back()?;
            mount.flushes.cover(mount.flushes.mark())?;
        }
    }
    Ok(())
}
