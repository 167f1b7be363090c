//! Reading and writing file contents.

use std::ops::Range;
use std::sync::Arc;

use cairn_base::FileBlock;
use cairn_base::ranked_lock::RwLockReadGuard;
use cairn_cache::file::WriteSource;
use cairn_cache::mapper::{FileMapper, Place, Run};
use cairn_cache::writeback::WritebackMode;
use cairn_vfs::copy::CopyRange;
use cairn_vfs::namespace::NamedInode;
use cairn_vfs::short_write::write_pieces;
use cairn_vfs::{Error as VfsError, FileExtent, FileKind, InodeFlags, IoFlags, Seek, fiemap, seek};

use super::mapper::InodeMapper;
use super::read_mapper::ReadMapper;
use super::{Inode, attributes, inline, writeback};
use crate::compress;
use crate::disk::Disk;
use crate::error::Result;
use crate::format::Features;
use crate::format::inode::Advise;
use crate::format::units::BLOCK_BYTES;
use crate::mount_state::MountState;
use crate::op::Operations;

/// Reads into `buf`; fewer bytes only at the end of the file.
///
/// # Errors
/// The file is not a regular one, is encrypted or damaged, or the device failed.
pub(crate) fn read(
    ops: &Arc<Operations>,
    inode: &Arc<Inode>,
    offset: u64,
    buf: &mut [u8],
    flags: IoFlags,
) -> Result<usize> {
    let _data = begin(ops, inode)?;
    let size = inode.size();
    if offset >= size || buf.is_empty() {
        return Ok(0);
    }
    if inode.is_inline() {
        let contents = inline::contents(&ops.disk, inode)?;
        return Ok(inline::copy_from(&contents, offset, buf));
    }
    if is_compressed(inode) {
        let _reading = ops.disk.store.as_ref().map(|store| store.operation_lock.lock_reading());
        return compress::read(&ops.disk, &ops.inodes.clusters, inode, size, offset, buf);
    }
    if flags.contains(IoFlags::DIRECT) {
        let end = offset.saturating_add(buf.len() as u64).div_ceil(BLOCK_BYTES);
        write_back(ops, inode, offset / BLOCK_BYTES..end)?;
    }
    ReadMapper::while_stable(&ops.disk, inode, |mapper| -> Result<usize> {
        Ok(if flags.contains(IoFlags::DIRECT) {
            inode.cache.direct_read(mapper, size, offset, buf)?
        } else {
            let done = inode.cache.read(mapper, size, offset, buf)?;
            if flags.contains(IoFlags::DONTCACHE) {
                inode.cache.invalidate_bytes(offset, done);
            }
            done
        })
    })
}

/// As [`read`] of up to `len` bytes, but lends cached pages to `take`. False if there are none:
/// inline, compressed or direct reads.
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
    let pieces = {
        let _data = begin(ops, inode)?;
        if inode.is_inline() || is_compressed(inode) || flags.contains(IoFlags::DIRECT) {
            return Ok(false);
        }
        let pieces = ReadMapper::while_stable(&ops.disk, inode, |mapper| {
            inode.cache.read_shared(mapper, inode.size(), offset, len)
        })?;
        if flags.contains(IoFlags::DONTCACHE) {
            inode.cache.invalidate_bytes(offset, len);
        }
        pieces
    };
    let pieces: Vec<&[u8]> = pieces.iter().map(|piece| &piece[..]).collect();
    take(&pieces);
    Ok(true)
}

/// The contents do not change while the returned lock is held.
fn begin<'i>(ops: &Arc<Operations>, inode: &'i Arc<Inode>) -> Result<RwLockReadGuard<'i, ()>> {
    inode.kind.check_regular()?;
    inode.check_unencrypted(&ops.disk)?;
    writeback::adopt(ops, inode);
    Ok(inode.data.read())
}

fn is_compressed(inode: &Inode) -> bool {
    inode.state.read().record.cluster_blocks().is_some()
}

/// Writes dirty data before the device is read. On a read-only volume nothing is dirty.
fn write_back(ops: &Operations, inode: &Arc<Inode>, blocks: Range<u64>) -> Result<()> {
    if ops.mount.read_only_reason().is_some() {
        return Ok(());
    }
    writeback::write_back(ops, inode, blocks, WritebackMode::Sync)
}

