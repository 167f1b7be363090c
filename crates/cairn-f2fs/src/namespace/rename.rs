//! `rename`, in its three modes.

use std::sync::Arc;

use cairn_vfs::{Error as VfsError, FileKind, RenameMode};

use super::locks::{lock_names, peek, still};
use super::{change, check_directory, check_name, check_parent, check_victim, drop_link, named, touch_parent};
use crate::dir::edit;
use crate::dir::lookup::Found;
use crate::error::Result;
use crate::format::inode::Advise;
use crate::inode::{Inode, attributes};
use crate::op::Op;
use crate::volume::Volume;

/// One side of a rename.
struct Side<'a> {
    parent: &'a Arc<Inode>,
    name: &'a [u8],
    /// The entry, if there is one.
    found: Option<Found>,
}

/// Renames; see [`RenameMode`].
///
/// # Errors
/// A name is missing, exists or cannot be; the move would make a loop; no space; the volume cannot be written, is damaged,
/// or the device failed.
pub fn rename(
    volume: &Arc<Volume>,
    parent: &Arc<Inode>,
    name: &[u8],
    new_parent: &Arc<Inode>,
    new_name: &[u8],
    mode: RenameMode,
) -> Result<()> {
    volume.check_writable()?;
    check_directory(parent)?;
    check_directory(new_parent)?;
    check_name(name, VfsError::Busy)?;
    check_name(new_name, if mode == RenameMode::NoReplace { VfsError::Exists } else { VfsError::Busy })?;
    // Only moves between directories can make a loop; they exclude each other while ancestors are walked.
    let moving = (parent.nid != new_parent.nid).then(|| volume.moves.lock());
    let replaced = loop {
        let inode = peek(volume, parent, name)?.ok_or(VfsError::NotFound)?;
        let other = peek(volume, new_parent, new_name)?;
        let mut concerned = vec![parent, new_parent, &inode];
        concerned.extend(&other);
        let locks = lock_names(&concerned);
        let Some(found) = still(volume, parent, name, Some(&inode))? else { continue };
        let from = Side { parent, name, found };
        let Some(found) = still(volume, new_parent, new_name, other.as_ref())? else { continue };
        let to = Side { parent: new_parent, name: new_name, found };
        let replaced = rename_locked(volume, &from, &inode, &to, other.as_ref(), mode)?;
        drop(locks);
        break replaced;
    };
    drop(moving);
    replaced.map_or(Ok(()), |inode| volume.reap(&inode))
}

/// The rename itself, with the names of all directories concerned locked. Gives the inode that lost its name.
fn rename_locked(
    volume: &Arc<Volume>,
    from: &Side<'_>,
    inode: &Arc<Inode>,
    to: &Side<'_>,
    other: Option<&Arc<Inode>>,
    mode: RenameMode,
) -> Result<Option<Arc<Inode>>> {
    match (mode, other) {
        (RenameMode::NoReplace, Some(_)) => return Err(VfsError::Exists.into()),
        (RenameMode::Exchange, None) => return Err(VfsError::NotFound.into()),
        // Two names of one inode: nothing to do, and so nothing that the directories could forbid.
        (_, Some(other)) if other.nid == inode.nid => return Ok(None),
        _ => {}
    }
    check_parent(from.parent, true)?;
    // A target goes from its directory as well.
    check_parent(to.parent, other.is_some())?;
    check_victim(inode)?;
    if from.parent.nid != to.parent.nid {
        check_no_loop(volume, inode, to.parent)?;
        if let (RenameMode::Exchange, Some(other)) = (mode, other) {
            check_no_loop(volume, other, from.parent)?;
        }
    }
    if let Some(other) = other {
        check_victim(other)?;
    }
    match (mode, other) {
        (RenameMode::Exchange, Some(other)) => {
            volume.change(0, |op| exchange(op, from, inode, to, other))?;
            Ok(None)
        }
        (_, other) => {
            check_target(volume, inode, other)?;
            volume.change(edit::BLOCKS, |op| replace(op, from, inode, to, other))?;
            Ok(other.cloned())
        }
    }
}

