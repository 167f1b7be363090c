//! Changing the size, and freeing blocks in steps that each leave the volume consistent.

use std::sync::Arc;

use cairn_base::FileBlock;
use cairn_cache::mapper::Run;
use cairn_vfs::{Error as VfsError, FileKind, IoFlags};

use crate::error::Result;
use crate::format::layout::Layout;
use crate::inode::mapper::InodeMapper;
use crate::inode::tail::zero_old_tail;
use crate::inode::{Inode, State};
use crate::map::Progress;
use crate::space::{BlockSource, Freed};
use crate::txn::Handle;
use crate::volume::Volume;

/// `truncate(2)`, both ways.
pub fn set_size(volume: &Arc<Volume>, inode: &Arc<Inode>, size: u64) -> Result<()> {
    if inode.kind != FileKind::Regular {
        let error = if inode.kind == FileKind::Directory {
            VfsError::IsDirectory
        } else {
            VfsError::Invalid("not a regular file")
        };
        return Err(error.into());
    }
    if size > volume.max_file_size(inode) {
        return Err(VfsError::TooLarge.into());
    }
    let _data = inode.data.write();
    let old = inode.size();
    if inode.is_inline() {
        if super::inline::reshape(volume, inode, size, 0..0)? {
            return Ok(());
        }
        super::inline::spill(volume, inode)?;
    }
    if size < old { shrink(volume, inode, size) } else { grow(volume, inode, old, size) }
}

/// The new end needs no blocks; the old partial block must be zero beyond the old end first.
fn grow(volume: &Arc<Volume>, inode: &Arc<Inode>, old: u64, size: u64) -> Result<()> {
    zero_old_tail(volume, inode, old, size)?;
    reshape(volume, inode, Some(size))
}

/// Size (if it grows) and times after the file's shape has changed.
pub(super) fn reshape(volume: &Arc<Volume>, inode: &Arc<Inode>, size: Option<u64>) -> Result<()> {
    let handle = volume.begin(volume.credits.attributes)?;
    let mut state = inode.state.write();
    let state = &mut *state;
    if let Some(size) = size.filter(|size| *size >= state.size) {
        state.grow(size);
    }
    super::attributes::note_modified(volume, state, IoFlags::empty());
    inode.write_inode(volume, &handle, state)
}

fn shrink(volume: &Arc<Volume>, inode: &Arc<Inode>, size: u64) -> Result<()> {
    let block_size = u64::from(volume.layout.block_size);
    let mapper = InodeMapper::new(volume, inode);
    inode.cache.truncate(&mapper, inode.size(), size)?;
    inode.state.write().truncate_size(size);
    // The orphan record makes recovery finish the job if it takes more than one transaction.
    let credits = &volume.credits;
    let mut handle = volume.begin(credits.orphan + credits.attributes + credits.remove_step)?;
    {
        let mut state = inode.state.write();
        let state = &mut *state;
        state.truncate_disksize(size, volume.layout.block_size);
        super::attributes::note_modified(volume, state, IoFlags::empty());
        volume.orphans.add(volume, &handle, inode.ino)?;
        inode.write_inode(volume, &handle, state)?;
    }
    let first = FileBlock(size.div_ceil(block_size));
    remove_blocks(volume, inode, &mut handle, Run { start: first, len: u64::MAX - first.get() })?;
    clear_orphan(volume, inode, &mut handle)?;
    handle.finish();
    Ok(())
}

/// Recovery: frees what lies beyond the size of an inode that was being cut when power failed.
pub(crate) fn finish(volume: &Arc<Volume>, inode: &Arc<Inode>) -> Result<()> {
    let _data = inode.data.write();
    let mut handle = volume.begin(volume.credits.remove_step)?;
    if inode.kind == FileKind::Regular && volume.has_block_map(inode) {
        let beyond = blocks_from(&volume.layout, inode.size());
        remove_blocks(volume, inode, &mut handle, beyond)?;
    }
    clear_orphan(volume, inode, &mut handle)?;
    handle.finish();
    Ok(())
}

