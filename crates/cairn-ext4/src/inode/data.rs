//! Reads and writes file contents.

use std::ops::Range;
use std::sync::Arc;

use cairn_base::FileBlock;
use cairn_cache::file::WriteSource;
use cairn_cache::mapper::{FileMapper, Place, Run};
use cairn_cache::writeback::WritebackMode as Mode;
use cairn_vfs::copy::CopyRange;
use cairn_vfs::namespace::NamedInode;
use cairn_vfs::short_write::write_pieces;
use cairn_vfs::{Error as VfsError, FileExtent, FileKind, InodeFlags, IoFlags, Seek, fiemap, seek};

use crate::error::Result;
use crate::inode::Inode;
use crate::inode::eof_block::{note_pending_eof_block, write_old_eof_block};
use crate::inode::mapper::InodeMapper;
use crate::inode::writeback::write_back;
use crate::op::Operations;

/// Reads into `buf`. Returns fewer bytes only at the end of the file.
///
/// # Errors
/// The map or the device failed, or the system has no memory.
pub(crate) fn read(
    ops: &Arc<Operations>,
    inode: &Arc<Inode>,
    offset: u64,
    buf: &mut [u8],
    flags: IoFlags,
) -> Result<usize> {
    inode.kind.check_regular()?;
    inode.check_readable(&ops.layout)?;
    let _data = inode.data.read();
    let size = inode.size();
    if offset >= size || buf.is_empty() {
        return Ok(0);
    }
    let mapper = InodeMapper::new(ops, inode);
    let done = if inode.is_inline() {
        super::inline::read(ops, inode, offset, buf)?
    } else if flags.contains(IoFlags::DIRECT) {
        inode.cache.direct_read(&mapper, size, offset, buf)?
    } else {
        let done = inode.cache.read(&mapper, size, offset, buf)?;
        if flags.contains(IoFlags::DONTCACHE) {
            inode.cache.invalidate_bytes(offset, done);
        }
        done
    };
    super::attributes::touch_access(ops, inode);
    Ok(done)
}

/// As [`read`], but passes the cached bytes to `take`. False for inline contents and direct reads.
///
/// # Errors
/// As [`read`].
pub(crate) fn read_shared(
    ops: &Arc<Operations>,
    inode: &Arc<Inode>,
    offset: u64,
    len: usize,
    flags: IoFlags,
    take: &mut dyn FnMut(&[&[u8]]),
) -> Result<bool> {
    inode.kind.check_regular()?;
    inode.check_readable(&ops.layout)?;
    let pieces = {
        let _data = inode.data.read();
        if inode.is_inline() || flags.contains(IoFlags::DIRECT) {
            return Ok(false);
        }
        let mapper = InodeMapper::new(ops, inode);
        let pieces = inode.cache.read_shared(&mapper, inode.size(), offset, len)?;
        if flags.contains(IoFlags::DONTCACHE) {
            inode.cache.invalidate_bytes(offset, len);
        }
        pieces
    };
    if !pieces.is_empty() {
        super::attributes::touch_access(ops, inode);
    }
    let pieces: Vec<&[u8]> = pieces.iter().map(|piece| &piece[..]).collect();
    take(&pieces);
    Ok(true)
}

/// Writes `data`. Returns fewer bytes if space ran out.
///
/// # Errors
/// Nothing was written: the flags forbid it, the volume is full or read-only, the size would be too
/// large, or the map or the device failed.
pub(crate) fn write(
    ops: &Arc<Operations>,
    inode: &Arc<Inode>,
    offset: u64,
    data: WriteSource<'_>,
    flags: IoFlags,
) -> Result<usize> {
    inode.kind.check_regular()?;
    ops.check_writable()?;
    if data.is_empty() {
        return Ok(0);
    }
    let done = write_pieces(data.len(), |done| {
        // The caller holds no lock, because a throttled writer writes back other files as well.
        ops.pages.balance()?;
        ops.with_space(|| write_locked(ops, inode, offset + done as u64, data.after(done), flags))
    })?;
    if flags.contains(IoFlags::DONTCACHE) {
        write_behind(ops, inode);
    }
    if flags.intersects(IoFlags::DSYNC | IoFlags::SYNC) || inode.flags().contains(InodeFlags::SYNC)
    {
        crate::fsync::fsync(ops, inode, !flags.contains(IoFlags::SYNC))?;
    }
    Ok(done)
}

