//! Making things durable: one file, or everything.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use cairn_cache::writeback::WritebackMode as Mode;
use cairn_vfs::FileKind;

use crate::error::Result;
use crate::inode::{Inode, data};
use crate::txn::Txn;
use crate::volume::Volume;

/// `fsync` and `fdatasync` of one inode: data first, then the record, then the commit that makes both findable.
pub fn fsync(volume: &Arc<Volume>, inode: &Arc<Inode>, data_only: bool) -> Result<()> {
    if volume.is_read_only() {
        return volume.check_readable();
    }
    if inode.kind == FileKind::Regular {
        let _data = inode.data.read();
        data::write_back(volume, inode, 0..u64::MAX, Mode::Sync)?;
        inode.cache.wait_writeback(0..u64::MAX);
        data::settle_size(volume, inode)?;
    }
    if !data_only {
        store_if_dirty(volume, inode)?;
    }
    // The data was written before this point, so whatever flushes the device from here on covers it.
    let unflushed = inode.unflushed.swap(false, Ordering::AcqRel);
    let done = commit(volume, inode, data_only, unflushed);
    if done.is_err() && unflushed {
        inode.note_written();
    }
    done
}

fn commit(volume: &Arc<Volume>, inode: &Arc<Inode>, data_only: bool, unflushed: bool) -> Result<()> {
    match &volume.txn() {
        Txn::Journaled(journal) => {
            let tid = {
                let state = inode.state.read();
                if data_only { state.data_changed_in } else { state.changed_in }
            };
            // Only a commit whose flush is yet to come covers data written until now: one that is under way may have flushed
            // before, and one that is over has.
            let covers_data = journal.is_running(tid);
            if !journal.is_committed(tid) {
                journal.commit_and_wait(tid)?;
            }
            if unflushed && !covers_data {
                volume.device.flush()?;
            }
        }
        Txn::Direct(buffers) => {
            buffers.write_back()?;
            volume.device.flush()?;
        }
    }
    Ok(())
}

/// Puts changes that live in memory only (times, a size) into a transaction.
pub fn store_if_dirty(volume: &Arc<Volume>, inode: &Arc<Inode>) -> Result<()> {
    if !inode.state.read().dirty {
        return Ok(());
    }
    let handle = volume.begin(volume.credits.attributes)?;
    let mut state = inode.state.write();
    if state.dirty && !state.deleted {
        inode.store(volume, &handle, &mut state)?;
    }
    Ok(())
}

/// Everything: all files' data, all records, one commit.
pub fn sync(volume: &Arc<Volume>) -> Result<()> {
    if volume.is_read_only() {
        return volume.check_readable();
    }
    let mut all = Vec::new();
    volume.inodes.for_each(|_, inode| all.push(inode.clone()));
    for inode in &all {
        if inode.kind == FileKind::Regular {
            let _data = inode.data.read();
            data::write_back(volume, inode, 0..u64::MAX, Mode::Sync)?;
            inode.cache.wait_writeback(0..u64::MAX);
            data::settle_size(volume, inode)?;
        }
        store_if_dirty(volume, inode)?;
    }
    match &volume.txn() {
        Txn::Journaled(journal) => journal.commit_running()?,
        Txn::Direct(buffers) => buffers.write_back()?,
    }
    volume.device.flush()?;
    Ok(())
}
