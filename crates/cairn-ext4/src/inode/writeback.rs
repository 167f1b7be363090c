//! Writes an inode back: its data to the device, its size on disk, its record to the inode table.
//!
//! [`Inode::write_inode`] puts the record into its inode table block in a handle; the commit makes
//! it durable.

use std::sync::{Arc, Weak};

use cairn_cache::durability::Part;
use cairn_cache::file::CacheError;
use cairn_cache::mapper::MapError;
use cairn_cache::writeback::{Flushable, Flushed, WritebackMode};
use cairn_vfs::FileKind;

use crate::error::Result;
use crate::features_in_use;
use crate::inode::mapper::InodeMapper;
use crate::inode::{Inode, State, extra_isize};
use crate::op::Operations;
use crate::txn::Handle;

impl Inode {
    /// Writes the record to its inode table block in `handle`, after any change.
    ///
    /// # Errors
    /// The inode table cannot be read, or the journal was aborted.
    pub(crate) fn write_inode(
        &self,
        ops: &Operations,
        handle: &Handle,
        state: &mut State,
    ) -> Result<()> {
        self.write_inode_times(ops, handle, state)?;
        self.ledger.changed(Part::Data, handle.tid());
        Ok(())
    }

    /// As [`Inode::write_inode`], if only times have changed, which fdatasync does not need.
    ///
    /// # Errors
    /// As [`Inode::write_inode`].
    pub(crate) fn write_inode_times(
        &self,
        ops: &Operations,
        handle: &Handle,
        state: &mut State,
    ) -> Result<()> {
        let buffer = ops.buffers.get(self.location.block)?;
        state.update_disksize();
        extra_isize::grow(ops, handle, self.ino, state)?;
        let orphans = &ops.orphans;
        orphans.with_link(self.ino, |link| {
            if let Some(next) = link {
                // The deletion time of an inode on the orphan list holds the number of the next
                // one.
                state.record.dtime = next;
            }
            let mut block = handle.write(&buffer)?;
            let end = self.location.offset + ops.layout.inode_size as usize;
            state.record.encode(self.ino, &ops.layout, &mut block[self.location.offset..end]);
            Ok::<_, crate::Error>(())
        })?;
        features_in_use::note(ops, handle, &state.record)?;
        state.dirty = false;
        ops.unwritten.set(self.ino, state, !self.is_written(state));
        self.ledger.changed(Part::Attributes, handle.tid());
        Ok(())
    }
}

/// Puts changes in memory (times, a size) into a transaction.
///
/// # Errors
/// As [`Inode::write_inode`].
pub(crate) fn write_inode_if_dirty(ops: &Operations, inode: &Arc<Inode>) -> Result<()> {
    if !inode.state.read().dirty {
        return Ok(());
    }
    let handle = ops.begin(ops.credits.attributes)?;
    let mut state = inode.state.write();
    if state.dirty && !state.deleted {
        inode.write_inode_times(ops, &handle, &mut state)?;
    }
    handle.finish();
    Ok(())
}

/// Writes dirty data of a byte range and waits for it, with everything from a pending EOF block on:
/// later blocks are not committed before the size can cover them. The caller holds `data`.
///
/// # Errors
/// The mapper or the device failed, or the volume is full. The data stays dirty.
pub(crate) fn write_back(
    ops: &Arc<Operations>,
    inode: &Arc<Inode>,
    range: std::ops::Range<u64>,
    mode: WritebackMode,
) -> Result<()> {
    let mapper = InodeMapper::new(ops, inode);
    let held = inode.state.read().held_eof_block();
    let held = held.map(|block| block.get() * u64::from(ops.layout.block_size));
    let start = held.map_or(range.start, |held| range.start.min(held));
    inode.cache.write_back(&mapper, start..range.end, inode.size(), mode)?;
    Ok(())
}