/// Writes back the blocks that a streaming writer has passed, and drops them from the cache. An
/// error is kept for the next fsync, as with any write-back.
fn write_behind(ops: &Arc<Operations>, inode: &Arc<Inode>) {
    let Some(blocks) = inode.cache.write_behind() else { return };
    let _data = inode.data.read();
    let block_size = u64::from(ops.layout.block_size);
    let range = blocks.start * block_size..blocks.end.saturating_mul(block_size);
    let _ = ops.observe(write_back(ops, inode, range, Mode::Background));
}

fn write_locked(
    ops: &Arc<Operations>,
    inode: &Arc<Inode>,
    offset: u64,
    data: WriteSource<'_>,
    flags: IoFlags,
) -> Result<usize> {
    let _data = inode.data.write();
    let old_size = inode.size();
    let offset = if flags.contains(IoFlags::APPEND) { old_size } else { offset };
    super::attributes::check_write(inode, offset, old_size)?;
    let limit = inode.max_size(&ops.layout);
    if offset >= limit {
        return Err(VfsError::TooLarge.into());
    }
    let data = data.first(usize::try_from(limit - offset).unwrap_or(usize::MAX));
    if inode.is_inline() {
        super::inline::convert_inline_data(ops, inode)?;
    }
    let mapper = InodeMapper::new(ops, inode);
    let done = if flags.contains(IoFlags::DIRECT) {
        write_old_eof_block(ops, inode, old_size, offset + data.len() as u64)?;
        inode.cache.direct_write(&mapper, old_size, offset, &data.to_bytes())?
    } else {
        let data = data.dontcache(flags.contains(IoFlags::DONTCACHE));
        inode.cache.write_source(&mapper, old_size, offset, data)?
    };
    note_pending_eof_block(ops, inode, old_size, offset);
    let mut state = inode.state.write();
    state.extend_size(offset + done as u64);
    super::attributes::note_modified(ops, inode.ino, &mut state, flags);
    Ok(done)
}

/// `SEEK_DATA` and `SEEK_HOLE`. Delayed blocks are data. Preallocated blocks are data only if they
/// have cached data.
///
/// # Errors
/// [`VfsError::NoData`] if the offset is beyond the end or no data follows; the map cannot be read.
pub(crate) fn seek(
    ops: &Arc<Operations>,
    inode: &Arc<Inode>,
    offset: u64,
    what: Seek,
) -> Result<u64> {
    let _data = inode.data.read();
    let size = inode.size();
    if inode.kind != FileKind::Regular {
        return seek::seek(what, offset, size, |_| Ok((true, size)));
    }
    if inode.is_inline() {
        let held = super::inline::contents(ops, inode)?.len() as u64;
        return seek::seek(what, offset, size, |at| match at < held {
            true => Ok((true, held)),
            false => Ok((false, size)),
        });
    }
    let mapper = InodeMapper::new(ops, inode);
    // A reservation ahead of a writer is not data.
    inode.cache.release_reservation(&mapper);
    let block_size = u64::from(ops.layout.block_size);
    let blocks = size.div_ceil(block_size);
    seek::seek(what, offset, size, |at| {
        let (is_data, end) = classify(&mapper, inode, at / block_size..blocks)?;
        Ok((is_data, end.saturating_mul(block_size)))
    })
}

