//! Adds, removes and changes entries, in the places that Linux uses.
//!
//! Entries are first in the inode. If they do not fit there, they move to block 0 with the same
//! slots, and new ones go to the first level whose bucket has space. A block without entries is
//! freed.
//!
//! Locking: the caller holds the directory's `namespace` exclusively, in an operation that has
//! reserved [`BLOCKS`].

#![cfg_attr(
    not(test),
    deny(
        clippy::indexing_slicing,
        clippy::as_conversions,
        clippy::arithmetic_side_effects,
        clippy::unwrap_used,
        clippy::expect_used
    )
)]

use std::sync::Arc;

use cairn_cache::block::Image;
use cairn_vfs::{Error as VfsError, FileKind, Name};

use super::lookup::{self, Found};
use super::{blocks, depth};
use crate::disk::Disk;
use crate::error::Result;
use crate::form::names::Names;
use crate::format::dentry::{
    Dentries, DentriesMut, MAX_DEPTH, bucket_blocks, bucket_start, slots_for,
};
use crate::format::inode::InlineFlags;
use crate::format::units::{BLOCK_BYTES, BLOCK_SIZE};
use crate::format::{BlockAddr, Nid, block};
use crate::inode::{Inode, tree};
use crate::inodes::Inodes;
use crate::op::Op;

/// Blocks that adding one entry may take: block 0 of a directory that leaves its inode, one more,
/// and three nodes.
pub(crate) const BLOCKS: u64 = 5;

/// A new directory's `.` and `..`.
///
/// # Errors
/// The device failed.
pub(crate) fn init(op: &mut Op<'_>, directory: &Arc<Inode>, parent: Nid) -> Result<()> {
    let (own, kind) = (directory.nid, FileKind::Directory);
    let fill = |bytes: &mut [u8]| {
        let mut entries = DentriesMut::new(bytes);
        entries.insert(0, b".", 0, own, kind);
        entries.insert(1, b"..", 0, parent, kind);
    };
    if directory.is_inline() {
        return change_inline(op, directory, fill);
    }
    change_block(op, directory, 0, fill)
}

/// The hash of an entry that is to be made.
///
/// # Errors
/// The directory is encrypted, or ignores case and the name has other letters than ASCII.
pub(crate) fn hash_of_new(disk: &Disk, directory: &Inode, name: &[u8]) -> Result<u32> {
    directory.check_unencrypted(disk)?;
    let names = directory.with_record(|record| Names::of(record, disk.layout.features));
    let hash = names.hash_of_new(name);
    Ok(hash.ok_or(VfsError::Unsupported(
        "in a directory that ignores case, new names have ASCII letters only",
    ))?)
}

/// Adds an entry. The caller has checked that the name does not exist.
///
/// # Errors
/// As [`hash_of_new`]; or the directory or the volume is full, the directory is damaged, or the
/// device failed.
pub(crate) fn add(
    op: &mut Op<'_>,
    directory: &Arc<Inode>,
    name: Name<'_>,
    nid: Nid,
    kind: FileKind,
) -> Result<()> {
    let hash = hash_of_new(&op.inodes.disk, directory, &name)?;
    add_hashed(op, directory, (&name, hash), nid, kind)
}

/// As [`add`], of a name that has this hash.
///
/// # Errors
/// As [`add`].
pub(crate) fn add_hashed(
    op: &mut Op<'_>,
    directory: &Arc<Inode>,
    (name, hash): (&[u8], u32),
    nid: Nid,
    kind: FileKind,
) -> Result<()> {
    if directory.is_inline() {
        let room = with_inline(&op.inodes.disk, directory, |entries| {
            entries.find_room(slots_for(name.len()))
        })?;
        if let Some(slot) = room {
            return change_inline(op, directory, |bytes| {
                DentriesMut::new(bytes).insert(slot, name, hash, nid, kind);
            });
        }
        leave_inode(op, directory)?;
    }
    let (block, slot) = find_room(op.inodes, directory, name, hash)?;
    change_block(op, directory, block, |bytes| {
        DentriesMut::new(bytes).insert(slot, name, hash, nid, kind)
    })
}

/// Removes an entry.
///
/// # Errors
/// The directory is damaged, or the device failed.
pub(crate) fn remove(op: &mut Op<'_>, directory: &Arc<Inode>, found: &Found) -> Result<()> {
    if directory.is_inline() {
        return change_inline(op, directory, |bytes| DentriesMut::new(bytes).remove(found.slot));
    }
    let blank = change_block(op, directory, found.block, |bytes| {
        let mut entries = DentriesMut::new(bytes);
        entries.remove(found.slot);
        entries.view().is_blank()
    })?;
    if blank && found.block > 0 {
        let pointer = tree::find(op.store, directory, found.block)?;
        if let Ok(pointer) = pointer {
            tree::free_run(op, directory, &pointer, 1)?;
        }
        directory.entries.remove(found.block, &op.inodes.dirty_entries);
    }
    Ok(())
}

/// Points an entry to another inode.
///
/// # Errors
/// The directory is damaged, or the device failed.
pub(crate) fn set_target(
    op: &mut Op<'_>,
    directory: &Arc<Inode>,
    found: &Found,
    nid: Nid,
    kind: FileKind,
) -> Result<()> {
    let change = |bytes: &mut [u8]| DentriesMut::new(bytes).set_target(found.slot, nid, kind);
    if directory.is_inline() {
        change_inline(op, directory, change)
    } else {
        change_block(op, directory, found.block, change)
    }
}

