//! Names: create, link, unlink, rmdir, rename.
//!
//! Each operation locks its directories (`namespace`, by inode number), checks everything that can fail, and then makes
//! its changes in one handle, so that a crash shows all of them or none.

use std::sync::Arc;

use cairn_base::Ino;
use cairn_vfs::{Caller, Error as VfsError, FileKind, NewInode};

use crate::error::Result;
use crate::format::inode::InodeFlags;
use crate::inode::attributes::{self, Ownership};
use crate::inode::{Inode, directory};
use crate::txn::Handle;
use crate::volume::Volume;
use crate::xattr_ops;

mod locks;
mod make;
mod rename;

pub use rename::rename;

/// Longest name, in bytes.
pub const NAME_MAX: usize = 255;
/// Longest symlink target, in bytes; it must fit a block with its terminator.
pub const SYMLINK_MAX: usize = 4095;
/// Links a non-directory can have.
const LINK_MAX: u32 = 65_000;

/// Checks a name that is to be made or removed. Every system call has an answer of its own to `.` and `..`.
pub fn check_name(name: &[u8], dots: VfsError) -> Result<()> {
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

/// Fails unless `inode` is a directory.
pub fn check_directory(inode: &Inode) -> Result<()> {
    if inode.kind == FileKind::Directory { Ok(()) } else { Err(VfsError::NotDirectory.into()) }
}

/// Fails if the directory's own flags or its removal forbid adding a name.
fn check_parent(parent: &Inode, removing: bool) -> Result<()> {
    check_directory(parent)?;
    let state = parent.state.read();
    if state.record.links == 0 {
        return Err(VfsError::NotFound.into());
    }
    let flags = state.record.flags;
    if flags.contains(InodeFlags::IMMUTABLE) || (removing && flags.contains(InodeFlags::APPEND)) {
        return Err(VfsError::NotPermitted.into());
    }
    Ok(())
}

/// Fails if an inode's flags forbid changing its links.
fn check_victim(inode: &Inode) -> Result<()> {
    let flags = inode.state.read().record.flags;
    if flags.intersects(InodeFlags::IMMUTABLE | InodeFlags::APPEND) {
        return Err(VfsError::NotPermitted.into());
    }
    Ok(())
}

/// Finds a name; `.` and `..` too. Takes a reference.
pub fn lookup(volume: &Arc<Volume>, parent: &Arc<Inode>, name: &[u8]) -> Result<Arc<Inode>> {
    check_directory(parent)?;
    if name.len() > NAME_MAX {
        return Err(VfsError::NameTooLong.into());
    }
    let _names = parent.namespace.read();
    let ino = match name {
        b"." => parent.ino,
        _ => directory::lookup(volume, parent, name)?.ok_or(VfsError::NotFound)?.0,
    };
    volume.acquire(ino)
}

/// Makes an entry of any kind. Takes a reference.
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
    if directory::lookup(volume, parent, name)?.is_some() {
        return Err(VfsError::Exists.into());
    }
    let kind = make::kind(new);
    if kind == FileKind::Directory && !volume.may_gain_subdirectory(parent) {
        return Err(VfsError::TooManyLinks.into());
    }
    let default_acl = xattr_ops::default_acl(volume, parent)?;
    let ownership = Ownership::of_new(volume, &parent.state.read(), default_acl.as_ref(), kind, permissions, caller);
    let mut handle = volume.begin(volume.credits.create)?;
    let inode = make::inode(volume, &mut handle, parent, new, &ownership)?;
    if let Err(error) = directory::add(volume, &handle, parent, name, inode.ino, kind) {
        make::undo(volume, &mut handle, &inode)?;
        return Err(error);
    }
    touch_parent(volume, &handle, parent, i32::from(kind == FileKind::Directory))?;
    Ok(inode)
}

/// An unnamed regular file, on the orphan records until it is linked. Takes a reference.
pub fn tmpfile(volume: &Arc<Volume>, parent: &Arc<Inode>, permissions: u32, caller: &Caller) -> Result<Arc<Inode>> {
    volume.check_writable()?;
    check_parent(parent, false)?;
    let default_acl = xattr_ops::default_acl(volume, parent)?;
    let ownership =
        Ownership::of_new(volume, &parent.state.read(), default_acl.as_ref(), FileKind::Regular, permissions, caller);
    let mut handle = volume.begin(volume.credits.create)?;
    let inode = make::inode(volume, &mut handle, parent, &NewInode::Regular, &ownership)?;
    let mut state = inode.state.write();
    state.record.links = 0;
    volume.orphans.add(volume, &handle, inode.ino)?;
    inode.store(volume, &handle, &mut state)?;
    drop(state);
    Ok(inode)
}