/// Whether there is data at the first of `blocks`, and up to which block this holds.
fn classify(mapper: &InodeMapper<'_>, inode: &Inode, blocks: Range<u64>) -> Result<(bool, u64)> {
    let len = blocks.end - blocks.start;
    let mapping = mapper.lookup(Run { start: FileBlock(blocks.start), len })?;
    let end = blocks.start + mapping.run.len.min(len);
    Ok(match mapping.place {
        Place::Mapped(_) | Place::Delayed | Place::Inline(_) => (true, end),
        Place::Hole => (false, end),
        Place::Unwritten(_) => inode.cache.starts_dirty(blocks.start..end),
    })
}

/// `FIEMAP`.
///
/// # Errors
/// The map cannot be read; with `sync`, data could not be written.
pub(crate) fn extents(
    ops: &Arc<Operations>,
    inode: &Arc<Inode>,
    offset: u64,
    len: u64,
    sync: bool,
    emit: &mut dyn FnMut(FileExtent) -> bool,
) -> Result<()> {
    let _data = inode.data.read();
    let block_size = u64::from(ops.layout.block_size);
    if inode.is_inline() {
        let held = super::inline::contents(ops, inode)?.len() as u64;
        if offset < held {
            let physical = inode.location.block.get() * block_size + inode.location.offset as u64;
            emit(FileExtent {
                logical: 0,
                physical,
                length: held,
                flags: fiemap::DATA_INLINE | fiemap::LAST,
            });
        }
        return Ok(());
    }
    if sync {
        write_back(ops, inode, 0..u64::MAX, Mode::Sync)?;
    }
    let mapper = InodeMapper::new(ops, inode);
    inode.cache.release_reservation(&mapper);
    let end = offset.saturating_add(len).div_ceil(block_size).min(inode.max_blocks(&ops.layout));
    let mut block = offset / block_size;
    let mut extents = fiemap::Emitter::new(emit);
    while block < end {
        let mapping = mapper.lookup(Run { start: FileBlock(block), len: end - block })?;
        let (physical, flags) = match mapping.place {
            Place::Mapped(pba) => (pba.get() * block_size, 0),
            Place::Unwritten(pba) => (pba.get() * block_size, fiemap::UNWRITTEN),
            Place::Delayed => (0, fiemap::DELALLOC | fiemap::UNKNOWN),
            Place::Hole | Place::Inline(_) => {
                block = block.saturating_add(mapping.run.len);
                continue;
            }
        };
        let next = FileExtent {
            logical: block * block_size,
            physical,
            length: mapping.run.len * block_size,
            flags,
        };
        if !extents.push(next) {
            return Ok(());
        }
        block += mapping.run.len;
    }
    extents.finish(|last| {
        let after = (last.logical + last.length) / block_size;
        Ok(!has_blocks_from(ops, inode, after)?)
    })
}

/// True if any block at or after `block` is not a hole.
fn has_blocks_from(ops: &Arc<Operations>, inode: &Arc<Inode>, block: u64) -> Result<bool> {
    let mapper = InodeMapper::new(ops, inode);
    let end = inode.max_blocks(&ops.layout);
    let mut at = block;
    while at < end {
        let mapping = mapper.lookup(Run { start: FileBlock(at), len: end - at })?;
        if mapping.place != Place::Hole {
            return Ok(true);
        }
        at = at.saturating_add(mapping.run.len);
    }
    Ok(false)
}

/// Copies within the volume through the cache. Holes are skipped if the target has a hole there.
///
/// # Errors
/// [`VfsError::Invalid`] if the ranges overlap; otherwise as [`read`] and [`write()`].
pub(crate) fn copy_range(
    ops: &Arc<Operations>,
    from: &Arc<Inode>,
    from_offset: u64,
    to: &Arc<Inode>,
    to_offset: u64,
    len: u64,
) -> Result<u64> {
    from.kind.check_regular()?;
    to.kind.check_regular()?;
    let range = CopyRange {
        from_size: from.size(),
        from: from_offset,
        to: to_offset,
        len,
        same_file: from.ino == to.ino,
    };
    range.run(
        |offset, buf| read(ops, from, offset, buf, IoFlags::empty()),
        |offset, bytes| write(ops, to, offset, bytes.into(), IoFlags::empty()),
    )
}