/// `SEEK_DATA` and `SEEK_HOLE`.
///
/// # Errors
/// [`VfsError::NoData`] behind the last data; the node tree is damaged, or the device failed.
pub(crate) fn seek(ops: &Operations, inode: &Arc<Inode>, offset: u64, what: Seek) -> Result<u64> {
    let _data = inode.data.read();
    let size = inode.size();
    if inode.kind != FileKind::Regular || inode.is_inline() {
        return seek::seek(what, offset, size, |_| Ok((true, size)));
    }
    let step = inode.with_record(|record| record.cluster_blocks()).unwrap_or(1).into();
    // A reservation without data must not count as data.
    inode.cache.release_reservation(&ReadMapper::new(&ops.disk, inode));
    let blocks = size.div_ceil(BLOCK_BYTES);
    seek::seek(what, offset, size, |at| {
        let (is_data, end) = classify(&ops.disk, inode, at / BLOCK_BYTES, blocks, step)?;
        Ok((is_data, end.saturating_mul(BLOCK_BYTES)))
    })
}

/// Whether there is data at a block, and up to which block this holds. Compressed clusters (`step`
/// blocks) are data as a whole.
fn classify(disk: &Disk, inode: &Inode, block: u64, end: u64, step: u64) -> Result<(bool, u64)> {
    if step > 1 && compress::is_compressed(disk, inode, block - block % step)? {
        return Ok((true, block - block % step + step));
    }
    let len = if step > 1 { step - block % step } else { end - block };
    let mapping = ReadMapper::new(disk, inode).lookup(Run { start: FileBlock(block), len })?;
    let next = block.saturating_add(mapping.run.len).min(end);
    if matches!(mapping.place, Place::Mapped(_) | Place::Delayed | Place::Inline(_)) {
        return Ok((true, next));
    }
    // Dirty data in a slot without an address is data.
    Ok(inode.cache.starts_dirty(block..next))
}

/// `FIEMAP`.
///
/// # Errors
/// The node tree is damaged, or the device failed.
pub(crate) fn extents(
    ops: &Operations,
    inode: &Arc<Inode>,
    offset: u64,
    len: u64,
    emit: &mut dyn FnMut(FileExtent) -> bool,
) -> Result<()> {
    let _data = inode.data.read();
    let size = inode.size();
    if inode.is_inline() {
        if offset < size {
            let flags = fiemap::DATA_INLINE | fiemap::LAST;
            emit(FileExtent { logical: 0, physical: 0, length: size, flags });
        }
        return Ok(());
    }
    write_back(ops, inode, 0..u64::MAX)?;
    let step: u64 = inode.with_record(|record| record.cluster_blocks()).unwrap_or(1).into();
    let blocks = size.div_ceil(BLOCK_BYTES);
    let end = offset.saturating_add(len).div_ceil(BLOCK_BYTES).min(blocks);
    let mut block = offset / BLOCK_BYTES / step * step;
    let mut extents = fiemap::Emitter::new(emit);
    while block < end {
        let (found, next) = extent_at(&ops.disk, inode, block, blocks, step)?;
        block = next;
        let Some(found) = found else { continue };
        if !extents.push(found) {
            return Ok(());
        }
    }
    extents.finish(|_| {
        while block < blocks {
            let (found, next) = extent_at(&ops.disk, inode, block, blocks, step)?;
            if found.is_some() {
                return Ok(false);
            }
            block = next;
        }
        Ok(true)
    })
}

fn extent_at(
    disk: &Disk,
    inode: &Inode,
    block: u64,
    blocks: u64,
    step: u64,
) -> Result<(Option<FileExtent>, u64)> {
    let logical = block * BLOCK_BYTES;
    // A run ends in the middle of a cluster only if the cluster is not compressed.
    if step > 1 && block.is_multiple_of(step) && compress::is_compressed(disk, inode, block)? {
        let physical =
            compress::first_address(disk, inode, block)?.map_or(0, |pba| pba.get() * BLOCK_BYTES);
        let extent =
            FileExtent { logical, physical, length: step * BLOCK_BYTES, flags: fiemap::ENCODED };
        return Ok((Some(extent), block + step));
    }
    let want = if step > 1 { step - block % step } else { blocks - block };
    let mapping =
        ReadMapper::new(disk, inode).lookup(Run { start: FileBlock(block), len: want })?;
    let next = block.saturating_add(mapping.run.len);
    let Place::Mapped(pba) = mapping.place else { return Ok((None, next)) };
    let length = mapping.run.len.min(blocks - block) * BLOCK_BYTES;
    Ok((Some(FileExtent { logical, physical: pba.get() * BLOCK_BYTES, length, flags: 0 }), next))
}

