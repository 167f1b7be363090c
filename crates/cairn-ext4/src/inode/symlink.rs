//! Symbolic links: short targets in the inode, long ones in a block.

use std::sync::Arc;

use cairn_base::FileBlock;
use cairn_cache::mapper::{Place, Run};
use cairn_vfs::{Error as VfsError, FileKind};

use super::mapper::InodeMapper;
use super::{Inode, inline};
use crate::corrupt::Corrupt;
use crate::error::Result;
use crate::op::Operations;
use crate::space::BlockSource;
use crate::txn::Handle;

/// The target of a symbolic link.
///
/// # Errors
/// [`VfsError::Invalid`] if the inode is not a symbolic link; it is encrypted; its size or map is
/// damaged, or the device failed.
pub(crate) fn read(ops: &Operations, inode: &Arc<Inode>) -> Result<Vec<u8>> {
    if inode.kind != FileKind::Symlink {
        return Err(VfsError::Invalid("not a symbolic link").into());
    }
    inode.check_readable(&ops.layout)?;
    if inode.is_inline() {
        return inline::contents(ops, inode);
    }
    let bad = |value| Corrupt::Inode {
        ino: inode.ino,
        field: "i_size",
        value,
        problem: "not the length of a link target",
    };
    let (size, fast) = {
        let state = inode.state.read();
        let fast = (!crate::inode::has_block_map(&state.record)).then_some(state.record.block);
        (state.size, fast)
    };
    let len = usize::try_from(size).map_err(|_| bad(size))?;
    if let Some(block) = fast {
        return Ok(block.get(..len).ok_or(bad(size))?.to_vec());
    }
    if size == 0 || size > u64::from(ops.layout.block_size) {
        return Err(bad(size).into());
    }
    let mut state = inode.state.write();
    let known = InodeMapper::find(ops, inode, &mut state, FileBlock(0))?;
    drop(state);
    // As in Linux, a block that is marked as never written has a target, if its bytes are one.
    let place = known.mapping_from(FileBlock(0)).place;
    let (Place::Mapped(pba) | Place::Unwritten(pba)) = place else {
        return Err(bad(size).into());
    };
    let image = ops.buffers.get(pba)?.image();
    let target = image.get(..len).ok_or(bad(size))?;
    if target.contains(&0) { Err(bad(size).into()) } else { Ok(target.to_vec()) }
}

/// Stores a long target in a journalled block.
///
/// # Errors
/// [`VfsError::TargetTooLong`] if the target does not fit a block, [`VfsError::NoSpace`]; the
/// journal was aborted.
pub(crate) fn write(ops: &Operations, handle: &Handle, inode: &Inode, target: &[u8]) -> Result<()> {
    let pba = ops.space.allocate_block(handle, ops.space.goal_of(inode.ino))?;
    let mut state = inode.state.write();
    let state = &mut *state;
    let run = Run { start: FileBlock(0), len: 1 };
    let source = ops.space.for_mapping();
    let delta = ops.map_with(inode, state, &source).insert(
        handle,
        &mut state.record.block,
        run,
        pba,
        false,
    )?;
    state.status.set_mapped(run, pba);
    state.account(&ops.layout, delta);
    state.set_size_and_disksize(target.len() as u64);
    let buffer = handle.create(pba)?;
    let mut block = handle.write(&buffer)?;
    // One byte stays zero, because a NUL ends the target.
    let place = block.get_mut(..target.len()).ok_or(VfsError::TargetTooLong)?;
    place.copy_from_slice(target);
    Ok(())
}
