//! Writing file contents.

use std::sync::Arc;

use cairn_block::{BlockDeviceExt, Bytes};
use cairn_vfs::copy::CopyRange;
use cairn_vfs::protection::without_privileges;
use cairn_vfs::{Error as VfsError, IoFlags};

use super::writer::{Writer, drop_hint};
use super::{Inode, attributes, data, sync, tree};
use crate::error::Result;
use crate::format::inode::{Advise, InlineFlags, Inode as Record};
use crate::format::units::{BLOCK_BYTES, BLOCK_SIZE};
use crate::format::{Features, Log};
use crate::segment;
use crate::volume::Volume;

/// Writes `data`; a shorter count means that space ran out after some of it.
///
/// # Errors
/// It is no regular file or may not be written, no space is left, it is damaged, or the device failed.
pub fn write(volume: &Arc<Volume>, inode: &Arc<Inode>, offset: u64, data: &[u8], flags: IoFlags) -> Result<usize> {
    check(volume, inode)?;
    sync::adopt(volume, inode);
    let mut done = 0;
    while done < data.len() {
        // With no lock held: a throttled writer writes back other files, too.
        volume.pages.balance()?;
        let piece = || write_locked(volume, inode, offset + done as u64, &data[done..], flags);
        match volume.with_reservations(piece) {
            Ok(0) => break,
            Ok(taken) => done += taken,
            Err(error) if done == 0 => return Err(error),
            // What was taken so far counts; the next call meets the error.
            Err(_) => break,
        }
    }
    if flags.intersects(IoFlags::DSYNC | IoFlags::SYNC) && done > 0 {
        crate::fsync::fsync(volume, inode, !flags.contains(IoFlags::SYNC))?;
    }
    Ok(done)
}

/// Can this file be written at all?
///
/// # Errors
/// It is no regular file, the volume is read-only, or the file has a feature that is not maintained.
pub(super) fn check(volume: &Volume, inode: &Inode) -> Result<()> {
    inode.kind.check_regular()?;
    volume.check_writable()?;
    let state = inode.state.read();
    let record = &state.record;
    if record.cluster_blocks().is_some() {
        return Err(VfsError::Unsupported("compressed files are read, not written").into());
    }
    let features = volume.layout.features;
    if features.contains(Features::ENCRYPT) && record.advise.contains(Advise::ENCRYPT) {
        return Err(VfsError::Unsupported("encrypted files cannot be written without a key").into());
    }
    if features.contains(Features::VERITY) && record.advise.contains(Advise::VERITY) {
        return Err(VfsError::NotPermitted.into());
    }
    Ok(())
}

/// One more than the last byte that a file of this record can have.
#[must_use]
pub fn max_size(record: &Record) -> u64 {
    record.shape().max_blocks() * BLOCK_BYTES
}

fn write_locked(volume: &Arc<Volume>, inode: &Arc<Inode>, offset: u64, data: &[u8], flags: IoFlags) -> Result<usize> {
    let _data = inode.data.write();
    let old_size = inode.size();
    let offset = if flags.contains(IoFlags::APPEND) { old_size } else { offset };
    let limit = {
        let state = inode.state.read();
        attributes::flags(&state.record).check_write(offset >= old_size)?;
        max_size(&state.record)
    };
    if offset >= limit {
        return Err(VfsError::TooLarge.into());
    }
    let fits = usize::try_from(limit - offset).unwrap_or(usize::MAX).min(data.len());
    let data = &data[..fits];
    if inode.is_inline() {
        if write_inline(volume, inode, offset, data, flags)? {
            return Ok(data.len());
        }
        spill(volume, inode)?;
    }
    volume.room()?;
    let inside = volume.store()?.operation_lock.lock_data()?;
    let mapper = Writer::new(volume, inode, &inside);
    let done = if flags.contains(IoFlags::DIRECT) {
        inode.cache.direct_write(&mapper, old_size, offset, &Bytes::copy_from_slice(data))?
    } else {
        inode.cache.write(&mapper, old_size, offset, data)?
    };
    let mut state = inode.state.write();
    state.record.size = state.record.size.max(offset + done as u64);
    written(volume, inode, &mut state, flags);
    Ok(done)
}

