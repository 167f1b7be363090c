//! Names: create, link, unlink, rmdir, rename.
//!
//! Each operation locks its directories (`namespace`, by inode number), checks everything that can fail, and then makes its
//! changes in one operation, so that a crash shows all of them or none.

use std::sync::Arc;

use cairn_vfs::{Caller, Error as VfsError, FileKind, NewInode};

use crate::dir::{edit, lookup};
use crate::error::Result;
use crate::format::Nid;
use crate::format::inode::{Advise, FileFlags};
use crate::format::units::NAME_MAX;
use crate::inode::{Inode, attributes};
use crate::op::Op;
use crate::volume::Volume;
use crate::xattr;

mod locks;
mod make;
mod rename;

pub use rename::rename;

/// Longest symlink target, in bytes; it must fit a block with its terminator.
const SYMLINK_MAX: usize = 4095;

/// Checks a name that is to be made or removed. Every system call has an answer of its own to `.` and `..`.
fn check_name(name: &[u8], dots: VfsError) -> Result<()> {
    match name {
        b"" => Err(VfsError::NotFound.into()),
        b"." | b".." => Err(dots.into()),
        _ if name.len() > NAME_MAX => Err(VfsError::NameTooLong.into()),
        _ if name.iter().any(|byte| matches!(byte, 0 | b'/')) => {
            Err(VfsError::Invalid("a name holds neither NUL nor slash").into())
        }
        _ => Ok(()),
    }
}

fn check_directory(inode: &Inode) -> Result<()> {
    if inode.kind == FileKind::Directory { Ok(()) } else { Err(VfsError::NotDirectory.into()) }
}

/// Fails if the directory's own flags or its removal forbid changing its names.
fn check_parent(parent: &Inode, removing: bool) -> Result<()> {
    check_directory(parent)?;
    let state = parent.state.read();
    if state.record.links == 0 {
        return Err(VfsError::NotFound.into());
    }
    let flags = state.record.flags;
    if flags.contains(FileFlags::IMMUTABLE) || (removing && flags.contains(FileFlags::APPEND)) {
        return Err(VfsError::NotPermitted.into());
    }
    Ok(())
}

/// Fails if an inode's flags forbid changing its links.
fn check_victim(inode: &Inode) -> Result<()> {
    if inode.state.read().record.flags.intersects(FileFlags::IMMUTABLE | FileFlags::APPEND) {
        return Err(VfsError::NotPermitted.into());
    }
    Ok(())
}

/// Makes an entry of any kind. Takes a reference.
///
/// # Errors
/// The name exists or cannot be; no space; the volume cannot be written, is damaged, or the device failed.
pub fn create(
    volume: &Arc<Volume>,
    parent: &Arc<Inode>,
    name: &[u8],
    new: &NewInode<'_>,
    permissions: u32,
    caller: &Caller,
) -> Result<Arc<Inode>> {
    volume.check_writable()?;
    check_directory(parent)?;
    check_name(name, VfsError::Exists)?;
    make::check(new)?;
    let _names = parent.namespace.write();
    check_parent(parent, false)?;
    if lookup::locate(volume, parent, name)?.is_some() {
        return Err(VfsError::Exists.into());
    }
    let kind = make::kind(new);
    let default_acl = xattr::edit::default_acl(volume, parent)?;
    let ownership = make::Ownership::of_new(&parent.record(), default_acl.as_ref(), kind, permissions, caller);
    let mut op = volume.begin(make::BLOCKS + edit::BLOCKS)?;
    let outcome = create_in(&mut op, parent, name, new, &ownership);
    volume.stop_after(&outcome);
    outcome
}

fn create_in(
    op: &mut Op<'_>,
    parent: &Arc<Inode>,
    name: &[u8],
    new: &NewInode<'_>,
    ownership: &make::Ownership,
) -> Result<Arc<Inode>> {
    let inode = make::inode(op, parent, Some(name), new, ownership)?;
    if let Err(error) = edit::add(op, parent, name, inode.nid, inode.kind) {
        make::undo(op, &inode)?;
        return Err(error);
    }
    touch_parent(op, parent, i32::from(inode.kind == FileKind::Directory));
    Ok(inode)
}

/// An unnamed regular file, an orphan until it is linked. Takes a reference.
///
/// # Errors
/// As [`create`].
pub fn tmpfile(volume: &Arc<Volume>, parent: &Arc<Inode>, permissions: u32, caller: &Caller) -> Result<Arc<Inode>> {
    volume.check_writable()?;
    check_parent(parent, false)?;
    let default_acl = xattr::edit::default_acl(volume, parent)?;
    let record = parent.record();
    let ownership = make::Ownership::of_new(&record, default_acl.as_ref(), FileKind::Regular, permissions, caller);
    volume.change(make::BLOCKS, |op| {
        let inode = make::inode(op, parent, None, &NewInode::Regular, &ownership)?;
        if let Err(error) = op.store.checkpoints.orphans.add(inode.nid) {
            make::undo(op, &inode)?;
            return Err(error);
        }
        change(op, &inode, |record| record.links = 0);
        Ok(inode)
    })
}

