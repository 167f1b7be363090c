//! Names: create, link, unlink, rmdir, rename.
//!
//! First come the checks and locks of all formats ([`cairn_vfs::namespace`]). Then all changes are
//! made in one operation, so after a crash there are all of them or none.

use std::sync::Arc;

use cairn_vfs::namespace::{self, check_parent};
use cairn_vfs::new_inode::Ownership;
use cairn_vfs::{Caller, FileKind, Name, NewInode, RenameMode};

use crate::corrupt::Corrupt;
use crate::dir::{edit, lookup};
use crate::error::{Error, Result};
use crate::format::inode::Advise;
use crate::inode::{Inode, lifetime, proof};
use crate::inodes::Inodes;
use crate::op::{Op, Operations};
use parent::named;
use record::{change, drop_link, touch_parent};

mod make;
mod names;
pub(crate) mod parent;
mod record;
mod rename;

/// The inode that a name leads to. The reference is taken while the names are locked, so the inode
/// cannot be deleted in between.
///
/// # Errors
/// There is no such name; the entry leads to no inode, the volume is damaged, or the device failed.
pub(crate) fn lookup(inodes: &Inodes, parent: &Arc<Inode>, name: &[u8]) -> Result<Arc<Inode>> {
    let _names = parent.namespace.read();
    let (child, kind) = match name {
        b"." => (parent.nid, None),
        _ => lookup::find(&inodes.disk, parent, name)?.ok_or(cairn_vfs::Error::NotFound)?,
    };
    let checked = inodes.inode(child.ino()).and_then(|inode| match name {
        b"." | b".." => Ok(()),
        _ => check_named(inodes, &inode, kind),
    });
    let found = checked.and_then(|()| inodes.acquire(child.ino())).inspect(|inode| {
        if parent::is_lost(inode) {
            parent::remember(inode, parent.nid, name);
        }
    });
    found.map_err(|error| match error {
        // The parent of a removed directory may be gone.
        Error::Vfs(cairn_vfs::Error::Stale) if name != b".." => {
            let what = "an entry leads to an inode that does not exist";
            let (block, slot, value) = (0, 0, child.get().into());
            Corrupt::Directory { ino: parent.nid, block, slot, what, value }.into()
        }
        other => other,
    })
}

/// Checks an inode against an entry that leads to it.
///
/// # Errors
/// The inode has no link, or another type than the entry and its contents; or the device failed.
fn check_named(inodes: &Inodes, inode: &Inode, kind: Option<FileKind>) -> Result<()> {
    if inode.state.read().record.links == 0 {
        let expected = "a name leads to the inode";
        return Err(Corrupt::Inode { ino: inode.nid, field: "i_links", value: 0, expected }.into());
    }
    match kind.filter(|kind| *kind != inode.kind) {
        Some(kind) => proof::check_type(&inodes.disk, inode.nid, kind),
        None => Ok(()),
    }
}

/// Makes an entry of any kind. Takes a reference.
///
/// # Errors
/// The name exists or is impossible; no space; the volume cannot be written, is damaged, or the
/// device failed.
pub(crate) fn create(
    ops: &Operations,
    parent: &Arc<Inode>,
    name: &[u8],
    new: &NewInode<'_>,
    permissions: u32,
    caller: &Caller,
) -> Result<Arc<Inode>> {
    ops.mount.check_writable()?;
    namespace::create(ops, parent, name, new, |name| {
        edit::hash_of_new(&ops.disk, parent, &name)?;
        let ownership = make::ownership(&ops.disk, parent, new.kind(), permissions, caller)?;
        ops.change(make::BLOCKS + edit::BLOCKS, |op| create_in(op, parent, name, new, &ownership))
    })
}

fn create_in(
    op: &mut Op<'_>,
    parent: &Arc<Inode>,
    name: Name<'_>,
    new: &NewInode<'_>,
    ownership: &Ownership,
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
pub(crate) fn tmpfile(
    ops: &Operations,
    parent: &Arc<Inode>,
    permissions: u32,
    caller: &Caller,
) -> Result<Arc<Inode>> {
    ops.mount.check_writable()?;
    check_parent(&**parent, false)?;
    parent.check_unencrypted(&ops.disk)?;
    let ownership = make::ownership(&ops.disk, parent, FileKind::Regular, permissions, caller)?;
    ops.change(make::BLOCKS, |op| {
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
pub(crate) fn link(
    ops: &Operations,
    inode: &Arc<Inode>,
    parent: &Arc<Inode>,
    name: &[u8],
) -> Result<()> {
    ops.mount.check_writable()?;
    namespace::link(ops, inode, parent, name, |name| {
        edit::hash_of_new(&ops.disk, parent, &name)?;
        ops.change(edit::BLOCKS, |op| {
            edit::add(op, parent, name, inode.nid, inode.kind)?;
            touch_parent(op, parent, 0);
            let now = ops.inodes.now();
            let before = inode.record();
            parent::remember(inode, before.pino, &before.name);
            parent::changed(op, inode);
            change(op, inode, |record| {
                if record.links == 0 {
                    op.store.checkpoints.orphans.remove(inode.nid);
                }
                record.links += 1;
                record.ctime = now;
                named(record, parent.nid, name);
                // Roll-forward recovers one name only.
                record.advise.insert(Advise::LOST_PINO);
            });
            Ok(())
        })
    })
}

/// Removes a name that is not a directory.
///
/// # Errors
/// There is no such name, flags forbid it; the volume cannot be written, is damaged, or the device
/// failed.
pub(crate) fn unlink(ops: &Operations, parent: &Arc<Inode>, name: &[u8]) -> Result<()> {
    ops.mount.check_writable()?;
    let inode = namespace::unlink(ops, parent, name, |found, inode| {
        ops.change(0, |op| {
            drop_link(op, inode)?;
            edit::remove(op, parent, found)?;
            touch_parent(op, parent, 0);
            Ok(())
        })
    })?;
    lifetime::evict_inode(ops, &inode)
}

/// Removes an empty directory.
///
/// # Errors
/// As [`unlink`]; or the name is not a directory, or the directory is not empty.
pub(crate) fn rmdir(ops: &Operations, parent: &Arc<Inode>, name: &[u8]) -> Result<()> {
    ops.mount.check_writable()?;
    let inode = namespace::rmdir(ops, parent, name, |found, inode| {
        ops.change(0, |op| {
            drop_link(op, inode)?;
            edit::remove(op, parent, found)?;
            touch_parent(op, parent, -1);
            Ok(())
        })
    })?;
    lifetime::evict_inode(ops, &inode)
}

/// Renames; see [`RenameMode`].
///
/// # Errors
/// A name is missing, exists or is impossible; the move would make a loop; no space; the volume
/// cannot be written, is damaged, or the device failed.
pub(crate) fn rename(
    ops: &Operations,
    parent: &Arc<Inode>,
    name: &[u8],
    new_parent: &Arc<Inode>,
    new_name: &[u8],
    mode: RenameMode,
) -> Result<()> {
    ops.mount.check_writable()?;
    let replaced = namespace::rename(ops, (parent, name), (new_parent, new_name), mode)?;
    replaced.map_or(Ok(()), |inode| lifetime::evict_inode(ops, &inode))
}
