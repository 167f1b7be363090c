//! The changes of `rename`, after all checks and locks.

use std::sync::Arc;

use cairn_base::Ino;
use cairn_vfs::namespace::{Namespace, Side};
use cairn_vfs::{Caller, Error as VfsError, FileKind, NewInode};

use super::links::{drop_directory, drop_link, touch_parent};
use super::make;
use crate::error::Result;
use crate::inode::{Inode, attributes, directory};
use crate::op::Operations;
use crate::txn::Handle;

/// Moves a name and replaces `target`. The old name is removed, or becomes a whiteout.
pub(super) fn replace<N: Namespace<Inode = Inode>>(
    ops: &Arc<Operations>,
    from: &Side<'_, N>,
    inode: &Arc<Inode>,
    to: &Side<'_, N>,
    target: Option<&Arc<Inode>>,
    whiteout: Option<&Caller>,
) -> Result<()> {
    let kind = inode.kind;
    let directory_moves = kind == FileKind::Directory;
    let changes_parent = directory_moves && from.parent.ino != to.parent.ino;
    if changes_parent && target.is_none() && !to.parent.may_gain_subdirectory(&ops.layout) {
        return Err(VfsError::TooManyLinks.into());
    }
    let ownership = whiteout
        .map(|caller| make::ownership(ops, from.parent, NewInode::WHITEOUT.kind(), 0, caller))
        .transpose()?;
    let credits = if whiteout.is_some() { ops.credits.create } else { 0 };
    let mut handle = ops.begin(ops.credits.rename + credits)?;
    let whiteout = ownership
        .map(|ownership| {
            make::inode(ops, &mut handle, from.parent, &NewInode::WHITEOUT, &ownership)
        })
        .transpose()?;
    let entered = match target {
        Some(_) => directory::set_target(ops, &handle, to.parent, &to.name, inode.ino, kind),
        None => directory::add(ops, &handle, to.parent, to.name, inode.ino, kind),
    };
    if let (Err(_), Some(whiteout)) = (&entered, &whiteout) {
        make::undo(ops, &mut handle, whiteout)?;
    }
    entered?;
    match &whiteout {
        Some(left) => {
            directory::set_target(ops, &handle, from.parent, &from.name, left.ino, left.kind)?;
            ops.release_later(left.ino);
        }
        None => directory::remove(ops, &handle, from.parent, &from.name)?,
    }
    if changes_parent {
        set_parent(ops, &handle, inode, to.parent.ino)?;
    }
    let gone = i32::from(target.is_some() && directory_moves);
    if from.parent.ino == to.parent.ino {
        touch_parent(ops, &handle, from.parent, -gone)?;
    } else {
        let moved = i32::from(directory_moves);
        touch_parent(ops, &handle, from.parent, -moved)?;
        touch_parent(ops, &handle, to.parent, moved - gone)?;
    }
    touch(ops, &handle, inode)?;
    match target {
        Some(target) if directory_moves => drop_directory(ops, &handle, target)?,
        Some(target) => drop_link(ops, &handle, target)?,
        None => {}
    }
    handle.finish();
    Ok(())
}

/// Swaps the inodes of two names.
pub(super) fn exchange<N: Namespace<Inode = Inode>>(
    ops: &Operations,
    from: &Side<'_, N>,
    inode: &Arc<Inode>,
    to: &Side<'_, N>,
    other: &Arc<Inode>,
) -> Result<()> {
    let is_directory = |inode: &Inode| i32::from(inode.kind == FileKind::Directory);
    let difference = is_directory(inode) - is_directory(other);
    let apart = from.parent.ino != to.parent.ino;
    let gains =
        if difference > 0 { Some(to.parent) } else { Some(from.parent).filter(|_| difference < 0) };
    if apart && gains.is_some_and(|parent| !parent.may_gain_subdirectory(&ops.layout)) {
        return Err(VfsError::TooManyLinks.into());
    }
    let handle = ops.begin(ops.credits.rename)?;
    directory::set_target(ops, &handle, from.parent, &from.name, other.ino, other.kind)?;
    directory::set_target(ops, &handle, to.parent, &to.name, inode.ino, inode.kind)?;
    if apart {
        for (moved, parent) in [(inode, to.parent), (other, from.parent)] {
            if moved.kind == FileKind::Directory {
                set_parent(ops, &handle, moved, parent.ino)?;
            }
        }
        touch_parent(ops, &handle, from.parent, -difference)?;
        touch_parent(ops, &handle, to.parent, difference)?;
    } else {
        touch_parent(ops, &handle, from.parent, 0)?;
    }
    touch(ops, &handle, inode)?;
    touch(ops, &handle, other)
}

fn set_parent(ops: &Operations, handle: &Handle, inode: &Arc<Inode>, parent: Ino) -> Result<()> {
    directory::set_target(ops, handle, inode, b"..", parent, FileKind::Directory)
}

fn touch(ops: &Operations, handle: &Handle, inode: &Inode) -> Result<()> {
    let mut state = inode.state.write();
    state.record.ctime = attributes::now(ops);
    inode.write_inode(ops, handle, &mut state)
}
