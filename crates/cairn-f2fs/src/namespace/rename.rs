//! The changes of `rename`, after all checks and locks.

use std::sync::Arc;

use cairn_vfs::new_inode::Ownership;
use cairn_vfs::{FileKind, NewInode};

use super::make;
use super::parent::{self, named};
use super::record::{change, drop_link, touch_parent};
use crate::dir::edit;
use crate::error::Result;
use crate::format::inode::Advise;
use crate::inode::Inode;
use crate::op::Op;
use crate::op::Operations;

/// One side of a rename.
type Side<'a> = cairn_vfs::namespace::Side<'a, Operations>;

/// Moves a name, replacing `target`. The old entry is removed, or becomes a whiteout with this
/// ownership.
pub(super) fn replace(
    op: &mut Op<'_>,
    from: &Side<'_>,
    inode: &Arc<Inode>,
    to: &Side<'_>,
    target: Option<&Arc<Inode>>,
    left: Option<&Ownership>,
) -> Result<()> {
    let directory_moves = inode.kind == FileKind::Directory;
    let apart = from.parent.nid != to.parent.nid;
    // Everything that can fail comes before the first change.
    let whiteout = left
        .map(|ownership| {
            make::inode(op, from.parent, Some(from.name), &NewInode::WHITEOUT, ownership)
        })
        .transpose()?;
    let dropped = target.map_or(Ok(()), |target| drop_link(op, target));
    if let (Err(_), Some(whiteout)) = (&dropped, &whiteout) {
        make::undo(op, whiteout)?;
    }
    dropped?;
    match &to.entry {
        Some(found) => edit::set_target(op, to.parent, found, inode.nid, inode.kind)?,
        None => edit::add(op, to.parent, to.name, inode.nid, inode.kind)?,
    }
    // The new entry may have moved the old one: if the entries leave the inode, they keep their
    // slots in block 0.
    let found = from.entry.expect("the old name is there");
    match &whiteout {
        Some(left) => {
            edit::set_target(op, from.parent, &found, left.nid, left.kind)?;
            // No caller has a reference to the whiteout.
            op.inodes.table.release(left.nid.ino(), 1);
        }
        None => edit::remove(op, from.parent, &found)?,
    }
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

/// Exchanges the inodes of two names.
pub(super) fn exchange(
    op: &mut Op<'_>,
    from: &Side<'_>,
    inode: &Arc<Inode>,
    to: &Side<'_>,
    other: &Arc<Inode>,
) -> Result<()> {
    let (old, new) =
        (from.entry.expect("the name is there"), to.entry.expect("the other name is there"));
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
    let found = edit::parent_of(&op.inodes.disk, inode)?;
    edit::set_target(op, inode, &found, parent.nid, FileKind::Directory)
}

/// Updates the name in the inode. Roll-forward could make the new entry, but not remove the old
/// one.
fn rename_record(op: &Op<'_>, inode: &Arc<Inode>, to: &Side<'_>) {
    let now = op.inodes.now();
    parent::changed(op, inode);
    change(op, inode, |record| {
        record.ctime = now;
        named(record, to.parent.nid, to.name);
        if record.kind != FileKind::Directory {
            record.advise.insert(Advise::LOST_PINO);
        }
    });
}
