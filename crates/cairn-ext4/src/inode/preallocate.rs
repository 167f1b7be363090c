//! `fallocate`: allocates, punches, zeroes, collapses and inserts ranges.

use std::sync::Arc;

use cairn_base::FileBlock;
use cairn_cache::mapper::{Place, Run};
use cairn_vfs::namespace::NamedInode;
use cairn_vfs::{AllocateMode, Error as VfsError, FileKind, IoFlags};

use crate::alloc::Class;
use crate::error::Result;
use crate::extent::Shift;
use crate::inode::Inode;
use crate::inode::mapper::InodeMapper;
use crate::inode::tail::zero_old_tail;
use crate::inode::truncate::{remove_blocks, reshape};
use crate::inode::writeback::write_and_drop_pages;
use crate::map::Progress;
use crate::txn::Handle;
use crate::volume::Volume;

/// Performs one `fallocate`. Offset and length are in bytes.
///
/// # Errors
/// [`VfsError::Invalid`] if the range is empty, not aligned or not inside the file, as the mode
/// requires; [`VfsError::TooLarge`]; [`VfsError::Unsupported`] and [`VfsError::IsDirectory`] by the
/// kind and map of the inode; the volume is full or read-only.
pub(crate) fn allocate(
    volume: &Arc<Volume>,
    inode: &Arc<Inode>,
    mode: AllocateMode,
    offset: u64,
    len: u64,
) -> Result<()> {
    volume.check_writable()?;
    match inode.kind {
        FileKind::Regular => {}
        FileKind::Directory => return Err(VfsError::IsDirectory.into()),
        _ => return Err(VfsError::Unsupported("fallocate works on regular files").into()),
    }
    let end = match offset.checked_add(len) {
        Some(end) if len > 0 && end <= i64::MAX as u64 => end,
        Some(_) if len > 0 => return Err(VfsError::TooLarge.into()),
        _ => return Err(VfsError::Invalid("fallocate of an empty or impossible range").into()),
    };
    let _data = inode.data.write();
    check_flags(inode, mode)?;
    inode.cache.release_reservation(&InodeMapper::new(volume, inode));
    if inode.is_inline() {
        if mode == AllocateMode::PunchHole
            && super::inline::reshape(volume, inode, inode.size(), offset..end)?
        {
            return Ok(());
        }
        super::inline::convert_inline_data(volume, inode)?;
    }
    match mode {
        AllocateMode::Extend => preallocate(volume, inode, offset, end, Some(end)),
        AllocateMode::KeepSize => preallocate(volume, inode, offset, end, None),
        AllocateMode::PunchHole => punch(volume, inode, offset, end),
        AllocateMode::ZeroRange { keep_size } => {
            zero_range(volume, inode, offset, end, (!keep_size).then_some(end))
        }
        AllocateMode::CollapseRange => collapse(volume, inode, offset, len),
        AllocateMode::InsertRange => insert(volume, inode, offset, len),
    }
}

/// Fails if the inode's flags forbid the change. An append-only file may get space, but its data
/// must not change.
fn check_flags(inode: &Inode, mode: AllocateMode) -> Result<()> {
    Ok(inode.flags().check_write(matches!(mode, AllocateMode::Extend | AllocateMode::KeepSize))?)
}

fn extents_only(volume: &Volume, inode: &Inode) -> Result<()> {
    if volume.has_extents(inode) {
        return Ok(());
    }
    Err(VfsError::Unsupported(
        "this file is mapped by indirect blocks, which cannot hold preallocated space",
    )
    .into())
}

/// Blocks that contain a part of the byte range.
fn outer(volume: &Volume, offset: u64, end: u64) -> (u64, u64) {
    let block_size = u64::from(volume.layout.block_size);
    (offset / block_size, end.div_ceil(block_size))
}

/// Checks and zeroes before space is allocated for a range that ends at `end`.
fn prepare(volume: &Arc<Volume>, inode: &Arc<Inode>, end: u64, size: Option<u64>) -> Result<()> {
    extents_only(volume, inode)?;
    if end > volume.max_file_size(inode) {
        return Err(VfsError::TooLarge.into());
    }
    let old = inode.size();
    if size.is_some_and(|size| size > old) {
        zero_old_tail(volume, inode, old, end)?;
    }
    Ok(())
}