/// Fails if `inode` is `directory` or one of the directories above it.
fn check_no_loop(volume: &Arc<Volume>, inode: &Arc<Inode>, directory: &Arc<Inode>) -> Result<()> {
    if inode.kind != FileKind::Directory {
        return Ok(());
    }
    let mut at = directory.clone();
    // A path is shorter than the number of inodes; a longer walk has met a loop that is already on disk.
    for _ in 0..volume.layout.max_nid() {
        if at.nid == inode.nid {
            return Err(VfsError::Invalid("a directory cannot be moved into itself").into());
        }
        if at.nid.ino() == crate::ROOT_INO {
            return Ok(());
        }
        let above = edit::parent_of(volume, &at)?;
        at = volume.inode(above.nid.ino())?;
    }
    Err(VfsError::Loop.into())
}

fn check_target(volume: &Volume, inode: &Inode, target: Option<&Arc<Inode>>) -> Result<()> {
    let Some(target) = target else { return Ok(()) };
    match (inode.kind == FileKind::Directory, target.kind == FileKind::Directory) {
        (true, false) => Err(VfsError::NotDirectory.into()),
        (false, true) => Err(VfsError::IsDirectory.into()),
        (true, true) if !edit::is_empty(volume, target)? => Err(VfsError::NotEmpty.into()),
        _ => Ok(()),
    }
}

fn replace(
    op: &mut Op<'_>,
    from: &Side<'_>,
    inode: &Arc<Inode>,
    to: &Side<'_>,
    target: Option<&Arc<Inode>>,
) -> Result<()> {
    let directory_moves = inode.kind == FileKind::Directory;
    let apart = from.parent.nid != to.parent.nid;
    if let Some(target) = target {
        // Fails, if at all, before anything has changed.
        drop_link(op, target)?;
    }
    match &to.found {
        Some(found) => edit::set_target(op, to.parent, found, inode.nid, inode.kind)?,
        None => edit::add(op, to.parent, to.name, inode.nid, inode.kind)?,
    }
    // The new entry may have moved the old one: a directory that leaves its inode keeps slots, in block 0.
    let found = from.found.expect("the old name is there");
    edit::remove(op, from.parent, &found)?;
    if directory_moves && apart {
        set_parent(op, inode, to.parent)?;
    }
    let gone = i32::from(target.is_some() && directory_moves);
    if apart {
        let moved = i32::from(directory_moves);
        touch_parent(op, from.parent, -moved);
        touch_parent(op, to.parent, moved - gone);
    } else {
        touch_parent(op, from.parent, -gone);
    }
    rename_record(op, inode, to);
    Ok(())
}

fn exchange(op: &mut Op<'_>, from: &Side<'_>, inode: &Arc<Inode>, to: &Side<'_>, other: &Arc<Inode>) -> Result<()> {
    let (old, new) = (from.found.expect("the name is there"), to.found.expect("the other name is there"));
    edit::set_target(op, from.parent, &old, other.nid, other.kind)?;
    edit::set_target(op, to.parent, &new, inode.nid, inode.kind)?;
    if from.parent.nid == to.parent.nid {
        touch_parent(op, from.parent, 0);
    } else {
        let is_directory = |inode: &Inode| i32::from(inode.kind == FileKind::Directory);
        let difference = is_directory(inode) - is_directory(other);
        touch_parent(op, from.parent, -difference);
        touch_parent(op, to.parent, difference);
        for (moved, parent) in [(inode, to.parent), (other, from.parent)] {
            if moved.kind == FileKind::Directory {
                set_parent(op, moved, parent)?;
            }
        }
    }
    rename_record(op, inode, to);
    rename_record(op, other, from);
    Ok(())
}

/// Points `..` of a directory that moves to its new parent.
fn set_parent(op: &mut Op<'_>, inode: &Arc<Inode>, parent: &Inode) -> Result<()> {
    let found = edit::parent_of(op.volume, inode)?;
    edit::set_target(op, inode, &found, parent.nid, FileKind::Directory)
}

/// The inode's own idea of its name follows. Roll-forward could make the new entry, but not take the old one away.
fn rename_record(op: &Op<'_>, inode: &Arc<Inode>, to: &Side<'_>) {
    let now = attributes::now(op.volume);
    change(op, inode, |record| {
        record.ctime = now;
        named(record, to.parent.nid, to.name);
        if record.kind != FileKind::Directory {
            record.advise.insert(Advise::LOST_PINO);
        }
    });
}
