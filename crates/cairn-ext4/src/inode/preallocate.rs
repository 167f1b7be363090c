//! `fallocate`: allocates, punches, zeroes, collapses and inserts ranges.

use std::sync::Arc;

use cairn_base::FileBlock;
use cairn_cache::mapper::{Place, Run};
use cairn_vfs::fallocate::end_of_range;
use cairn_vfs::namespace::NamedInode;
use cairn_vfs::{AllocateMode, Error as VfsError, FileKind, IoFlags};

use crate::alloc::Class;
use crate::error::Result;
use crate::extent::Shift;
use crate::inode::Inode;
use crate::inode::eof_block::zero_old_eof_block;
use crate::inode::mapper::InodeMapper;
use crate::inode::truncate::{remove_blocks, reshape};
use crate::inode::writeback::write_and_drop_pages;
use crate::map::Progress;
use crate::op::Operations;
use crate::store::Store;
use crate::txn::Handle;

/// Performs one `fallocate`. Offset and length are in bytes.
///
/// # Errors
/// [`VfsError::Invalid`] if the range is empty, not aligned or not inside the file, as the mode
/// requires; [`VfsError::TooLarge`]; [`VfsError::Unsupported`] and [`VfsError::IsDirectory`] by the
/// kind and map of the inode; the volume is full or read-only.
pub(crate) fn allocate(
    ops: &Arc<Operations>,
    inode: &Arc<Inode>,
    mode: AllocateMode,
    offset: u64,
    len: u64,
) -> Result<()> {
    ops.check_writable()?;
    match inode.kind {
        FileKind::Regular => {}
        FileKind::Directory => return Err(VfsError::IsDirectory.into()),
        _ => return Err(VfsError::Unsupported("fallocate works on regular files").into()),
    }
    let _data = inode.data.write();
    check_flags(inode, mode)?;
    // The smaller limit of a file with indirect blocks is checked where space is added.
    let largest = crate::map::max_file_size(true, ops.layout.block_size);
    let end = end_of_range(offset, len, largest)?;
    inode.cache.release_reservation(&InodeMapper::new(ops, inode));
    if inode.is_inline() {
        if mode == AllocateMode::PunchHole
            && super::inline::reshape(ops, inode, inode.size(), offset..end)?
        {
            return Ok(());
        }
        super::inline::convert_inline_data(ops, inode)?;
    }
    match mode {
        AllocateMode::Extend => preallocate(ops, inode, offset, end, Some(end)),
        AllocateMode::KeepSize => preallocate(ops, inode, offset, end, None),
        AllocateMode::PunchHole => punch(ops, inode, offset, end),
        AllocateMode::ZeroRange { keep_size } => {
            zero_range(ops, inode, offset, end, (!keep_size).then_some(end))
        }
        AllocateMode::CollapseRange => collapse(ops, inode, offset, len),
        AllocateMode::InsertRange => insert(ops, inode, offset, len),
    }
}

/// Fails if the inode's flags forbid the change. An append-only file may get space, but its data
/// must not change.
fn check_flags(inode: &Inode, mode: AllocateMode) -> Result<()> {
    Ok(inode.flags().check_write(matches!(mode, AllocateMode::Extend | AllocateMode::KeepSize))?)
}

fn extents_only(inode: &Inode) -> Result<()> {
    if inode.has_extents() {
        return Ok(());
    }
    Err(VfsError::Unsupported(
        "this file is mapped by indirect blocks, which cannot hold preallocated space",
    )
    .into())
}

/// Blocks that contain a part of the byte range.
fn outer(store: &Store, offset: u64, end: u64) -> (u64, u64) {
    let block_size = u64::from(store.layout.block_size);
    (offset / block_size, end.div_ceil(block_size))
}

/// Checks and zeroes before space is allocated for a range that ends at `end`.
fn prepare(ops: &Arc<Operations>, inode: &Arc<Inode>, end: u64, size: Option<u64>) -> Result<()> {
    extents_only(inode)?;
    if end > inode.max_size(&ops.layout) {
        return Err(VfsError::TooLarge.into());
    }
    let old = inode.size();
    if size.is_some_and(|size| size > old) {
        zero_old_eof_block(ops, inode, old, end)?;
    }
    Ok(())
}

