//! Inline contents: the first 60 bytes in place of the block map, the rest in the attribute
//! `system.data`.
//!
//! Inline contents are read, truncated and zeroed in place. Before a write they move to blocks, in
//! one transaction that follows the write of the data, so that a crash leaves them in one of both
//! places.

use std::ops::Range;
use std::sync::Arc;

use cairn_base::FileBlock;
use cairn_block::BlockDeviceExt;
use cairn_cache::mapper::Run;
use cairn_vfs::{Error as VfsError, FileKind, IoFlags};

use crate::alloc::Allocation;
use crate::alloc::Class;
use crate::error::{Error, Result};
use crate::format::inode::InodeFlags;
use crate::format::xattr::{self, OwnedAttribute, OwnedValue, Value, XattrLocation};
use crate::inode::{Inode, State};
use crate::mount_state::MountState;
use crate::op::Operations;
use crate::store::Store;
use crate::txn::Handle;
use crate::xattr::inline_data;

/// Prefix index of `system.`.
const SYSTEM: u8 = 7;
const DATA: &[u8] = b"data";

/// The contents behind the first 60 bytes.
///
/// # Errors
/// The attributes of the inode are damaged.
pub(crate) fn tail(store: &Store, inode: &Inode, state: &State) -> Result<Vec<u8>> {
    let attributes = xattr::decode(&state.record.extra, XattrLocation::Inode, inode.ino)?;
    let found =
        attributes.iter().find(|attribute| attribute.index == SYSTEM && attribute.name == DATA);
    match found.map(|attribute| &attribute.value) {
        Some(Value::Here(bytes)) => Ok(bytes.to_vec()),
        Some(Value::Inode { ino, size, .. }) => crate::xattr_ops::value_inode(store, *ino, *size),
        None => Ok(Vec::new()),
    }
}

/// Replaces the contents by others of the same length, in memory. The caller stores them.
///
/// # Errors
/// The attributes of the inode are damaged, or the contents have another length.
pub(crate) fn replace(
    inode: &Inode,
    state: &mut State,
    head: &[u8; 60],
    tail: Vec<u8>,
) -> Result<()> {
    let attributes = xattr::decode(&state.record.extra, XattrLocation::Inode, inode.ino)?;
    let mut attributes: Vec<_> = attributes.iter().map(OwnedAttribute::from).collect();
    if let Some(data) =
        attributes.iter_mut().find(|attribute| attribute.index == SYSTEM && attribute.name == DATA)
    {
        data.value = OwnedValue::Here(tail);
        xattr::encode_inode(&mut state.record.extra, &attributes);
    }
    state.record.block = *head;
    Ok(())
}

/// Truncates or extends the contents in place, or zeroes a range. False if they do not fit; then
/// nothing has changed. The caller holds `data` exclusively.
///
/// # Errors
/// The attributes of the inode are damaged, or the journal was aborted.
pub(crate) fn reshape(
    ops: &Operations,
    inode: &Inode,
    size: u64,
    zeros: Range<u64>,
) -> Result<bool> {
    let mut bytes = contents(ops, inode)?;
    let at = |byte: u64| usize::try_from(byte).unwrap_or(usize::MAX).min(bytes.len());
    let zeros = at(zeros.start)..at(zeros.end);
    bytes[zeros].fill(0);
    let handle = ops.begin(ops.credits.attributes)?;
    let mut state = inode.state.write();
    let state = &mut *state;
    let area = &mut state.record.extra;
    let Some(len) = usize::try_from(size)
        .ok()
        .filter(|len| inline_data::capacity(area, inode.ino).is_ok_and(|most| *len <= most))
    else {
        return Ok(false);
    };
    bytes.resize(len, 0);
    if !inline_data::write(&mut state.record.block, area, inode.ino, &bytes)? {
        return Ok(false);
    }
    state.set_size_and_disksize(size);
    super::attributes::note_modified(ops, inode.ino, state, IoFlags::empty());
    inode.write_inode(ops, &handle, state)?;
    handle.finish();
    Ok(true)
}

/// The bytes that an inline file or symlink holds, up to its size. A file may be longer, as
/// `mke2fs -d` makes one that begins with a hole: what follows is zeros.
///
/// # Errors
/// The attributes of the inode are damaged, or the size of a symlink exceeds its contents.
pub(crate) fn contents(store: &Store, inode: &Inode) -> Result<Vec<u8>> {
    let state = inode.state.read();
    let mut bytes = state.record.block.to_vec();
    bytes.extend(tail(store, inode, &state)?);
    let is_longer = u64::try_from(bytes.len()).is_ok_and(|held| state.size > held);
    if is_longer && inode.kind != FileKind::Regular {
        return Err(crate::Corrupt::Inode {
            ino: inode.ino,
            field: "i_size",
            value: state.size,
            problem: "more than the inline contents",
        }
        .into());
    }
    bytes.truncate(usize::try_from(state.size).unwrap_or(usize::MAX));
    Ok(bytes)
}