fn preallocate(
    volume: &Arc<Volume>,
    inode: &Arc<Inode>,
    offset: u64,
    end: u64,
    size: Option<u64>,
) -> Result<()> {
    prepare(volume, inode, end, size)?;
    let (first, last) = outer(volume, offset, end);
    fill_holes(volume, inode, first, last)?;
    reshape(volume, inode, size)
}

/// Allocates an unwritten extent for every hole, in one transaction each.
fn fill_holes(volume: &Arc<Volume>, inode: &Arc<Inode>, first: u64, last: u64) -> Result<()> {
    let mut at = first;
    while at < last {
        let (place, len) = {
            let mut state = inode.state.write();
            let mapping = InodeMapper::find(volume, inode, &mut state, FileBlock(at))?
                .mapping_from(FileBlock(at));
            (mapping.place, mapping.run.len.min(last - at))
        };
        if place != Place::Hole {
            at += len;
            continue;
        }
        at += fill_one(volume, inode, Run { start: FileBlock(at), len })?;
    }
    Ok(())
}

fn fill_one(volume: &Arc<Volume>, inode: &Arc<Inode>, hole: Run) -> Result<u64> {
    let want = u32::try_from(hole.len).unwrap_or(u32::MAX).min(crate::extent::MAX_UNWRITTEN_LEN);
    let goal = {
        let mut state = inode.state.write();
        InodeMapper::new(volume, inode).goal(&mut state, hole.start)?
    };
    let allocation = || volume.space.allocate_for(goal, want, Class::of_call());
    let allocation = match allocation() {
        Err(crate::Error::Vfs(VfsError::NoSpace)) if volume.reclaim_freed()? => allocation()?,
        other => other?,
    };
    let run = Run { start: hole.start, len: u64::from(allocation.len) };
    let handle = match volume.begin(volume.credits.map_extent) {
        Ok(handle) => handle,
        Err(error) => {
            volume.space.cancel(allocation);
            return Err(error);
        }
    };
    let mut state = inode.state.write();
    let state = &mut *state;
    let start = allocation.start;
    volume.map_allocation(&handle, inode, state, allocation, run.start, true)?;
    state.status.set_unwritten(run, start);
    inode.write_inode(volume, &handle, state)?;
    handle.finish();
    Ok(run.len)
}

/// Zeroes the partial blocks at both ends through the cache. Returns the whole blocks in between.
fn zero_edges(
    volume: &Arc<Volume>,
    inode: &Arc<Inode>,
    offset: u64,
    end: u64,
) -> Result<Option<Run>> {
    let block_size = u64::from(volume.layout.block_size);
    inode.cache.zero(&InodeMapper::new(volume, inode), offset..end, inode.size())?;
    let first = offset.div_ceil(block_size);
    // A range up to the end of the file contains the whole last block.
    let last = if end >= inode.size() { end.div_ceil(block_size) } else { end / block_size };
    Ok((first < last).then(|| Run { start: FileBlock(first), len: last - first }))
}

/// Drops the cached data of whole blocks, and their reservations.
fn drop_cached(volume: &Arc<Volume>, inode: &Arc<Inode>, run: Run) {
    inode.cache.discard(
        &InodeMapper::new(volume, inode),
        run.start.get()..run.start.get().saturating_add(run.len),
    );
    // A freed block needs no zeroed tail.
    inode.state.write().drop_tail(run);
}

fn punch(volume: &Arc<Volume>, inode: &Arc<Inode>, offset: u64, end: u64) -> Result<()> {
    if let Some(run) = zero_edges(volume, inode, offset, end)? {
        drop_cached(volume, inode, run);
        let mut handle = volume.begin(volume.credits.remove_step)?;
        remove_blocks(volume, inode, &mut handle, run)?;
        handle.finish();
    }
    reshape(volume, inode, None)
}

fn zero_range(
    volume: &Arc<Volume>,
    inode: &Arc<Inode>,
    offset: u64,
    end: u64,
    size: Option<u64>,
) -> Result<()> {
    prepare(volume, inode, end, size)?;
    if let Some(run) = zero_edges(volume, inode, offset, end)? {
        drop_cached(volume, inode, run);
        // The old blocks are freed, then new ones are preallocated. After a crash in between the
        // range reads as zeros, too.
        let mut handle = volume.begin(volume.credits.remove_step)?;
        remove_blocks(volume, inode, &mut handle, run)?;
        handle.finish();
    }
    let (first, last) = outer(volume, offset, end);
    fill_holes(volume, inode, first, last)?;
    reshape(volume, inode, size)
}

