//! Operations on names: create, link, unlink, rmdir, rename.
//!
//! [`cairn_vfs::namespace`] makes the checks and takes the locks. Then each operation makes its
//! changes in one handle, so that after a crash all of them or none are there.

use std::sync::Arc;

use cairn_base::FileBlock;
use cairn_vfs::name::NAME_MAX;
use cairn_vfs::namespace::{self, check_parent};
use cairn_vfs::{Caller, Error as VfsError, FileKind, NewInode, RenameMode};

use crate::corrupt::Corrupt;
use crate::error::{Error, Result};
use crate::inode::attributes;
use crate::inode::{Inode, directory};
use crate::op::Operations;

mod links;
mod make;
mod names;
mod rename;

use links::{drop_directory, drop_link};
use names::Names;

pub(crate) use links::touch_parent;

/// Finds a name, including `.` and `..`, and takes a reference.
///
/// # Errors
/// [`VfsError::NotFound`] or [`VfsError::NotDirectory`]; the directory or the inode is damaged, or
/// the device failed.
pub(crate) fn lookup(
    ops: &Arc<Operations>,
    parent: &Arc<Inode>,
    name: &[u8],
) -> Result<Arc<Inode>> {
    if name == b"." {
        // `.` works for every inode that can have a name, because front-ends resolve file handles
        // by it.
        let is_reserved =
            parent.ino.get() < ops.layout.first_ino.into() && parent.ino != crate::ROOT_INO;
        return if is_reserved { Err(VfsError::Stale.into()) } else { ops.acquire(parent.ino) };
    }
    parent.kind.check_directory()?;
    if name.len() > NAME_MAX {
        return Err(VfsError::NameTooLong.into());
    }
    let _names = parent.namespace.read();
    let (ino, kind) = directory::lookup(ops, parent, name)?.ok_or(VfsError::NotFound)?;
    ops.acquire_as(ino, kind).map_err(|error| match error {
        // A name is removed before its inode, under the lock held here. The parent of a removed
        // directory may be gone.
        Error::Vfs(VfsError::Stale) if name != b".." => {
            let (block, what) = (FileBlock(0), "an entry leads to an inode that is not in use");
            Corrupt::Directory { ino: parent.ino, block, offset: 0, what, value: ino.get() }.into()
        }
        other => other,
    })
}

/// Creates an entry of any kind and takes a reference.
///
/// # Errors
/// As [`cairn_vfs::namespace::create`]; the volume is full or has no free inode.
pub(crate) fn create(
    ops: &Arc<Operations>,
    parent: &Arc<Inode>,
    name: &[u8],
    new: &NewInode<'_>,
    permissions: u32,
    caller: &Caller,
) -> Result<Arc<Inode>> {
    ops.check_writable()?;
    namespace::create(&Names(ops), parent, name, new, |name| {
        let kind = new.kind();
        if kind == FileKind::Directory && !parent.may_gain_subdirectory(&ops.layout) {
            return Err(VfsError::TooManyLinks.into());
        }
        let ownership = make::ownership(ops, parent, kind, permissions, caller)?;
        let mut handle = ops.begin(ops.credits.create)?;
        let inode = make::inode(ops, &mut handle, parent, new, &ownership)?;
        if let Err(error) = directory::add(ops, &handle, parent, name, inode.ino, kind) {
            make::undo(ops, &mut handle, &inode)?;
            return Err(error);
        }
        touch_parent(ops, &handle, parent, i32::from(kind == FileKind::Directory))?;
        handle.finish();
        Ok(inode)
    })
}

/// Creates a regular file without a name, with an orphan record until it is linked, and takes a
/// reference.
///
/// # Errors
/// [`VfsError::NotDirectory`], or [`VfsError::NotFound`] if the directory was removed; the volume
/// is full or has no free inode.
pub(crate) fn tmpfile(
    ops: &Arc<Operations>,
    parent: &Arc<Inode>,
    permissions: u32,
    caller: &Caller,
) -> Result<Arc<Inode>> {
    ops.check_writable()?;
    check_parent(&**parent, false)?;
    let ownership = make::ownership(ops, parent, FileKind::Regular, permissions, caller)?;
    let mut handle = ops.begin(ops.credits.create)?;
    let inode = make::inode(ops, &mut handle, parent, &NewInode::Regular, &ownership)?;
    let mut state = inode.state.write();
    state.record.links = 0;
    ops.orphans.add(ops, &handle, inode.ino)?;
    inode.write_inode(ops, &handle, &mut state)?;
    drop(state);
    handle.finish();
    Ok(inode)
}

/// Adds a hard link and takes a reference.
///
/// # Errors
/// As [`cairn_vfs::namespace::link`]; the volume is full.
pub(crate) fn link(
    ops: &Arc<Operations>,
    inode: &Arc<Inode>,
    parent: &Arc<Inode>,
    name: &[u8],
) -> Result<()> {
    ops.check_writable()?;
    namespace::link(&Names(ops), inode, parent, name, |name| {
        let handle = ops.begin(ops.credits.link)?;
        directory::add(ops, &handle, parent, name, inode.ino, inode.kind)?;
        touch_parent(ops, &handle, parent, 0)?;
        let mut state = inode.state.write();
        if state.record.links == 0 && ops.orphans.remove(ops, &handle, inode.ino)? {
            state.record.dtime = 0;
        }
        state.record.links += 1;
        state.record.ctime = attributes::now(ops);
        inode.write_inode(ops, &handle, &mut state)?;
        handle.finish();
        Ok(())
    })
}

/// Removes a name that is not a directory's.
///
/// # Errors
/// As [`cairn_vfs::namespace::unlink`].
pub(crate) fn unlink(ops: &Arc<Operations>, parent: &Arc<Inode>, name: &[u8]) -> Result<()> {
    ops.check_writable()?;
    let inode = namespace::unlink(&Names(ops), parent, name, |_, inode| {
        let handle = ops.begin(ops.credits.unlink)?;
        directory::remove(ops, &handle, parent, name)?;
        touch_parent(ops, &handle, parent, 0)?;
        drop_link(ops, &handle, inode)?;
        handle.finish();
        Ok(())
    })?;
    ops.evict_inode(&inode)
}

/// Removes an empty directory.
///
/// # Errors
/// As [`cairn_vfs::namespace::rmdir`].
pub(crate) fn rmdir(ops: &Arc<Operations>, parent: &Arc<Inode>, name: &[u8]) -> Result<()> {
    ops.check_writable()?;
    let inode = namespace::rmdir(&Names(ops), parent, name, |_, inode| {
        let handle = ops.begin(ops.credits.unlink)?;
        directory::remove(ops, &handle, parent, name)?;
        touch_parent(ops, &handle, parent, -1)?;
        drop_directory(ops, &handle, inode)?;
        handle.finish();
        Ok(())
    })?;
    ops.evict_inode(&inode)
}

/// Renames; see [`RenameMode`].
///
/// # Errors
/// As [`cairn_vfs::namespace::rename`]; the volume is full.
pub(crate) fn rename(
    ops: &Arc<Operations>,
    parent: &Arc<Inode>,
    name: &[u8],
    new_parent: &Arc<Inode>,
    new_name: &[u8],
    mode: RenameMode,
) -> Result<()> {
    ops.check_writable()?;
    let replaced = namespace::rename(&Names(ops), (parent, name), (new_parent, new_name), mode)?;
    replaced.map_or(Ok(()), |inode| ops.evict_inode(&inode))
}