/// Adds a hard link. Takes no reference.
///
/// # Errors
/// As [`create`].
pub fn link(volume: &Arc<Volume>, inode: &Arc<Inode>, parent: &Arc<Inode>, name: &[u8]) -> Result<()> {
    volume.check_writable()?;
    check_directory(parent)?;
    check_name(name, VfsError::Exists)?;
    if inode.kind == FileKind::Directory {
        return Err(VfsError::NotPermitted.into());
    }
    let _names = parent.namespace.write();
    check_parent(parent, false)?;
    check_victim(inode)?;
    if lookup::locate(volume, parent, name)?.is_some() {
        return Err(VfsError::Exists.into());
    }
    if inode.state.read().record.links == u32::MAX {
        return Err(VfsError::TooManyLinks.into());
    }
    volume.change(edit::BLOCKS, |op| {
        edit::add(op, parent, name, inode.nid, inode.kind)?;
        touch_parent(op, parent, 0);
        let now = attributes::now(volume);
        change(op, inode, |record| {
            if record.links == 0 {
                op.store.checkpoints.orphans.remove(inode.nid);
            }
            record.links += 1;
            record.ctime = now;
            named(record, parent.nid, name);
            // Roll-forward knows of one name only.
            record.advise.insert(Advise::LOST_PINO);
        });
        Ok(())
    })
}

/// Removes a name that is not a directory.
///
/// # Errors
/// There is no such name, flags forbid it; the volume cannot be written, is damaged, or the device failed.
pub fn unlink(volume: &Arc<Volume>, parent: &Arc<Inode>, name: &[u8]) -> Result<()> {
    volume.check_writable()?;
    check_directory(parent)?;
    check_name(name, VfsError::IsDirectory)?;
    let inode = {
        let _names = parent.namespace.write();
        check_parent(parent, true)?;
        let found = lookup::locate(volume, parent, name)?.ok_or(VfsError::NotFound)?;
        let inode = volume.inode(found.nid.ino())?;
        if inode.kind == FileKind::Directory {
            return Err(VfsError::IsDirectory.into());
        }
        check_victim(&inode)?;
        volume.change(0, |op| {
            drop_link(op, &inode)?;
            edit::remove(op, parent, &found)?;
            touch_parent(op, parent, 0);
            Ok(())
        })?;
        inode
    };
    volume.reap(&inode)
}

/// Removes an empty directory.
///
/// # Errors
/// As [`unlink`]; or it is no directory, or not empty.
pub fn rmdir(volume: &Arc<Volume>, parent: &Arc<Inode>, name: &[u8]) -> Result<()> {
    volume.check_writable()?;
    check_directory(parent)?;
    let dots = if name == b".." { VfsError::NotEmpty } else { VfsError::Invalid("`.` cannot be removed") };
    check_name(name, dots)?;
    let inode = locks::lock_entry(volume, parent, name, |inode| {
        check_parent(parent, true)?;
        check_directory(inode)?;
        check_victim(inode)?;
        if !edit::is_empty(volume, inode)? {
            return Err(VfsError::NotEmpty.into());
        }
        let found = lookup::locate(volume, parent, name)?.ok_or(VfsError::NotFound)?;
        volume.change(0, |op| {
            drop_link(op, inode)?;
            edit::remove(op, parent, &found)?;
            touch_parent(op, parent, -1);
            Ok(inode.clone())
        })
    })?;
    volume.reap(&inode)
}

/// One name fewer (a directory has no other); without names the inode becomes an orphan. Fails before anything is changed.
fn drop_link(op: &Op<'_>, inode: &Arc<Inode>) -> Result<()> {
    let last = inode.kind == FileKind::Directory || inode.state.read().record.links <= 1;
    if last {
        op.store.checkpoints.orphans.add(inode.nid)?;
    }
    let now = attributes::now(op.volume);
    change(op, inode, |record| {
        record.links = if last { 0 } else { record.links - 1 };
        record.ctime = now;
    });
    Ok(())
}

/// A directory's entries changed: its times move, and its link count with its subdirectories.
fn touch_parent(op: &Op<'_>, parent: &Arc<Inode>, subdirectories: i32) {
    let now = attributes::now(op.volume);
    change(op, parent, |record| {
        (record.mtime, record.ctime) = (now, now);
        record.links = record.links.saturating_add_signed(subdirectories);
    });
}

/// Changes a record.
fn change(op: &Op<'_>, inode: &Arc<Inode>, change: impl FnOnce(&mut crate::format::Inode)) {
    let mut state = inode.state.write();
    change(&mut state.record);
    inode.touch(op.volume, &mut state);
}

/// The parent and name by which roll-forward finds an inode, and fsck a directory.
fn named(record: &mut crate::format::Inode, parent: Nid, name: &[u8]) {
    record.pino = parent;
    record.name = name.to_vec();
}