fn preallocate(
    ops: &Arc<Operations>,
    inode: &Arc<Inode>,
    offset: u64,
    end: u64,
    size: Option<u64>,
) -> Result<()> {
    prepare(ops, inode, end, size)?;
    let (first, last) = outer(ops, offset, end);
    fill_holes(ops, inode, first, last)?;
    reshape(ops, inode, size)
}

/// Allocates an unwritten extent for every hole, in one transaction each.
fn fill_holes(ops: &Arc<Operations>, inode: &Arc<Inode>, first: u64, last: u64) -> Result<()> {
    let mut at = first;
    while at < last {
        let (place, len) = {
            let mut state = inode.state.write();
            let mapping = InodeMapper::find(ops, inode, &mut state, FileBlock(at))?
                .mapping_from(FileBlock(at));
            (mapping.place, mapping.run.len.min(last - at))
        };
        if place != Place::Hole {
            at += len;
            continue;
        }
        at += fill_one(ops, inode, Run { start: FileBlock(at), len })?;
    }
    Ok(())
}

fn fill_one(ops: &Arc<Operations>, inode: &Arc<Inode>, hole: Run) -> Result<u64> {
    let want = u32::try_from(hole.len).unwrap_or(u32::MAX).min(crate::extent::MAX_UNWRITTEN_LEN);
    let goal = {
        let mut state = inode.state.write();
        InodeMapper::goal(ops, inode, &mut state, hole.start)?
    };
    let allocation = || ops.space.allocate_for(goal, want, Class::of_call());
    let allocation = match allocation() {
        Err(crate::Error::Vfs(VfsError::NoSpace)) if ops.reclaim_freed()? => allocation()?,
        other => other?,
    };
    let run = Run { start: hole.start, len: u64::from(allocation.len) };
    let handle = match ops.begin(ops.credits.map_extent) {
        Ok(handle) => handle,
        Err(error) => {
            ops.space.cancel(allocation);
            return Err(error);
        }
    };
    let mut state = inode.state.write();
    let state = &mut *state;
    let start = allocation.start;
    ops.map_allocation(&handle, inode, state, allocation, run.start, true)?;
    state.status.set_unwritten(run, start);
    inode.write_inode(ops, &handle, state)?;
    handle.finish();
    Ok(run.len)
}

/// Zeroes the partial blocks at both ends through the cache. Returns the whole blocks in between.
fn zero_edges(
    ops: &Arc<Operations>,
    inode: &Arc<Inode>,
    offset: u64,
    end: u64,
) -> Result<Option<Run>> {
    let block_size = u64::from(ops.layout.block_size);
    inode.cache.zero(&InodeMapper::new(ops, inode), offset..end, inode.size())?;
    let first = offset.div_ceil(block_size);
    // A range up to the end of the file contains the whole last block.
    let last = if end >= inode.size() { end.div_ceil(block_size) } else { end / block_size };
    Ok((first < last).then(|| Run { start: FileBlock(first), len: last - first }))
}

/// Drops the cached data of whole blocks, and their reservations.
fn drop_cached(ops: &Arc<Operations>, inode: &Arc<Inode>, run: Run) {
    inode.cache.discard(
        &InodeMapper::new(ops, inode),
        run.start.get()..run.start.get().saturating_add(run.len),
    );
    // A freed block needs no zeroed end.
    inode.state.write().drop_eof_block(run);
}

fn punch(ops: &Arc<Operations>, inode: &Arc<Inode>, offset: u64, end: u64) -> Result<()> {
    if let Some(run) = zero_edges(ops, inode, offset, end)? {
        drop_cached(ops, inode, run);
        let mut handle = ops.begin(ops.credits.remove_step)?;
        remove_blocks(ops, inode, &mut handle, run)?;
        handle.finish();
    }
    reshape(ops, inode, None)
}

fn zero_range(
    ops: &Arc<Operations>,
    inode: &Arc<Inode>,
    offset: u64,
    end: u64,
    size: Option<u64>,
) -> Result<()> {
    prepare(ops, inode, end, size)?;
    if let Some(run) = zero_edges(ops, inode, offset, end)? {
        drop_cached(ops, inode, run);
        // The old blocks are freed, then new ones are preallocated. After a crash in between the
        // range reads as zeros, too.
        let mut handle = ops.begin(ops.credits.remove_step)?;
        remove_blocks(ops, inode, &mut handle, run)?;
        handle.finish();
    }
    let (first, last) = outer(ops, offset, end);
    fill_holes(ops, inode, first, last)?;
    reshape(ops, inode, size)
}