/// Contents changed: the times follow.
pub(super) fn modified(volume: &Volume, inode: &Arc<Inode>, state: &mut super::State) {
    written(volume, inode, state, IoFlags::empty());
}

/// The same by a write: privileges may go, and whoever keeps the times itself is let do so.
fn written(volume: &Volume, inode: &Arc<Inode>, state: &mut super::State, flags: IoFlags) {
    let record = &mut state.record;
    if flags.contains(IoFlags::KILL_PRIVILEGES) {
        record.permissions = without_privileges(record.permissions, record.kind);
    }
    if !flags.contains(IoFlags::WRITEBACK) {
        let now = attributes::now(volume);
        (record.mtime, record.ctime) = (now, now);
    }
    inode.touch(volume, state);
}

/// Writes into the inode itself, if the contents still fit there.
fn write_inline(volume: &Arc<Volume>, inode: &Arc<Inode>, offset: u64, data: &[u8], flags: IoFlags) -> Result<bool> {
    let (room, old) = {
        let state = inode.state.read();
        (state.record.inline_data_range(), state.record.size)
    };
    let end = offset.saturating_add(data.len() as u64);
    if end > room.len() as u64 {
        return Ok(false);
    }
    let at = |byte: u64| room.start + usize::try_from(byte).expect("within a block");
    volume.change(0, |op| {
        let node = tree::own_node(op.store, inode)?;
        let mut image = node.modify();
        if old < offset {
            image[at(old)..at(offset)].fill(0);
        }
        image[at(offset)..at(end)].copy_from_slice(data);
        drop(image);
        let mut state = inode.state.write();
        state.record.inline.insert(InlineFlags::DATA_EXIST);
        state.record.size = old.max(end);
        written(volume, inode, &mut state, flags);
        Ok(())
    })?;
    Ok(true)
}

/// Moves contents from the inode into a block. The block is written before the inode points to it, so a crash finds the
/// contents in one place or the other. Call with inode.data alone.
pub(super) fn spill(volume: &Volume, inode: &Arc<Inode>) -> Result<()> {
    let mut contents = data::inline_contents(volume, inode)?;
    let empty = contents.iter().all(|byte| *byte == 0);
    contents.resize(BLOCK_SIZE, 0);
    let room = inode.state.read().record.inline_data_range();
    volume.change(u64::from(!empty), |op| {
        let node = tree::own_node(op.store, inode)?;
        let mut first = crate::format::BlockAddr::NULL;
        if !empty {
            let owner = segment::Owner { nid: node.nid(), version: node.version(), ofs_in_node: 0 };
            first = op.store.segments.place(Log::WarmData, &[owner])?.address;
            op.reservation.take(1);
            op.store.device.write_at(first.bytes(), contents)?;
            inode.ledger.wrote();
        }
        drop_hint(volume, inode);
        inode.map.forget_from(0);
        let mut state = inode.state.write();
        state.record.inline.remove(InlineFlags::DATA | InlineFlags::DATA_EXIST);
        state.record.blocks += u64::from(!empty);
        inode.touch(volume, &mut state);
        let mut image = node.modify();
        // With the reserved word before the contents.
        image[room.start - 4..room.end].fill(0);
        if !empty {
            state.record.set_data_pointer(&mut image, 0, first);
        }
        Ok(())
    })
}

/// Copies within the volume, through the cache.
///
/// # Errors
/// As [`write()`] and [`data::read`]; or the ranges overlap.
pub fn copy_range(
    volume: &Arc<Volume>,
    from: &Arc<Inode>,
    from_offset: u64,
    to: &Arc<Inode>,
    to_offset: u64,
    len: u64,
) -> Result<u64> {
    check(volume, to)?;
    let range =
        CopyRange { from_size: from.size(), from: from_offset, to: to_offset, len, same_file: from.nid == to.nid };
    range.run(
        |offset, buf| data::read(volume, from, offset, buf, IoFlags::empty()),
        |offset, bytes| write(volume, to, offset, bytes, IoFlags::empty()),
    )
}