/// Writes `data`; a shorter count means that space ran out after some of it.
///
/// # Errors
/// The file is not a regular one or may not be written, no space is left, the file is damaged, or
/// the device failed.
pub(crate) fn write(
    ops: &Arc<Operations>,
    inode: &Arc<Inode>,
    offset: u64,
    data: WriteSource<'_>,
    flags: IoFlags,
) -> Result<usize> {
    check(&ops.mount, inode)?;
    writeback::adopt(ops, inode);
    let done = write_pieces(data.len(), |done| {
        // With no lock held: a throttled writer writes back other files, too.
        ops.inodes.pages.balance()?;
        let piece = || write_locked(ops, inode, offset + done as u64, data.after(done), flags);
        ops.with_reservations(piece)
    })?;
    if flags.contains(IoFlags::DONTCACHE) {
        write_behind(ops, inode);
    }
    let synchronous = flags.intersects(IoFlags::DSYNC | IoFlags::SYNC)
        || inode.flags().contains(InodeFlags::SYNC);
    if synchronous && done > 0 {
        crate::fsync::fsync(ops, inode, !flags.contains(IoFlags::SYNC))?;
    }
    Ok(done)
}

/// Writes back what a stream has left behind and drops it from the cache. An error is kept for the
/// next fsync, as write-back's.
fn write_behind(ops: &Operations, inode: &Arc<Inode>) {
    let Some(blocks) = inode.cache.write_behind() else { return };
    let _data = inode.data.read();
    let _ = writeback::write_back(ops, inode, blocks, WritebackMode::Background);
}

/// Checks that this file can be written.
///
/// # Errors
/// The file is not a regular one, the volume is read-only, or the file has a feature that is not
/// maintained.
pub(super) fn check(mount: &MountState, inode: &Inode) -> Result<()> {
    inode.kind.check_regular()?;
    mount.check_writable()?;
    inode.check_unencrypted(&mount.disk)?;
    let state = inode.state.read();
    let record = &state.record;
    if record.cluster_blocks().is_some() {
        return Err(VfsError::Unsupported("compressed files are read, not written").into());
    }
    let features = mount.disk.layout.features;
    if features.contains(Features::VERITY) && record.advise.contains(Advise::VERITY) {
        return Err(VfsError::NotPermitted.into());
    }
    Ok(())
}

fn write_locked(
    ops: &Operations,
    inode: &Arc<Inode>,
    offset: u64,
    data: WriteSource<'_>,
    flags: IoFlags,
) -> Result<usize> {
    let _data = inode.data.write();
    let old_size = inode.size();
    let offset = if flags.contains(IoFlags::APPEND) { old_size } else { offset };
    attributes::flags(&inode.state.read().record).check_write(offset >= old_size)?;
    let limit = inode.max_size();
    if offset >= limit {
        return Err(VfsError::TooLarge.into());
    }
    let data = data.first(usize::try_from(limit - offset).unwrap_or(usize::MAX));
    if inode.is_inline() {
        if inline::write(ops, inode, offset, &data, flags)? {
            return Ok(data.len());
        }
        inline::spill(ops, inode)?;
    }
    ops.room()?;
    let inside = ops.store()?.operation_lock.lock_data()?;
    let mapper = InodeMapper::new(ops, inode, &inside);
    let done = if flags.contains(IoFlags::DIRECT) {
        inode.cache.direct_write(&mapper, old_size, offset, &data.to_bytes())?
    } else {
        let data = data.dontcache(flags.contains(IoFlags::DONTCACHE));
        inode.cache.write_source(&mapper, old_size, offset, data)?
    };
    let mut state = inode.state.write();
    state.record.size = state.record.size.max(offset + done as u64);
    attributes::written(&ops.inodes, inode, &mut state, flags);
    Ok(done)
}

/// Copies within the volume, through the cache.
///
/// # Errors
/// As [`write()`] and [`read`]; or the ranges overlap.
pub(crate) fn copy_range(
    ops: &Arc<Operations>,
    from: &Arc<Inode>,
    from_offset: u64,
    to: &Arc<Inode>,
    to_offset: u64,
    len: u64,
) -> Result<u64> {
    check(&ops.mount, to)?;
    let range = CopyRange {
        from_size: from.size(),
        from: from_offset,
        to: to_offset,
        len,
        same_file: from.nid == to.nid,
    };
    range.run(
        |offset, buf| read(ops, from, offset, buf, IoFlags::empty()),
        |offset, bytes| write(ops, to, offset, bytes.into(), IoFlags::empty()),
    )
}