fn check_shift(volume: &Volume, inode: &Inode, offset: u64, len: u64) -> Result<()> {
    extents_only(volume, inode)?;
    let block_size = u64::from(volume.layout.block_size);
    if !offset.is_multiple_of(block_size) || !len.is_multiple_of(block_size) {
        return Err(
            VfsError::Invalid("offset and length must be multiples of the block size").into()
        );
    }
    Ok(())
}

fn collapse(volume: &Arc<Volume>, inode: &Arc<Inode>, offset: u64, len: u64) -> Result<()> {
    check_shift(volume, inode, offset, len)?;
    if offset + len >= inode.size() {
        return Err(
            VfsError::Invalid("the range reaches the end of the file: truncate instead").into()
        );
    }
    write_and_drop_pages(volume, inode, offset)?;
    let block_size = u64::from(volume.layout.block_size);
    let run = Run { start: FileBlock(offset / block_size), len: len / block_size };
    let mut handle = volume.begin(volume.credits.remove_step)?;
    remove_blocks(volume, inode, &mut handle, run)?;
    // Not finished: what fails before the blocks behind have moved leaves a hole that nobody asked
    // for.
    drop(handle);
    shift(volume, inode, FileBlock(run.start.get() + run.len), -(run.len.cast_signed()))?;
    resize(volume, inode, inode.size() - len)
}

fn insert(volume: &Arc<Volume>, inode: &Arc<Inode>, offset: u64, len: u64) -> Result<()> {
    check_shift(volume, inode, offset, len)?;
    let size = inode.size();
    if offset >= size {
        return Err(VfsError::Invalid(
            "the range starts beyond the end of the file: truncate or allocate instead",
        )
        .into());
    }
    if size + len > volume.max_file_size(inode) {
        return Err(VfsError::TooLarge.into());
    }
    write_and_drop_pages(volume, inode, offset)?;
    let block_size = u64::from(volume.layout.block_size);
    // The size changes first: after a crash in between the file is longer, with its blocks in their
    // old places.
    resize(volume, inode, size + len)?;
    shift(volume, inode, FileBlock(offset / block_size), (len / block_size).cast_signed())
}

/// Moves the blocks from `from` on. After a crash some blocks have moved, and the file is
/// consistent.
fn shift(volume: &Arc<Volume>, inode: &Arc<Inode>, from: FileBlock, by: i64) -> Result<()> {
    let mut shift = {
        let state = inode.state.read();
        volume.map_of(inode, &state).begin_shift(&state.record.block, from, by)?
    };
    let mut handle = volume.begin(volume.credits.shift)?;
    while shift_step(volume, inode, &handle, &mut shift)? == Progress::More {
        volume.ensure_credits(&mut handle, volume.credits.shift)?;
    }
    Ok(())
}

fn shift_step(
    volume: &Arc<Volume>,
    inode: &Arc<Inode>,
    handle: &Handle,
    shift: &mut Shift,
) -> Result<Progress> {
    let mut state = inode.state.write();
    let state = &mut *state;
    let source = volume.space.for_mapping();
    let budget = handle.credits_left().saturating_sub(volume.credits.attributes);
    let map = volume.map_with(inode, state, &source);
    let (progress, delta) = map.shift(handle, &mut state.record.block, shift, budget)?;
    state.status.forget(Run { start: FileBlock(0), len: u64::MAX });
    volume.account(state, delta);
    inode.write_inode(volume, handle, state)?;
    Ok(progress)
}

fn resize(volume: &Arc<Volume>, inode: &Arc<Inode>, size: u64) -> Result<()> {
    let handle = volume.begin(volume.credits.attributes)?;
    let mut state = inode.state.write();
    let state = &mut *state;
    state.set_size_and_disksize(size);
    super::attributes::note_modified(volume, state, IoFlags::empty());
    inode.write_inode(volume, &handle, state)?;
    Ok(())
}
