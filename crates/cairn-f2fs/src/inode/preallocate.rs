//! `fallocate`: allocate, punch, zero, collapse, insert.
//!
//! Allocated blocks are `NEW` slots: they count, have no address and read as zeros.

use std::ops::Range;
use std::sync::Arc;

use cairn_base::FileBlock;
use cairn_cache::mapper::{Place, Run};
use cairn_vfs::namespace::NamedInode;
use cairn_vfs::{AllocateMode, Error as VfsError};

use super::attributes::modified;
use super::mapper::InodeMapper;
use super::write::check;
use super::writer::{Writer, fill, most_nodes};
use super::{Inode, delayed, inline, resize, shift, sync, tree};
use crate::error::{Error, Result};
use crate::format::BlockAddr;
use crate::format::inode::Advise;
use crate::format::units::BLOCK_BYTES;
use crate::volume::Volume;

/// Blocks allocated, or direct nodes punched, in one operation.
const PIECE: u64 = 4096;
const NODES: u32 = 64;

/// Carries out one `fallocate`. Offsets and lengths are bytes.
///
/// # Errors
/// The range or the file is not one for it, no space is left, it is damaged, or the device failed.
pub fn allocate(volume: &Arc<Volume>, inode: &Arc<Inode>, mode: AllocateMode, offset: u64, len: u64) -> Result<()> {
    check(volume, inode)?;
    let end = match offset.checked_add(len) {
        Some(end) if len > 0 && end <= i64::MAX as u64 => end,
        Some(_) if len > 0 => return Err(VfsError::TooLarge.into()),
        _ => return Err(VfsError::Invalid("fallocate of an empty or impossible range").into()),
    };
    sync::adopt(volume, inode);
    volume.pages.balance()?;
    let _data = inode.data.write();
    inode.cache.release_reservation(&InodeMapper::new(volume, inode));
    let adds = matches!(mode, AllocateMode::Extend | AllocateMode::KeepSize);
    inode.flags().check_write(adds)?;
    if inode.is_inline() {
        inline::spill(volume, inode)?;
    }
    match mode {
        AllocateMode::Extend => reserve(volume, inode, offset, end, Some(end)),
        AllocateMode::KeepSize => reserve(volume, inode, offset, end, None),
        AllocateMode::PunchHole => {
            clear(volume, inode, offset, end)?;
            touched(volume, inode)
        }
        AllocateMode::ZeroRange { keep_size } => {
            limit(inode, end)?;
            clear(volume, inode, offset, end)?;
            reserve(volume, inode, offset, end, (!keep_size).then_some(end))
        }
        AllocateMode::CollapseRange => shift::collapse(volume, inode, offset, len),
        AllocateMode::InsertRange => shift::insert(volume, inode, offset, len),
    }
}

fn limit(inode: &Inode, end: u64) -> Result<()> {
    if end > inode.max_size() {
        return Err(VfsError::TooLarge.into());
    }
    Ok(())
}

/// Contents or shape changed: times.
fn touched(volume: &Volume, inode: &Arc<Inode>) -> Result<()> {
    volume.change(0, |_| {
        modified(volume, inode, &mut inode.state.write());
        Ok(())
    })
}

/// Gives every hole of the range a slot; then the file ends at `size` at least.
fn reserve(volume: &Arc<Volume>, inode: &Arc<Inode>, offset: u64, end: u64, size: Option<u64>) -> Result<()> {
    limit(inode, end)?;
    let blocks = offset / BLOCK_BYTES..end.div_ceil(BLOCK_BYTES);
    allocate_delayed(volume, inode, blocks.clone())?;
    let holes = holes(volume, inode, blocks)?;
    let wanted: u64 = holes.iter().map(|run| run.len + most_nodes(run.len)).sum();
    if wanted > volume.store()?.space.free_blocks() + most_nodes(0) * holes.len() as u64 {
        return Err(Error::NO_SPACE);
    }
    for hole in holes {
        let (mut at, last) = (hole.start.get(), hole.start.get() + hole.len);
        while at < last {
            volume.room()?;
            let _inside = volume.store()?.operation_lock.lock_data()?;
            at += fill(volume, inode, at, (last - at).min(PIECE))?;
        }
    }
    let old = inode.size();
    if let Some(size) = size.filter(|size| *size > old) {
        return resize::grow(volume, inode, old, size);
    }
    volume.change(0, |_| {
        let mut state = inode.state.write();
        if end > state.record.size {
            state.record.advise |= Advise::KEEP_SIZE;
        }
        modified(volume, inode, &mut state);
        Ok(())
    })
}

/// What was written in a range and has no slot yet gets one.
fn allocate_delayed(volume: &Volume, inode: &Arc<Inode>, blocks: Range<u64>) -> Result<()> {
    volume.room()?;
    let _inside = volume.store()?.operation_lock.lock_data()?;
    delayed::allocate_slots(volume, inode, Run { start: FileBlock(blocks.start), len: blocks.end - blocks.start })
}

/// The runs of a range without slots.
fn holes(volume: &Volume, inode: &Inode, blocks: Range<u64>) -> Result<Vec<Run>> {
    let mapper = InodeMapper::new(volume, inode);
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
fn clear(volume: &Arc<Volume>, inode: &Arc<Inode>, offset: u64, end: u64) -> Result<()> {
    volume.room()?;
    let first = offset.div_ceil(BLOCK_BYTES);
    // A range that reaches the end of the file takes the whole last block with it.
    let last = if end >= inode.size() { end.div_ceil(BLOCK_BYTES) } else { end / BLOCK_BYTES };
    {
        let inside = volume.store()?.operation_lock.lock_data()?;
        let mapper = Writer::new(volume, inode, &inside);
        inode.cache.zero(&mapper, offset..end, inode.size())?;
        inode.cache.discard(&mapper, first..last.max(first));
    }
    clear_blocks(volume, inode, first..last)
}

/// Takes the slots of blocks whose cached contents are gone.
fn clear_blocks(volume: &Volume, inode: &Arc<Inode>, blocks: Range<u64>) -> Result<()> {
    inode.drop_hint(volume);
    inode.map.forget(Run { start: FileBlock(blocks.start), len: blocks.end.saturating_sub(blocks.start) });
    let mut at = blocks.start;
    while at < blocks.end {
        at = volume.change(0, |op| {
            let mut at = at;
            for _ in 0..NODES {
                if at >= blocks.end {
                    break;
                }
                match tree::find(op.store, inode, at)? {
                    Err(hole) => at = at.saturating_add(hole),
                    Ok(pointer) => {
                        let count = u32::try_from(blocks.end - at).unwrap_or(u32::MAX).min(pointer.rest);
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

/// Does a slot without an address stand at the block? For tests and `FIEMAP`.
///
/// # Errors
/// A node on the way is damaged, or the device failed.
pub fn is_reserved(volume: &Volume, inode: &Inode, block: u64) -> Result<bool> {
    let found = tree::find(volume.store()?, inode, block)?;
    Ok(found.is_ok_and(|pointer| pointer.get() == BlockAddr::NEW))
}