/// Adds a hard link. Takes a reference.
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
    if directory::lookup(volume, parent, name)?.is_some() {
        return Err(VfsError::Exists.into());
    }
    if inode.state.read().record.links >= LINK_MAX {
        return Err(VfsError::TooManyLinks.into());
    }
    let handle = volume.begin(volume.credits.link)?;
    directory::add(volume, &handle, parent, name, inode.ino, inode.kind)?;
    touch_parent(volume, &handle, parent, 0)?;
    let mut state = inode.state.write();
    if state.record.links == 0 && volume.orphans.remove(volume, &handle, inode.ino)? {
        state.record.dtime = 0;
    }
    state.record.links += 1;
    state.record.ctime = attributes::now(volume);
    inode.store(volume, &handle, &mut state)
}

/// Removes a name that is not a directory.
pub fn unlink(volume: &Arc<Volume>, parent: &Arc<Inode>, name: &[u8]) -> Result<()> {
    volume.check_writable()?;
    check_directory(parent)?;
    check_name(name, VfsError::IsDirectory)?;
    let inode = {
        let _names = parent.namespace.write();
        check_parent(parent, true)?;
        let (ino, _) = directory::lookup(volume, parent, name)?.ok_or(VfsError::NotFound)?;
        let inode = volume.inode(ino)?;
        if inode.kind == FileKind::Directory {
            return Err(VfsError::IsDirectory.into());
        }
        check_victim(&inode)?;
        let handle = volume.begin(volume.credits.unlink)?;
        directory::remove(volume, &handle, parent, name)?;
        touch_parent(volume, &handle, parent, 0)?;
        drop_link(volume, &handle, &inode)?;
        inode
    };
    volume.reap(&inode)
}

/// Removes an empty directory.
pub fn rmdir(volume: &Arc<Volume>, parent: &Arc<Inode>, name: &[u8]) -> Result<()> {
    volume.check_writable()?;
    check_directory(parent)?;
    let dots = if name == b".." { VfsError::NotEmpty } else { VfsError::Invalid("`.` cannot be removed") };
    check_name(name, dots)?;
    let inode = locks::lock_entry(volume, parent, name, |inode| {
        check_parent(parent, true)?;
        check_directory(inode)?;
        check_victim(inode)?;
        if !directory::is_empty(volume, inode)? {
            return Err(VfsError::NotEmpty.into());
        }
        let handle = volume.begin(volume.credits.unlink)?;
        directory::remove(volume, &handle, parent, name)?;
        touch_parent(volume, &handle, parent, -1)?;
        drop_directory(volume, &handle, inode)?;
        Ok(inode.clone())
    })?;
    volume.reap(&inode)
}

/// One name fewer; without names the inode becomes an orphan.
fn drop_link(volume: &Arc<Volume>, handle: &Handle, inode: &Inode) -> Result<()> {
    let mut state = inode.state.write();
    state.record.links = state.record.links.saturating_sub(1);
    state.record.ctime = attributes::now(volume);
    if state.record.links == 0 {
        volume.orphans.add(volume, handle, inode.ino)?;
    }
    inode.store(volume, handle, &mut state)
}

/// The directory's last name is gone.
fn drop_directory(volume: &Arc<Volume>, handle: &Handle, inode: &Inode) -> Result<()> {
    let mut state = inode.state.write();
    let now = attributes::now(volume);
    state.record.links = 0;
    state.record.ctime = now;
    volume.orphans.add(volume, handle, inode.ino)?;
    inode.store(volume, handle, &mut state)
}

/// A directory's entries changed: its times move, and its link count with its subdirectories.
pub(crate) fn touch_parent(volume: &Arc<Volume>, handle: &Handle, parent: &Inode, subdirectories: i32) -> Result<()> {
    let mut state = parent.state.write();
    let now = attributes::now(volume);
    state.record.mtime = now;
    state.record.ctime = now;
    state.record.version = state.record.version.wrapping_add(1);
    volume.count_subdirectories(&mut state, subdirectories);
    parent.store(volume, handle, &mut state)
}

/// Number of the directory above `inode`.
fn parent_of(volume: &Arc<Volume>, inode: &Arc<Inode>) -> Result<Ino> {
    Ok(directory::lookup(volume, inode, b"..")?.ok_or(VfsError::NotFound)?.0)
}
