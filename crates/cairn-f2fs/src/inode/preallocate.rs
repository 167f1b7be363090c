//! `fallocate`: allocate, punch, zero, collapse, insert.
//!
//! Allocated blocks are `NEW` slots: they count, have no address and read as zeros. Collapse and insert copy contents through
//! the cache and punch where the source has holes; space for what they add is asked for before anything moves.

use std::ops::Range;
use std::sync::Arc;

use cairn_base::FileBlock;
use cairn_cache::mapper::{Place, Run};
use cairn_cache::writeback::WritebackMode;
use cairn_vfs::namespace::NamedInode;
use cairn_vfs::{AllocateMode, Error as VfsError};

use super::mapper::InodeMapper;
use super::write::{check, max_size, modified, spill};
use super::writer::{Writer, drop_hint, fill, most_nodes};
use super::{Inode, resize, sync, tree};
use crate::error::{Error, Result};
use crate::format::BlockAddr;
use crate::format::inode::Advise;
use crate::format::units::{BLOCK_BYTES, BLOCK_SIZE};
use crate::volume::Volume;

/// Blocks allocated, or direct nodes punched, in one operation.
const PIECE: u64 = 4096;
const NODES: u32 = 64;
/// Bytes moved at once by collapse and insert.
const CHUNK: u64 = 1 << 20;

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
    volume.pages.balance();
    let _data = inode.data.write();
    let adds = matches!(mode, AllocateMode::Extend | AllocateMode::KeepSize);
    inode.flags().check_write(adds)?;
    if inode.is_inline() {
        spill(volume, inode)?;
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
        AllocateMode::CollapseRange => collapse(volume, inode, offset, len),
        AllocateMode::InsertRange => insert(volume, inode, offset, len),
    }
}

fn limit(inode: &Inode, end: u64) -> Result<()> {
    if end > max_size(&inode.state.read().record) {
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
    let holes = holes(volume, inode, blocks.clone())?;
    let wanted: u64 = holes.iter().map(|run| run.len + most_nodes(run.len)).sum();
    if wanted > volume.store()?.space.free_blocks() + most_nodes(0) * holes.len() as u64 {
        return Err(Error::NO_SPACE);
    }
    for hole in holes {
        let (mut at, last) = (hole.start.get(), hole.start.get() + hole.len);
        while at < last {
            volume.room()?;
            let _inside = volume.store()?.gate.data()?;
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

/// The runs of a range without slots (or with slots without addresses).
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
        let inside = volume.store()?.gate.data()?;
        let mapper = Writer::new(volume, inode, &inside);
        inode.cache.zero(&mapper, offset..end, inode.size())?;
        inode.cache.discard(&mapper, first..last.max(first));
    }
    clear_blocks(volume, inode, first..last)
}

/// Takes the slots of blocks whose cached contents are gone.
fn clear_blocks(volume: &Volume, inode: &Arc<Inode>, blocks: Range<u64>) -> Result<()> {
    drop_hint(volume, inode);
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

fn check_shift(offset: u64, len: u64) -> Result<()> {
    if !offset.is_multiple_of(BLOCK_BYTES) || !len.is_multiple_of(BLOCK_BYTES) {
        return Err(VfsError::Invalid("offset and length must be multiples of the block size").into());
    }
    Ok(())
}

fn collapse(volume: &Arc<Volume>, inode: &Arc<Inode>, offset: u64, len: u64) -> Result<()> {
    check_shift(offset, len)?;
    let size = inode.size();
    if offset + len >= size {
        return Err(VfsError::Invalid("the range reaches the end of the file: truncate instead").into());
    }
    // What the target's holes take is at most what the range and the holes have.
    room_for(volume, holes(volume, inode, offset / BLOCK_BYTES..size.div_ceil(BLOCK_BYTES))?)?;
    let mut from = offset + len;
    while from < size {
        let step = CHUNK.min(size - from);
        shift(volume, inode, from, from - len, step)?;
        from += step;
    }
    sync::write_back(volume, inode, 0..u64::MAX, WritebackMode::Sync)?;
    resize::shrink(volume, inode, size, size - len)
}

fn insert(volume: &Arc<Volume>, inode: &Arc<Inode>, offset: u64, len: u64) -> Result<()> {
    check_shift(offset, len)?;
    let size = inode.size();
    if offset >= size {
        return Err(VfsError::Invalid("the range starts beyond the end of the file: truncate instead").into());
    }
    limit(inode, size.saturating_add(len))?;
    room_for(volume, vec![Run { start: FileBlock(0), len: (size - offset).div_ceil(BLOCK_BYTES) }])?;
    resize::grow(volume, inode, size, size + len)?;
    let mut end = size;
    while end > offset {
        // Chunks end where blocks do, but for the last one of the file.
        let from = ((end - 1) / CHUNK * CHUNK).max(offset);
        shift(volume, inode, from, from + len, end - from)?;
        end = from;
    }
    clear(volume, inode, offset, offset + len)?;
    touched(volume, inode)
}

fn room_for(volume: &Volume, runs: Vec<Run>) -> Result<()> {
    let wanted: u64 = runs.iter().map(|run| run.len + most_nodes(run.len)).sum();
    drop(volume.store()?.space.reserve(wanted)?);
    Ok(())
}

/// Copies `len` bytes within the file, ranges overlapping or not; holes become holes. `from` and `to` begin blocks.
fn shift(volume: &Arc<Volume>, inode: &Arc<Inode>, from: u64, to: u64, len: u64) -> Result<()> {
    volume.room()?;
    let size = inode.size();
    let mut buf = vec![0; usize::try_from(len).expect("a bounded chunk")];
    let got = {
        let _reading = volume.store()?.gate.reading();
        inode.cache.read(&InodeMapper::new(volume, inode), size, from, &mut buf)?
    };
    let mut done = 0;
    for block in buf[..got].chunks(BLOCK_SIZE) {
        let at = to + done;
        if block.iter().all(|byte| *byte == 0) {
            clear(volume, inode, at, at + BLOCK_BYTES.min(size.saturating_sub(at)).max(block.len() as u64))?;
        } else {
            let inside = volume.store()?.gate.data()?;
            let mapper = Writer::new(volume, inode, &inside);
            let mut written = 0;
            while written < block.len() {
                written += inode.cache.write(&mapper, size, at + written as u64, &block[written..])?;
            }
        }
        done += block.len() as u64;
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
