//! Writing file contents.

use std::sync::Arc;

use cairn_block::Bytes;
use cairn_vfs::copy::CopyRange;
use cairn_vfs::{Error as VfsError, IoFlags};

use super::writer::Writer;
use super::{Inode, attributes, data, inline, sync};
use crate::error::Result;
use crate::format::Features;
use crate::format::inode::Advise;
use crate::mount_state::MountState;
use crate::op::Operations;

/// Writes `data`; a shorter count means that space ran out after some of it.
///
/// # Errors
/// It is no regular file or may not be written, no space is left, it is damaged, or the device failed.
pub(crate) fn write(
    ops: &Arc<Operations>,
    inode: &Arc<Inode>,
    offset: u64,
    data: &[u8],
    flags: IoFlags,
) -> Result<usize> {
    check(&ops.mount, inode)?;
    sync::adopt(ops, inode);
    let mut done = 0;
    while done < data.len() {
        // With no lock held: a throttled writer writes back other files, too.
        ops.inodes.pages.balance()?;
        let piece = || write_locked(ops, inode, offset + done as u64, &data[done..], flags);
        match ops.with_reservations(piece) {
            Ok(0) => break,
            Ok(taken) => done += taken,
            Err(error) if done == 0 => return Err(error),
            // What was taken so far counts; the next call meets the error.
            Err(_) => break,
        }
    }
    if flags.intersects(IoFlags::DSYNC | IoFlags::SYNC) && done > 0 {
        crate::fsync::fsync(ops, inode, !flags.contains(IoFlags::SYNC))?;
    }
    Ok(done)
}

/// Can this file be written at all?
///
/// # Errors
/// It is no regular file, the volume is read-only, or the file has a feature that is not maintained.
pub(super) fn check(mount: &MountState, inode: &Inode) -> Result<()> {
    inode.kind.check_regular()?;
    mount.check_writable()?;
    let state = inode.state.read();
    let record = &state.record;
    if record.cluster_blocks().is_some() {
        return Err(VfsError::Unsupported("compressed files are read, not written").into());
    }
    let features = mount.disk.layout.features;
    if features.contains(Features::ENCRYPT) && record.advise.contains(Advise::ENCRYPT) {
        return Err(VfsError::Unsupported("encrypted files cannot be written without a key").into());
    }
    if features.contains(Features::VERITY) && record.advise.contains(Advise::VERITY) {
        return Err(VfsError::NotPermitted.into());
    }
    Ok(())
}

fn write_locked(ops: &Operations, inode: &Arc<Inode>, offset: u64, data: &[u8], flags: IoFlags) -> Result<usize> {
    let _data = inode.data.write();
    let old_size = inode.size();
    let offset = if flags.contains(IoFlags::APPEND) { old_size } else { offset };
    attributes::flags(&inode.state.read().record).check_write(offset >= old_size)?;
    let limit = inode.max_size();
    if offset >= limit {
        return Err(VfsError::TooLarge.into());
    }
    let fits = usize::try_from(limit - offset).unwrap_or(usize::MAX).min(data.len());
    let data = &data[..fits];
    if inode.is_inline() {
        if inline::write(ops, inode, offset, data, flags)? {
            return Ok(data.len());
        }
        inline::spill(ops, inode)?;
    }
    ops.room()?;
    let inside = ops.store()?.operation_lock.lock_data()?;
    let mapper = Writer::new(ops, inode, &inside);
    let done = if flags.contains(IoFlags::DIRECT) {
        inode.cache.direct_write(&mapper, old_size, offset, &Bytes::copy_from_slice(data))?
    } else {
        inode.cache.write(&mapper, old_size, offset, data)?
    };
    let mut state = inode.state.write();
    state.record.size = state.record.size.max(offset + done as u64);
    attributes::written(&ops.inodes, inode, &mut state, flags);
    Ok(done)
}

/// Copies within the ops, through the cache.
///
/// # Errors
/// As [`write()`] and [`data::read`]; or the ranges overlap.
pub(crate) fn copy_range(
    ops: &Arc<Operations>,
    from: &Arc<Inode>,
    from_offset: u64,
    to: &Arc<Inode>,
    to_offset: u64,
    len: u64,
) -> Result<u64> {
    check(&ops.mount, to)?;
    let range =
        CopyRange { from_size: from.size(), from: from_offset, to: to_offset, len, same_file: from.nid == to.nid };
    range.run(
        |offset, buf| data::read(ops, from, offset, buf, IoFlags::empty()),
        |offset, bytes| write(ops, to, offset, bytes, IoFlags::empty()),
    )
}
