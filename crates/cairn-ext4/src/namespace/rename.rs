//! `rename`, in its three modes.

use std::sync::Arc;

use cairn_base::Ino;
use cairn_vfs::{Error as VfsError, FileKind, RenameMode};

use super::locks::{lock_names, peek, still};
use super::{
    check_directory, check_name, check_parent, check_victim, drop_directory, drop_link, parent_of, touch_parent,
};
use crate::error::Result;
use crate::inode::{Inode, attributes, directory};
use crate::txn::Handle;
use crate::volume::Volume;

/// One side of a rename.
struct Side<'a> {
    parent: &'a Arc<Inode>,
    name: &'a [u8],
}

/// Renames; see [`RenameMode`].
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
    let from = Side { parent, name };
    let to = Side { parent: new_parent, name: new_name };
    // Only moves between directories can make a loop; they exclude each other while ancestors are walked.
    let _moving = (parent.ino != new_parent.ino).then(|| volume.moves.lock());
    loop {
        let inode = peek(volume, parent, name)?.ok_or(VfsError::NotFound)?;
        let other = peek(volume, new_parent, new_name)?;
        let mut concerned = vec![parent, new_parent, &inode];
        concerned.extend(&other);
        let locks = lock_names(&concerned);
        if !still(volume, parent, name, Some(&inode))? || !still(volume, new_parent, new_name, other.as_ref())? {
            continue;
        }
        let replaced = rename_locked(volume, &from, &inode, &to, other.as_ref(), mode)?;
        drop(locks);
        return replaced.map_or(Ok(()), |inode| volume.reap(&inode));
    }
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
        (_, Some(other)) if other.ino == inode.ino => return Ok(None),
        _ => {}
    }
    check_parent(from.parent, true)?;
    // A target goes from its directory as well.
    check_parent(to.parent, other.is_some())?;
    check_victim(inode)?;
    if from.parent.ino != to.parent.ino {
        check_no_loop(volume, inode, to.parent)?;
        if let (RenameMode::Exchange, Some(other)) = (mode, other) {
            check_no_loop(volume, other, from.parent)?;
        }
    }
    match (mode, other) {
        (RenameMode::Exchange, Some(other)) => exchange(volume, from, inode, to, other).map(|()| None),
        (_, other) => {
            replace(volume, from, inode, to, other)?;
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
    for _ in 0..volume.layout.inodes_count {
        if at.ino == inode.ino {
            return Err(VfsError::Invalid("a directory cannot be moved into itself").into());
        }
        if at.ino == crate::ROOT_INO {
            return Ok(());
        }
        let above = parent_of(volume, &at)?;
        at = volume.inode(above)?;
    }
    Err(VfsError::Loop.into())
}

fn replace(
    volume: &Arc<Volume>,
    from: &Side<'_>,
    inode: &Arc<Inode>,
    to: &Side<'_>,
    target: Option<&Arc<Inode>>,
) -> Result<()> {
    let kind = inode.kind;
    let directory_moves = kind == FileKind::Directory;
    if let Some(target) = target {
        check_victim(target)?;
        match (directory_moves, target.kind == FileKind::Directory) {
            (true, false) => return Err(VfsError::NotDirectory.into()),
            (false, true) => return Err(VfsError::IsDirectory.into()),
            (true, true) if !directory::is_empty(volume, target)? => return Err(VfsError::NotEmpty.into()),
            _ => {}
        }
    }
    let changes_parent = directory_moves && from.parent.ino != to.parent.ino;
    if changes_parent && target.is_none() && !volume.may_gain_subdirectory(to.parent) {
        return Err(VfsError::TooManyLinks.into());
    }
    let handle = volume.begin(volume.credits.rename)?;
    match target {
        Some(_) => directory::set_target(volume, &handle, to.parent, to.name, inode.ino, kind)?,
        None => directory::add(volume, &handle, to.parent, to.name, inode.ino, kind)?,
    }
    directory::remove(volume, &handle, from.parent, from.name)?;
    if changes_parent {
        set_parent(volume, &handle, inode, to.parent.ino)?;
    }
    let gone = i32::from(target.is_some() && directory_moves);
    if from.parent.ino == to.parent.ino {
        touch_parent(volume, &handle, from.parent, -gone)?;
    } else {
        let moved = i32::from(directory_moves);
        touch_parent(volume, &handle, from.parent, -moved)?;
        touch_parent(volume, &handle, to.parent, moved - gone)?;
    }
    touch(volume, &handle, inode)?;
    match target {
        Some(target) if directory_moves => drop_directory(volume, &handle, target),
        Some(target) => drop_link(volume, &handle, target),
        None => Ok(()),
    }
}

fn exchange(
    volume: &Arc<Volume>,
    from: &Side<'_>,
    inode: &Arc<Inode>,
    to: &Side<'_>,
    other: &Arc<Inode>,
) -> Result<()> {
    check_victim(other)?;
    let is_directory = |inode: &Inode| i32::from(check_directory(inode).is_ok());
    let difference = is_directory(inode) - is_directory(other);
    let apart = from.parent.ino != to.parent.ino;
    let gains = if difference > 0 { Some(to.parent) } else { Some(from.parent).filter(|_| difference < 0) };
    if apart && gains.is_some_and(|parent| !volume.may_gain_subdirectory(parent)) {
        return Err(VfsError::TooManyLinks.into());
    }
    let handle = volume.begin(volume.credits.rename)?;
    directory::set_target(volume, &handle, from.parent, from.name, other.ino, other.kind)?;
    directory::set_target(volume, &handle, to.parent, to.name, inode.ino, inode.kind)?;
    if apart {
        for (moved, parent) in [(inode, to.parent), (other, from.parent)] {
            if moved.kind == FileKind::Directory {
                set_parent(volume, &handle, moved, parent.ino)?;
            }
        }
        touch_parent(volume, &handle, from.parent, -difference)?;
        touch_parent(volume, &handle, to.parent, difference)?;
    } else {
        touch_parent(volume, &handle, from.parent, 0)?;
    }
    touch(volume, &handle, inode)?;
    touch(volume, &handle, other)
}

fn set_parent(volume: &Arc<Volume>, handle: &Handle, inode: &Arc<Inode>, parent: Ino) -> Result<()> {
    directory::set_target(volume, handle, inode, b"..", parent, FileKind::Directory)
}

fn touch(volume: &Arc<Volume>, handle: &Handle, inode: &Inode) -> Result<()> {
    let mut state = inode.state.write();
    state.record.ctime = attributes::now(volume);
    inode.store(volume, handle, &mut state)
}
