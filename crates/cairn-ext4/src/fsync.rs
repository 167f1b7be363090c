//! Making things durable: one file, or everything.

use std::sync::Arc;

use cairn_block::BlockDevice;
use cairn_cache::durability::Part;
use cairn_cache::writeback::{Expired, WritebackMode as Mode};
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
        data::update_disksize(volume, inode)?;
    }
    if !data_only {
        write_inode_if_dirty(volume, inode)?;
    }
    commit(volume, inode, if data_only { Part::Data } else { Part::Attributes })
}

/// Brings onto the medium what the ledger says is not there yet: the transaction in which `part` last changed, and the data. As a
/// rule the commit's flush covers the data, too.
fn commit(volume: &Volume, inode: &Inode, part: Part) -> Result<()> {
    match &volume.txn() {
        Txn::Journaled(journal) => {
            let written = inode.ledger.written();
            if let Some(tid) = inode.ledger.last_change(part).filter(|tid| !journal.is_committed(*tid)) {
                journal.commit_and_wait(tid)?;
            }
            inode.ledger.cover(written)?;
        }
        Txn::Direct(buffers) => {
            buffers.write_back()?;
            volume.flushes.cover(volume.flushes.mark())?;
        }
    }
    Ok(())
}

/// Puts changes that live in memory only (times, a size) into a transaction.
pub fn write_inode_if_dirty(volume: &Arc<Volume>, inode: &Arc<Inode>) -> Result<()> {
    if !inode.state.read().dirty {
        return Ok(());
    }
    let handle = volume.begin(volume.credits.attributes)?;
    let mut state = inode.state.write();
    if state.dirty && !state.deleted {
        inode.write_inode_times(volume, &handle, &mut state)?;
    }
    handle.finish();
    Ok(())
}

/// `commit=`: data is written when it is that old, and what leads to it does not wait that long again.
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

/// Everything: all files' data, all records, one commit. A file that cannot be written keeps no other from being: the first
/// error is returned at the end. All have been [observed](Volume::observe).
pub fn sync(volume: &Arc<Volume>) -> Result<()> {
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

/// All data of one file.
fn write_file(volume: &Arc<Volume>, inode: &Arc<Inode>) -> Result<()> {
    if inode.kind != FileKind::Regular {
        return Ok(());
    }
    let _data = inode.data.read();
    data::write_back(volume, inode, 0..u64::MAX, Mode::Sync)?;
    inode.cache.wait_writeback(0..u64::MAX);
    data::update_disksize(volume, inode)
}

fn commit_all(volume: &Arc<Volume>) -> Result<()> {
    match &volume.txn() {
        Txn::Journaled(journal) => journal.force_commit()?,
        Txn::Direct(buffers) => buffers.write_back()?,
    }
    volume.flushes.cover(volume.flushes.mark())?;
    Ok(())
}