/// Takes the inode off the orphan records and stores it.
pub(super) fn clear_orphan(volume: &Arc<Volume>, inode: &Arc<Inode>, handle: &mut Handle) -> Result<()> {
    volume.ensure_credits(handle, volume.credits.orphan + volume.credits.attributes)?;
    let mut state = inode.state.write();
    if state.record.links == 0 {
        // Still an orphan for another reason: it has no name.
        return inode.write_inode(volume, handle, &mut state);
    }
    if volume.orphans.remove(volume, handle, inode.ino)? {
        state.record.dtime = 0;
    }
    inode.write_inode(volume, handle, &mut state)
}

/// Blocks of journaled contents that one step frees: each needs a record in the log, and so many fit into one log block.
const JOURNALED_STEP: u64 = 64;

/// Frees the blocks of a run, storing the inode after each step and going to a new transaction when one is full.
/// Call with `data` exclusive (or the inode unreachable) and the run's folios gone.
pub(super) fn remove_blocks(volume: &Arc<Volume>, inode: &Arc<Inode>, handle: &mut Handle, run: Run) -> Result<()> {
    if inode.kind == FileKind::Regular {
        return remove_run(volume, inode, handle, run);
    }
    let end = {
        let blocks = inode.state.read().record.size.div_ceil(u64::from(volume.layout.block_size));
        run.start.get().saturating_add(run.len).min(blocks.max(run.start.get()))
    };
    // What is mapped beyond the end (damage, or another system's preallocation) goes first.
    let beyond = Run { start: FileBlock(end), len: run.start.get().saturating_add(run.len) - end };
    remove_run(volume, inode, handle, beyond)?;
    let mut to = end;
    while to > run.start.get() {
        let from = to.saturating_sub(JOURNALED_STEP).max(run.start.get());
        continue_in(handle, volume.credits.remove_step)?;
        remove_run(volume, inode, handle, Run { start: FileBlock(from), len: to - from })?;
        to = from;
    }
    Ok(())
}

/// Credits for one more step, in this transaction or the next.
fn continue_in(handle: &mut Handle, credits: u32) -> Result<()> {
    if handle.extend(credits)? { Ok(()) } else { handle.restart(credits) }
}

fn remove_run(volume: &Arc<Volume>, inode: &Arc<Inode>, handle: &mut Handle, run: Run) -> Result<()> {
    loop {
        let progress = {
            let mut state = inode.state.write();
            let state = &mut *state;
            let step = remove_step(volume, inode, handle, state, run)?;
            inode.write_inode(volume, handle, state)?;
            step
        };
        if progress == Progress::Done {
            return Ok(());
        }
        continue_in(handle, volume.credits.remove_step)?;
    }
}

fn remove_step(volume: &Arc<Volume>, inode: &Inode, handle: &Handle, state: &mut State, run: Run) -> Result<Progress> {
    let source = volume.space.for_mapping();
    let journaled = JournaledContents(&source);
    let source: &dyn BlockSource = if inode.kind == FileKind::Regular { &source } else { &journaled };
    let map = volume.map_with(inode, state, source);
    let budget = handle.credits_left().saturating_sub(volume.credits.attributes);
    let (progress, delta) = map.remove(handle, &mut state.record.block, run, budget)?;
    state.status.forget(run);
    volume.account(state, delta);
    Ok(progress)
}

/// Frees contents that went through the journal (directories, link targets): without a revoke record, recovery would write an old
/// entry block over whatever has the block by then.
struct JournaledContents<'a>(&'a dyn BlockSource);

impl BlockSource for JournaledContents<'_> {
    fn allocate_block(&self, handle: &Handle, goal: cairn_base::Pba) -> Result<cairn_base::Pba> {
        self.0.allocate_block(handle, goal)
    }

    fn free(&self, handle: &Handle, start: cairn_base::Pba, count: u64, _: Freed) -> Result<()> {
        self.0.free(handle, start, count, Freed::Metadata)
    }
}

/// Everything from a byte on, in blocks.
fn blocks_from(layout: &Layout, size: u64) -> Run {
    let first = size.div_ceil(u64::from(layout.block_size));
    Run { start: FileBlock(first), len: u64::MAX - first }
}
