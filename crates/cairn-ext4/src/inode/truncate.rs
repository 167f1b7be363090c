//! Changes the size, and frees blocks in steps after each of which the volume is consistent.

use std::sync::Arc;

use cairn_base::FileBlock;
use cairn_cache::mapper::Run;
use cairn_vfs::{Error as VfsError, FileKind, IoFlags};

use crate::error::Result;
use crate::format::layout::Layout;
use crate::inode::eof_block::zero_old_eof_block;
use crate::inode::mapper::InodeMapper;
use crate::inode::{Inode, State};
use crate::map::Progress;
use crate::op::Operations;
use crate::space::{BlockSource, Freed};
use crate::txn::Handle;

/// `truncate(2)`, in both directions.
///
/// # Errors
/// [`VfsError::IsDirectory`] or [`VfsError::Invalid`] if the inode is not a regular file,
/// [`VfsError::TooLarge`]; the map is damaged, or the device or the journal failed.
pub(crate) fn set_size(ops: &Arc<Operations>, inode: &Arc<Inode>, size: u64) -> Result<()> {
    if inode.kind != FileKind::Regular {
        let error = if inode.kind == FileKind::Directory {
            VfsError::IsDirectory
        } else {
            VfsError::Invalid("not a regular file")
        };
        return Err(error.into());
    }
    if size > inode.max_size(&ops.layout) {
        return Err(VfsError::TooLarge.into());
    }
    let _data = inode.data.write();
    let old = inode.size();
    if inode.is_inline() {
        if super::inline::reshape(ops, inode, size, 0..0)? {
            return Ok(());
        }
        super::inline::convert_inline_data(ops, inode)?;
    }
    // Blocks that were allocated behind the end are freed, also if it stays where it is.
    let has_blocks = inode.state.read().record.blocks_512 > 0;
    if size < old || size == old && has_blocks {
        shrink(ops, inode, size)
    } else if size == old {
        // The size on disk waits for data that is not written yet.
        reshape(ops, inode, None)
    } else {
        grow(ops, inode, old, size)
    }
}

/// Grows the file without allocating blocks. The rest of the old last block is zeroed first.
fn grow(ops: &Arc<Operations>, inode: &Arc<Inode>, old: u64, size: u64) -> Result<()> {
    zero_old_eof_block(ops, inode, old, size)?;
    reshape(ops, inode, Some(size))
}

/// Updates times and, if it grows, the size after a change of the file's blocks.
pub(super) fn reshape(ops: &Operations, inode: &Arc<Inode>, size: Option<u64>) -> Result<()> {
    let handle = ops.begin(ops.credits.attributes)?;
    let mut state = inode.state.write();
    let state = &mut *state;
    if let Some(size) = size.filter(|size| *size >= state.size) {
        state.grow(size);
    }
    super::attributes::note_modified(ops, inode.ino, state, IoFlags::empty());
    inode.write_inode(ops, &handle, state)?;
    handle.finish();
    Ok(())
}

fn shrink(ops: &Arc<Operations>, inode: &Arc<Inode>, size: u64) -> Result<()> {
    let block_size = u64::from(ops.layout.block_size);
    let mapper = InodeMapper::new(ops, inode);
    inode.cache.truncate(&mapper, inode.size(), size)?;
    inode.state.write().truncate_size(size);
    // With the orphan record recovery completes a truncation that takes several transactions.
    let credits = &ops.credits;
    let mut handle = ops.begin(credits.orphan + credits.attributes + credits.remove_step)?;
    {
        let mut state = inode.state.write();
        let state = &mut *state;
        state.truncate_disksize(size, ops.layout.block_size);
        super::attributes::note_modified(ops, inode.ino, state, IoFlags::empty());
        ops.orphans.add(ops, &handle, inode.ino)?;
        inode.write_inode(ops, &handle, state)?;
    }
    let first = FileBlock(size.div_ceil(block_size));
    remove_blocks(ops, inode, &mut handle, Run { start: first, len: u64::MAX - first.get() })?;
    clear_orphan(ops, inode, &mut handle)?;
    handle.finish();
    Ok(())
}

/// Recovery: frees the blocks beyond the size of an inode whose truncation was interrupted.
pub(crate) fn finish(ops: &Operations, inode: &Arc<Inode>) -> Result<()> {
    let _data = inode.data.write();
    let mut handle = ops.begin(ops.credits.remove_step)?;
    if inode.kind == FileKind::Regular && inode.has_block_map() {
        let beyond = blocks_from(&ops.layout, inode.size());
        remove_blocks(ops, inode, &mut handle, beyond)?;
    }
    clear_orphan(ops, inode, &mut handle)?;
    handle.finish();
    Ok(())
}

