//! The EOF block: the block with the old end of a file that grows. Its bytes behind that end must
//! be zero on the device before the size on disk covers them.

use std::sync::Arc;

use cairn_base::FileBlock;
use cairn_cache::writeback::WritebackMode;

use crate::error::Result;
use crate::inode::Inode;
use crate::inode::mapper::InodeMapper;
use crate::inode::writeback::write_back;
use crate::op::Operations;
use crate::store::Store;

/// Zeroes the rest of the old last block before the size grows from `old` to `size`.
pub(super) fn zero_old_eof_block(
    ops: &Arc<Operations>,
    inode: &Arc<Inode>,
    old: u64,
    size: u64,
) -> Result<()> {
    inode.cache.truncate(&InodeMapper::new(ops, inode), old, size)?;
    note_pending_eof_block(ops, inode, old, size);
    Ok(())
}

/// Records a pending EOF block. The cache zeroes a partly used last block when the size grows
/// beyond it. Until that block is written, the size on disk must not cover its old bytes. At most
/// one EOF block is pending.
pub(super) fn note_pending_eof_block(store: &Store, inode: &Arc<Inode>, old_size: u64, next: u64) {
    let block_size = u64::from(store.layout.block_size);
    let block = FileBlock(old_size / block_size);
    if old_size.is_multiple_of(block_size)
        || next < (block.get() + 1) * block_size
        || !inode.cache.is_dirty(block)
    {
        return;
    }
    let mut state = inode.state.write();
    let on_disk = state
        .status
        .find(block)
        .is_some_and(|known| matches!(known.state, cairn_cache::status::State::Mapped(_)));
    if on_disk && state.record.size.div_ceil(block_size) == block.get() + 1 {
        state.hold_disksize(block);
    }
}

/// Writes the pending EOF block before a direct write moves the size on disk from `old` to `new`.
/// It may lie before the block of `old`, which write-back knows.
pub(super) fn write_old_eof_block(
    ops: &Arc<Operations>,
    inode: &Arc<Inode>,
    old: u64,
    new: u64,
) -> Result<()> {
    if new <= old {
        return Ok(());
    }
    zero_old_eof_block(ops, inode, old, new)?;
    if inode.state.read().held_eof_block().is_some() {
        let block_size = u64::from(ops.layout.block_size);
        write_back(ops, inode, old / block_size * block_size..old, WritebackMode::Sync)?;
    }
    Ok(())
}
