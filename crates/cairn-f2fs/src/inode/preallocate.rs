//! `fallocate`: allocate, punch, zero, collapse, insert.
//!
//! Allocated blocks are `NEW` slots: they count, have no address and read as zeros.

use std::ops::Range;
use std::sync::Arc;

use cairn_base::FileBlock;
use cairn_cache::mapper::{Place, Run};
use cairn_vfs::fallocate::end_of_range;
use cairn_vfs::namespace::NamedInode;
use cairn_vfs::{AllocateMode, root_reserved};

use super::attributes::modified;
use super::data::check;
use super::mapper::{InodeMapper, fill, most_nodes};
use super::read_mapper::ReadMapper;
use super::{Inode, delayed, inline, shift, tree, truncate, writeback};
use crate::disk::Disk;
use crate::error::{Error, Result};
use crate::format::inode::Advise;
use crate::format::units::BLOCK_BYTES;
use crate::op::Operations;

/// Blocks allocated, or direct nodes punched, in one operation.
const PIECE: u64 = 4096;
const NODES: u32 = 64;

/// Carries out one `fallocate`. Offsets and lengths are bytes.
///
/// # Errors
/// The range or the kind of file is not supported, no space is left, the file is damaged, or the
/// device failed.
pub(crate) fn allocate(
    ops: &Arc<Operations>,
    inode: &Arc<Inode>,
    mode: AllocateMode,
    offset: u64,
    len: u64,
) -> Result<()> {
    check(&ops.mount, inode)?;
    writeback::adopt(ops, inode);
    ops.inodes.pages.balance()?;
    let _data = inode.data.write();
    inode.cache.release_reservation(&ReadMapper::new(&ops.disk, inode));
    let adds = matches!(mode, AllocateMode::Extend | AllocateMode::KeepSize);
    inode.flags().check_write(adds)?;
    let end = end_of_range(offset, len, inode.max_size())?;
    if inode.is_inline() {
        inline::spill(ops, inode)?;
    }
    match mode {
        AllocateMode::Extend => reserve(ops, inode, offset, end, Some(end)),
        AllocateMode::KeepSize => reserve(ops, inode, offset, end, None),
        AllocateMode::PunchHole => {
            clear(ops, inode, offset, end)?;
            touched(ops, inode)
        }
        AllocateMode::ZeroRange { keep_size } => {
            clear(ops, inode, offset, end)?;
            reserve(ops, inode, offset, end, (!keep_size).then_some(end))
        }
        AllocateMode::CollapseRange => shift::collapse(ops, inode, offset, len),
        AllocateMode::InsertRange => shift::insert(ops, inode, offset, len),
    }
}

/// Sets the times after a change of contents or shape.
fn touched(ops: &Operations, inode: &Arc<Inode>) -> Result<()> {
    ops.change(0, |_| {
        modified(&ops.inodes, inode, &mut inode.state.write());
        Ok(())
    })
}

/// Gives every hole of the range a slot, then extends the file to `size` if it is shorter.
fn reserve(
    ops: &Operations,
    inode: &Arc<Inode>,
    offset: u64,
    end: u64,
    size: Option<u64>,
) -> Result<()> {
    let blocks = offset / BLOCK_BYTES..end.div_ceil(BLOCK_BYTES);
    allocate_delayed(ops, inode, blocks.clone())?;
    let holes = holes(&ops.disk, inode, blocks)?;
    let wanted: u64 = holes.iter().map(|run| run.len + most_nodes(run.len)).sum();
    let free = ops.store()?.space.available(root_reserved::may_be_used());
    if wanted > free + most_nodes(0) * holes.len() as u64 {
        return Err(Error::NO_SPACE);
    }
    for hole in holes {
        let (mut at, last) = (hole.start.get(), hole.start.get() + hole.len);
        while at < last {
            ops.room()?;
            let _inside = ops.store()?.operation_lock.lock_data()?;
            at += fill(ops, inode, at, (last - at).min(PIECE))?;
        }
    }
    let old = inode.size();
    if let Some(size) = size.filter(|size| *size > old) {
        return truncate::grow(ops, inode, old, size);
    }
    ops.change(0, |_| {
        let mut state = inode.state.write();
        if end > state.record.size {
            state.record.advise |= Advise::KEEP_SIZE;
        }
        modified(&ops.inodes, inode, &mut state);
        Ok(())
    })
}

/// Gives the delayed blocks of a range their slots.
fn allocate_delayed(ops: &Operations, inode: &Arc<Inode>, blocks: Range<u64>) -> Result<()> {
    ops.room()?;
    let _inside = ops.store()?.operation_lock.lock_data()?;
    delayed::allocate_slots(
        ops,
        inode,
        Run { start: FileBlock(blocks.start), len: blocks.end - blocks.start },
    )
}

/// The runs of a range without slots.
fn holes(disk: &Disk, inode: &Inode, blocks: Range<u64>) -> Result<Vec<Run>> {
    let mapper = ReadMapper::new(disk, inode);
    let (mut holes, mut at) = (Vec::new(), blocks.start);
    while at < blocks.end {
        let mapping = mapper.find(Run { start: FileBlock(at), len: blocks.end - at })?;
        let len = mapping.run.len.min(blocks.end - at);
        if mapping.place == Place::Hole {
            holes.push(Run { start: FileBlock(at), len });
        }
        at += len;
    }
    Ok(holes)
}

/// Makes a range a hole: partial blocks at its ends are zeroed, whole ones lose their slots.
fn clear(ops: &Operations, inode: &Arc<Inode>, offset: u64, end: u64) -> Result<()> {
    ops.room()?;
    let first = offset.div_ceil(BLOCK_BYTES);
    // A range that reaches the end of the file includes the whole last block.
    let last = if end >= inode.size() { end.div_ceil(BLOCK_BYTES) } else { end / BLOCK_BYTES };
    {
        let inside = ops.store()?.operation_lock.lock_data()?;
        let mapper = InodeMapper::new(ops, inode, &inside);
        inode.cache.zero(&mapper, offset..end, inode.size())?;
        inode.cache.discard(&mapper, first..last.max(first));
    }
    clear_blocks(ops, inode, first..last)
}

/// Frees the slots of blocks whose cached contents are discarded.
fn clear_blocks(ops: &Operations, inode: &Arc<Inode>, blocks: Range<u64>) -> Result<()> {
    inode.drop_hint(&ops.inodes);
    inode.map.forget(Run {
        start: FileBlock(blocks.start),
        len: blocks.end.saturating_sub(blocks.start),
    });
    let mut at = blocks.start;
    while at < blocks.end {
        at = ops.change(0, |op| {
            let mut at = at;
            for _ in 0..NODES {
                if at >= blocks.end {
                    break;
                }
                match tree::find(op.store, inode, at)? {
                    Err(hole) => at = at.saturating_add(hole),
                    Ok(pointer) => {
                        let count =
                            u32::try_from(blocks.end - at).unwrap_or(u32::MAX).min(pointer.rest);
                        tree::free_run(op, inode, &pointer, count)?;
                        at += u64::from(count);
                    }
                }
            }
            Ok(at)
        })?;
    }
    Ok(())
}