/// Removes the inode's orphan record and writes the inode.
pub(super) fn clear_orphan(
    ops: &Operations,
    inode: &Arc<Inode>,
    handle: &mut Handle,
) -> Result<()> {
    ops.ensure_credits(handle, ops.credits.orphan + ops.credits.attributes)?;
    let mut state = inode.state.write();
    if state.record.links == 0 {
        // It stays an orphan because it has no name.
        return inode.write_inode(ops, handle, &mut state);
    }
    if ops.orphans.remove(ops, handle, inode.ino)? {
        state.record.dtime = 0;
    }
    inode.write_inode(ops, handle, &mut state)
}

/// Blocks of journalled contents that one step frees. Each needs a revoke record, and this many fit
/// one log block.
const JOURNALED_STEP: u64 = 64;

/// Frees the blocks of a run, writes the inode after each step, and starts a new transaction when
/// one is full. The caller holds `data` exclusively, or the inode has no users, and the run has no
/// folios.
pub(super) fn remove_blocks(
    ops: &Operations,
    inode: &Arc<Inode>,
    handle: &mut Handle,
    run: Run,
) -> Result<()> {
    if inode.kind == FileKind::Regular {
        return remove_run(ops, inode, handle, run);
    }
    let end = {
        let blocks = inode.state.read().record.size.div_ceil(u64::from(ops.layout.block_size));
        run.start.get().saturating_add(run.len).min(blocks.max(run.start.get()))
    };
    // Blocks that are mapped beyond the end (by damage or another system's preallocation) are freed
    // first.
    let beyond = Run { start: FileBlock(end), len: run.start.get().saturating_add(run.len) - end };
    remove_run(ops, inode, handle, beyond)?;
    let mut to = end;
    while to > run.start.get() {
        let from = to.saturating_sub(JOURNALED_STEP).max(run.start.get());
        continue_in(handle, ops.credits.remove_step)?;
        remove_run(ops, inode, handle, Run { start: FileBlock(from), len: to - from })?;
        to = from;
    }
    Ok(())
}

/// Gets credits for one more step, in this transaction or the next.
fn continue_in(handle: &mut Handle, credits: u32) -> Result<()> {
    if handle.extend(credits)? { Ok(()) } else { handle.restart(credits) }
}

fn remove_run(ops: &Operations, inode: &Arc<Inode>, handle: &mut Handle, run: Run) -> Result<()> {
    loop {
        let progress = {
            let mut state = inode.state.write();
            let state = &mut *state;
            let step = remove_step(ops, inode, handle, state, run)?;
            inode.write_inode(ops, handle, state)?;
            step
        };
        if progress == Progress::Done {
            return Ok(());
        }
        continue_in(handle, ops.credits.remove_step)?;
    }
}

fn remove_step(
    ops: &Operations,
    inode: &Inode,
    handle: &Handle,
    state: &mut State,
    run: Run,
) -> Result<Progress> {
    let source = ops.space.for_mapping();
    let journaled = JournaledContents(&source);
    let source: &dyn BlockSource =
        if inode.kind == FileKind::Regular { &source } else { &journaled };
    let map = ops.map_with(inode, state, source);
    let budget = handle.credits_left().saturating_sub(ops.credits.attributes);
    let (progress, delta) = map.remove(handle, &mut state.record.block, run, budget)?;
    state.status.forget(run);
    state.account(&ops.layout, delta);
    Ok(progress)
}

/// Frees journalled contents (directories, link targets) with revoke records. Without these,
/// recovery would write an old version over the block's next contents.
struct JournaledContents<'a>(&'a dyn BlockSource);

impl BlockSource for JournaledContents<'_> {
    fn allocate_block(&self, handle: &Handle, goal: cairn_base::Pba) -> Result<cairn_base::Pba> {
        self.0.allocate_block(handle, goal)
    }

    fn free(&self, handle: &Handle, start: cairn_base::Pba, count: u64, _: Freed) -> Result<()> {
        self.0.free(handle, start, count, Freed::Metadata)
    }
}

/// All blocks from a byte on.
fn blocks_from(layout: &Layout, size: u64) -> Run {
    let first = size.div_ceil(u64::from(layout.block_size));
    Run { start: FileBlock(first), len: u64::MAX - first }
}