/// Raises the size on disk after write-back. Write-back does this itself unless the last of the
/// data was truncated before it was written. The caller holds `data`.
///
/// # Errors
/// As [`Inode::write_inode`].
pub(crate) fn update_disksize(ops: &Operations, inode: &Arc<Inode>) -> Result<()> {
    let behind = |state: &State| {
        state.record.size != state.size
            && state.delayed == 0
            && !state.deleted
            && !inode.cache.has_dirty()
    };
    if !behind(&inode.state.read()) {
        return Ok(());
    }
    let handle = ops.begin(ops.credits.attributes)?;
    let mut state = inode.state.write();
    let state = &mut *state;
    if behind(state) {
        state.complete_disksize();
        inode.write_inode(ops, &handle, state)?;
    }
    handle.finish();
    Ok(())
}

/// Writes back everything from `from` on and drops it from the cache, for operations that move
/// blocks.
pub(super) fn write_and_drop_pages(
    ops: &Arc<Operations>,
    inode: &Arc<Inode>,
    from: u64,
) -> Result<()> {
    write_back(ops, inode, from..u64::MAX, WritebackMode::Sync)?;
    let first = from / u64::from(ops.layout.block_size);
    inode.cache.discard(&InodeMapper::new(ops, inode), first..u64::MAX);
    Ok(())
}

/// Writes all data of one file and waits for it.
pub(crate) fn write_file(ops: &Arc<Operations>, inode: &Arc<Inode>) -> Result<()> {
    if inode.kind != FileKind::Regular {
        return Ok(());
    }
    let _data = inode.data.read();
    write_back(ops, inode, 0..u64::MAX, WritebackMode::Sync)?;
    inode.cache.wait_writeback(0..u64::MAX);
    update_disksize(ops, inode)
}

/// Writes the inodes of which only the access time has changed, if there are many. Inodes that were
/// written or evicted meanwhile are skipped.
///
/// # Errors
/// The journal was aborted, or the device failed.
pub(crate) fn write_access_times(ops: &Operations) -> Result<()> {
    for ino in ops.accessed.take_if_full().into_iter().flatten() {
        if let Some(inode) = ops.table.get(ino) {
            write_inode_if_dirty(ops, &inode)?;
        }
    }
    Ok(())
}

/// Write-back's interface to an inode.
pub(crate) struct Flusher {
    ops: Weak<Operations>,
    inode: Weak<Inode>,
}

impl Flusher {
    /// Creates the interface for `inode`. It keeps neither the inode nor the volume in memory.
    pub(super) fn new(ops: &Arc<Operations>, inode: &Arc<Inode>) -> Self {
        Self { ops: Arc::downgrade(ops), inode: Arc::downgrade(inode) }
    }
}

impl Flushable for Flusher {
    fn flush(&self, mode: WritebackMode) -> Result<Flushed, CacheError> {
        let (Some(ops), Some(inode)) = (self.ops.upgrade(), self.inode.upgrade()) else {
            return Ok(Flushed::Clean);
        };
        let guard = match mode {
            WritebackMode::Sync => Some(inode.data.read()),
            WritebackMode::Background => inode.data.try_read(),
        };
        if guard.is_none() {
            return Ok(Flushed::Busy);
        }
        let clean = !inode.cache.has_dirty() && !inode.state.read().dirty;
        let mapper = InodeMapper::new(&ops, &inode);
        let written = inode
            .cache
            .write_back(&mapper, 0..u64::MAX, inode.size(), mode)
            .map_err(crate::Error::from);
        let sized = written.and_then(|()| update_disksize(&ops, &inode));
        // The times of the data are stored with it.
        let stored = sized.and_then(|()| write_inode_if_dirty(&ops, &inode));
        ops.observe(stored).map_err(MapError::from)?;
        Ok(if clean { Flushed::Clean } else { Flushed::Written })
    }

    fn read_ahead(&self, blocks: std::ops::Range<u64>) {
        let (Some(ops), Some(inode)) = (self.ops.upgrade(), self.inode.upgrade()) else {
            return;
        };
        let Some(_data) = inode.data.try_read() else { return };
        // A shorter file has no such blocks, and an inline file has none at all.
        if !inode.is_inline() {
            inode.cache.read_ahead(&InodeMapper::new(&ops, &inode), inode.size(), blocks);
        }
    }

    fn release_reservation(&self) {
        if let (Some(ops), Some(inode)) = (self.ops.upgrade(), self.inode.upgrade()) {
            inode.cache.release_reservation(&InodeMapper::new(&ops, &inode));
        }
    }
}