/// Reads from an inline file.
///
/// # Errors
/// As [`contents`].
pub(crate) fn read(store: &Store, inode: &Inode, offset: u64, buf: &mut [u8]) -> Result<usize> {
    let bytes = contents(store, inode)?;
    let left = usize::try_from(inode.size().saturating_sub(offset)).unwrap_or(usize::MAX);
    let len = left.min(buf.len());
    let held = usize::try_from(offset).ok().and_then(|offset| bytes.get(offset..));
    let held = held.unwrap_or_default();
    let (from_inode, zeros) = buf[..len].split_at_mut(held.len().min(len));
    from_inode.copy_from_slice(&held[..from_inode.len()]);
    zeros.fill(0);
    Ok(len)
}

/// Ends the inline state: removes flag and attribute, and initialises an empty block map. It
/// changes memory only; the caller stores the inode in the handle that maps the contents.
///
/// # Errors
/// The attributes of the inode are damaged.
pub(crate) fn destroy_inline_data(store: &Store, inode: &Inode, state: &mut State) -> Result<()> {
    let attributes = xattr::decode(&state.record.extra, XattrLocation::Inode, inode.ino)?;
    let kept: Vec<OwnedAttribute> = attributes
        .iter()
        .filter(|attribute| !(attribute.index == SYSTEM && attribute.name == DATA))
        .map(OwnedAttribute::from)
        .collect();
    xattr::encode_inode(&mut state.record.extra, &kept);
    state.record.flags.remove(InodeFlags::INLINE_DATA);
    crate::inode::init_block_map(&store.layout, &mut state.record);
    state.status.forget(Run { start: FileBlock(0), len: u64::MAX });
    if inode.kind == FileKind::Directory {
        state.set_size_and_disksize(0);
    }
    Ok(())
}

/// Moves the contents of an inline file to blocks; what it has no bytes for becomes a hole. The
/// caller holds `data` exclusively.
///
/// # Errors
/// The volume is full, the attributes of the inode are damaged, or the device or the journal
/// failed. The contents stay inline.
pub(crate) fn convert_inline_data(ops: &Operations, inode: &Arc<Inode>) -> Result<()> {
    let bytes = contents(ops, inode)?;
    let block_size = ops.layout.block_size as usize;
    let blocks = u32::try_from(bytes.len().div_ceil(block_size)).map_err(|_| VfsError::TooLarge)?;
    if blocks == 0 {
        let handle = ops.begin(ops.credits.attributes)?;
        let mut state = inode.state.write();
        destroy_inline_data(ops, inode, &mut state)?;
        inode.write_inode(ops, &handle, &mut state)?;
        handle.finish();
        return Ok(());
    }
    let allocation =
        ops.space.allocate_for(ops.space.goal_of(inode.ino), blocks, Class::of_call())?;
    let start = allocation.start;
    let handle = match write_contents(ops, &allocation, bytes, blocks) {
        Ok(handle) => handle,
        Err(error) => {
            ops.space.cancel(allocation);
            return Err(error);
        }
    };
    let mut state = inode.state.write();
    let state = &mut *state;
    let before = state.record.clone();
    destroy_inline_data(ops, inode, state)?;
    if let Err(error) = ops.map_allocation(&handle, inode, state, allocation, FileBlock(0), false) {
        // Nothing was stored, so the contents are still inline.
        state.record = before;
        return Err(error);
    }
    state.status.set_mapped(Run { start: FileBlock(0), len: u64::from(blocks) }, start);
    inode.write_inode(ops, &handle, state)?;
    inode.ledger.wrote();
    handle.finish();
    Ok(())
}

/// Writes the contents to their blocks, which are not mapped yet.
fn write_contents(
    mount: &MountState,
    allocation: &Allocation,
    mut bytes: Vec<u8>,
    blocks: u32,
) -> Result<Handle> {
    if allocation.len < blocks {
        return Err(VfsError::NoSpace.into());
    }
    let block_size = mount.layout.block_size as usize;
    bytes.resize(blocks as usize * block_size, 0);
    let at = allocation.start.get() * block_size as u64;
    mount.device.write_at(at, bytes).map_err(Error::Data)?;
    mount.begin(mount.credits.map_extent)
}