fn check_shift(store: &Store, inode: &Inode, offset: u64, len: u64) -> Result<()> {
    extents_only(inode)?;
    let block_size = u64::from(store.layout.block_size);
    if !offset.is_multiple_of(block_size) || !len.is_multiple_of(block_size) {
        return Err(
            VfsError::Invalid("offset and length must be multiples of the block size").into()
        );
    }
    Ok(())
}

fn collapse(ops: &Arc<Operations>, inode: &Arc<Inode>, offset: u64, len: u64) -> Result<()> {
    check_shift(ops, inode, offset, len)?;
    if offset + len >= inode.size() {
        return Err(
            VfsError::Invalid("the range reaches the end of the file: truncate instead").into()
        );
    }
    write_and_drop_pages(ops, inode, offset)?;
    let block_size = u64::from(ops.layout.block_size);
    let run = Run { start: FileBlock(offset / block_size), len: len / block_size };
    let mut handle = ops.begin(ops.credits.remove_step)?;
    remove_blocks(ops, inode, &mut handle, run)?;
    // The call is not complete yet: a failure before the later blocks have moved leaves an unwanted
    // hole.
    drop(handle);
    shift(ops, inode, FileBlock(run.start.get() + run.len), -(run.len.cast_signed()))?;
    resize(ops, inode, inode.size() - len)
}

fn insert(ops: &Arc<Operations>, inode: &Arc<Inode>, offset: u64, len: u64) -> Result<()> {
    check_shift(ops, inode, offset, len)?;
    let size = inode.size();
    if offset >= size {
        return Err(VfsError::Invalid(
            "the range starts beyond the end of the file: truncate or allocate instead",
        )
        .into());
    }
    if size + len > inode.max_size(&ops.layout) {
        return Err(VfsError::TooLarge.into());
    }
    write_and_drop_pages(ops, inode, offset)?;
    let block_size = u64::from(ops.layout.block_size);
    // The size changes first: after a crash in between the file is longer, with its blocks in their
    // old places.
    resize(ops, inode, size + len)?;
    shift(ops, inode, FileBlock(offset / block_size), (len / block_size).cast_signed())
}

/// Moves the blocks from `from` on. After a crash some blocks have moved, and the file is
/// consistent.
fn shift(ops: &Operations, inode: &Arc<Inode>, from: FileBlock, by: i64) -> Result<()> {
    let mut shift = {
        let state = inode.state.read();
        ops.map_of(inode, &state).begin_shift(&state.record.block, from, by)?
    };
    let mut handle = ops.begin(ops.credits.shift)?;
    while shift_step(ops, inode, &handle, &mut shift)? == Progress::More {
        ops.ensure_credits(&mut handle, ops.credits.shift)?;
    }
    Ok(())
}

fn shift_step(
    ops: &Operations,
    inode: &Arc<Inode>,
    handle: &Handle,
    shift: &mut Shift,
) -> Result<Progress> {
    let mut state = inode.state.write();
    let state = &mut *state;
    let source = ops.space.for_mapping();
    let budget = handle.credits_left().saturating_sub(ops.credits.attributes);
    let map = ops.map_with(inode, state, &source);
    let (progress, delta) = map.shift(handle, &mut state.record.block, shift, budget)?;
    state.status.forget(Run { start: FileBlock(0), len: u64::MAX });
    state.account(&ops.layout, delta);
    inode.write_inode(ops, handle, state)?;
    Ok(progress)
}

fn resize(ops: &Operations, inode: &Arc<Inode>, size: u64) -> Result<()> {
    let handle = ops.begin(ops.credits.attributes)?;
    let mut state = inode.state.write();
    let state = &mut *state;
    state.set_size_and_disksize(size);
    super::attributes::note_modified(ops, inode.ino, state, IoFlags::empty());
    inode.write_inode(ops, &handle, state)?;
    Ok(())
}
