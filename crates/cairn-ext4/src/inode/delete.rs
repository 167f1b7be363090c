//! Deletes inodes: frees their blocks, attributes and number.

use std::sync::Arc;

use cairn_base::FileBlock;
use cairn_cache::mapper::Run;

use crate::error::Result;
use crate::inode::mapper::InodeMapper;
use crate::inode::truncate::remove_blocks;
use crate::inode::{Inode, attributes};
use crate::op::Operations;

/// Deletes an inode without names and users. It has an orphan record, so recovery completes the
/// deletion after a crash.
///
/// # Errors
/// The inode is damaged, the device failed, or the journal was aborted. The orphan record stays.
pub(crate) fn delete_inode(ops: &Arc<Operations>, inode: &Arc<Inode>) -> Result<()> {
    let _data = inode.data.write();
    if std::mem::replace(&mut inode.state.write().deleted, true) {
        return Ok(());
    }
    let mapper = InodeMapper::new(ops, inode);
    inode.cache.drop_all(&mapper);
    let mut handle = ops.begin(ops.credits.remove_step)?;
    inode.state.write().truncate_size(0);
    if inode.has_block_map() {
        remove_blocks(ops, inode, &mut handle, Run { start: FileBlock(0), len: u64::MAX })?;
    }
    ops.ensure_credits(&mut handle, ops.credits.free_inode)?;
    let mut state = inode.state.write();
    let state = &mut *state;
    crate::xattr_ops::free_all(ops, &handle, inode, state)?;
    ops.orphans.remove(ops, &handle, inode.ino)?;
    state.complete_disksize();
    state.record.dtime =
        u32::try_from(attributes::now(ops).seconds & 0xffff_ffff).unwrap_or(u32::MAX);
    state.record.links = 0;
    inode.write_inode(ops, &handle, state)?;
    ops.space.free_inode(&handle, inode.ino, inode.kind == cairn_vfs::FileKind::Directory)?;
    // This comes before the end of the handle, after which the number may be allocated again.
    ops.table.remove(inode.ino);
    handle.finish();
    Ok(())
}