/// True if the directory has no entries but `.` and `..`.
///
/// # Errors
/// It is damaged, or the device failed.
pub(crate) fn is_empty(disk: &Disk, directory: &Inode) -> Result<bool> {
    if directory.is_inline() {
        return with_inline(disk, directory, |entries| entries.is_empty());
    }
    let mut empty = true;
    blocks::for_each(disk, directory, 0, |_, image| {
        empty = Dentries::new(image?).is_empty();
        Ok(empty)
    })?;
    Ok(empty)
}

/// The directory above.
///
/// # Errors
/// There is no `..`, the directory is damaged, or the device failed.
pub(crate) fn parent_of(disk: &Disk, directory: &Inode) -> Result<Found> {
    Ok(lookup::locate(disk, directory, b"..")?.ok_or(VfsError::NotFound)?)
}

fn with_inline<R>(
    disk: &Disk,
    directory: &Inode,
    look: impl FnOnce(Dentries<'_>) -> R,
) -> Result<R> {
    let image = disk.nodes.inode(directory.nid)?.ok_or(VfsError::Stale)?;
    let range = directory.with_record(|record| record.inline_data_range());
    Ok(look(Dentries::new(image.get(range).unwrap_or_default())))
}

fn change_inline<R>(
    op: &Op<'_>,
    directory: &Arc<Inode>,
    change: impl FnOnce(&mut [u8]) -> R,
) -> Result<R> {
    let node = tree::own_node(op.store, directory)?;
    let range = directory.with_record(|record| record.inline_data_range());
    Ok(change(block::part_mut(&mut node.modify(), range)))
}

/// Changes a block of entries; it is made if the directory has a hole there.
fn change_block<R>(
    op: &mut Op<'_>,
    directory: &Arc<Inode>,
    block: u64,
    change: impl FnOnce(&mut [u8]) -> R,
) -> Result<R> {
    let image = match blocks::read(&op.inodes.disk, directory, block)? {
        Some(image) => image,
        None => {
            let pointer = tree::make(op, directory, block)?;
            // A reserved slot without contents, which a crash may leave, is treated as a hole.
            if pointer.get() == BlockAddr::NULL {
                pointer.reserve(op, directory);
            }
            let mut state = directory.state.write();
            state.record.size =
                state.record.size.max(block.saturating_add(1).saturating_mul(BLOCK_BYTES));
            directory.mark_dirty(op.inodes, &mut state);
            Image::zeroed(BLOCK_SIZE)
        }
    };
    let result = directory.entries.change(block, image, &op.inodes.dirty_entries, change);
    op.inodes.dirty.insert(directory);
    Ok(result)
}

/// The first place for a name: level by level, in the bucket of its hash. Raises the depth where it
/// must.
fn find_room(
    inodes: &Inodes,
    directory: &Arc<Inode>,
    name: &[u8],
    hash: u32,
) -> Result<(u64, usize)> {
    let dir_level = directory.state.read().record.dir_level;
    let wanted = slots_for(name.len());
    let depth = depth(directory);
    for level in 0..MAX_DEPTH {
        if level == depth {
            let mut state = directory.state.write();
            state.record.current_depth = depth.saturating_add(1);
            directory.mark_dirty(inodes, &mut state);
        }
        let start = bucket_start(level, dir_level, hash);
        for block in start..start.saturating_add(bucket_blocks(level)) {
            let room = match blocks::read(&inodes.disk, directory, block)? {
                Some(image) => Dentries::new(&image).find_room(wanted),
                None => Some(0),
            };
            if let Some(slot) = room {
                return Ok((block, slot));
            }
        }
        if level == depth {
            // A new bucket has room, unless there are stray blocks beyond the depth in use.
            break;
        }
    }
    Err(VfsError::NoSpace.into())
}

/// The entries move from the inode to block 0; each keeps its slot.
fn leave_inode(op: &mut Op<'_>, directory: &Arc<Inode>) -> Result<()> {
    let node = tree::own_node(op.store, directory)?;
    let range = directory.with_record(|record| record.inline_data_range());
    let old = node.image();
    let mut block = vec![0; BLOCK_SIZE];
    let mut entries = DentriesMut::new(&mut block);
    for entry in Dentries::new(old.get(range.clone()).unwrap_or_default()).iter() {
        let entry = entry.map_err(|bad| super::bad_name(directory.nid, 0, bad))?;
        let kind = entry.kind.unwrap_or(FileKind::Regular);
        entries.insert(entry.slot, entry.name, entry.hash, entry.ino, kind);
    }
    {
        let mut state = directory.state.write();
        let record = &mut state.record;
        record.inline.remove(InlineFlags::DENTRY);
        // The room for inline attributes stays: without the flexible feature it depends on this
        // flag, too.
        record.current_depth = record.current_depth.max(1);
        record.size = BLOCK_BYTES;
        directory.mark_dirty(op.inodes, &mut state);
        let mut image = node.modify();
        block::part_mut(&mut image, range).fill(0);
        state.record.encode_inline(&mut image);
    }
    change_block(op, directory, 0, |bytes| bytes.copy_from_slice(&block))
}
