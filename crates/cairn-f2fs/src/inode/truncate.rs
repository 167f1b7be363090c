//! Changing the size of a file.
//!
//! On the device, the bytes of the last block beyond the end of the file are zero. Truncation
//! writes that block to a *new* address. Its pointer, the size and the freed blocks change in one
//! operation, so after a crash the file is the old one or the new one.

use std::sync::Arc;

use cairn_cache::writeback::WritebackMode;
use cairn_vfs::Error as VfsError;

use super::attributes::modified;
use super::data::check;
use super::mapper::{InodeMapper, Policy};
use super::truncate_blocks::Piece;
use super::{Inode, attributes, inline, truncate_blocks, writeback};
use crate::error::Result;
use crate::format::units::BLOCK_BYTES;
use crate::op::Operations;

/// `i_blocks` of a file that has no block but its inode's.
const INODE_ALONE: u64 = 1;

/// `truncate(2)`: shrinks or extends the file.
///
/// # Errors
/// The file cannot be written, would be too large or is damaged, or the device failed.
pub(crate) fn set_size(ops: &Arc<Operations>, inode: &Arc<Inode>, size: u64) -> Result<()> {
    check(&ops.mount, inode)?;
    writeback::adopt(ops, inode);
    let _data = inode.data.write();
    attributes::flags(&inode.state.read().record).check_write(false)?;
    if size > inode.max_size() {
        return Err(VfsError::TooLarge.into());
    }
    if inode.is_inline() {
        if size <= inode.state.read().record.max_inline_data() as u64 {
            return inline::resize(ops, inode, size);
        }
        inline::spill(ops, inode)?;
    }
    let old = inode.size();
    // Blocks that were allocated behind the end are freed, also if it stays where it is.
    let has_blocks = inode.state.read().record.blocks > INODE_ALONE;
    if size < old || size == old && has_blocks {
        shrink(ops, inode, old, size)
    } else {
        grow(ops, inode, old, size)
    }
}

/// Extends the file. This needs no blocks.
pub(super) fn grow(ops: &Operations, inode: &Arc<Inode>, old: u64, size: u64) -> Result<()> {
    ops.room()?;
    let store = ops.store()?;
    let inside = store.operation_lock.lock_data()?;
    inode.cache.truncate(&InodeMapper::new(ops, inode, &inside), old, size)?;
    let _op = ops.begin_reserved(store.space.reserve(0)?)?;
    let mut state = inode.state.write();
    state.record.size = size.max(state.record.size);
    modified(&ops.inodes, inode, &mut state);
    Ok(())
}

pub(super) fn shrink(ops: &Operations, inode: &Arc<Inode>, old: u64, size: u64) -> Result<()> {
    ops.room()?;
    let store = ops.store()?;
    let inside = store.operation_lock.lock_data()?;
    let mapper = InodeMapper::with_policy(ops, inode, &inside, Policy::Elsewhere);
    inode.cache.truncate(&mapper, old, size)?;
    if !size.is_multiple_of(BLOCK_BYTES) {
        inode.cache.write_back(&mapper, size - 1..size, size, WritebackMode::Sync)?;
    }
    inode.drop_hint(&ops.inodes);
    inode.map.forget_from(size.div_ceil(BLOCK_BYTES));
    let mut op = ops.begin_reserved(store.space.reserve(0)?)?;
    let from = size.div_ceil(BLOCK_BYTES);
    loop {
        let done = truncate_blocks::truncate_piece(&mut op, inode, from);
        ops.mount.stop_after(&done);
        match done? {
            Piece::Last => break,
            Piece::Unfinished => {}
            // The size stays.
            Piece::Unreadable(error) => return Err(error),
        }
    }
    let mut state = inode.state.write();
    state.record.size = size;
    modified(&ops.inodes, inode, &mut state);
    Ok(())
}
