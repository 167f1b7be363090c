//! Creates an inode, from its number to its record.

use std::sync::Arc;

use cairn_cache::durability::Ledger;
use cairn_vfs::new_inode::{Inheritance, Ownership};
use cairn_vfs::{Caller, FileKind, NewInode};

use crate::error::Result;
use crate::format::inode::{Inode as Record, InodeFlags};
use crate::inode::{Inode, attributes, directory};
use crate::op::Operations;
use crate::txn::Handle;
use crate::xattr_ops;

/// A shorter target of a symbolic link is stored in the inode's block map, with a NUL.
const FAST_SYMLINK_MAX: usize = 59;

/// Flags that a new inode inherits from its directory.
const INHERITED: InodeFlags = InodeFlags::SYNC
    .union(InodeFlags::NODUMP)
    .union(InodeFlags::NOATIME)
    .union(InodeFlags::PROJINHERIT)
    .union(InodeFlags::DIRSYNC);

/// The owner, group, permissions and ACLs of a new inode of `kind` in `parent`, as in Linux.
pub(super) fn ownership(
    ops: &Operations,
    parent: &Inode,
    kind: FileKind,
    permissions: u32,
    caller: &Caller,
) -> Result<Ownership> {
    let default_acl = xattr_ops::default_acl(ops, parent)?;
    let state = parent.state.read();
    let inheritance = Inheritance {
        permissions: state.record.mode.into(),
        gid: state.record.gid,
        group_of_parent: ops.options.group_of_parent(),
        default_acl,
    };
    Ok(Ownership::of_new(&inheritance, kind, permissions, caller))
}

/// Allocates and writes a new inode, and takes a reference. It has one link (a directory two) and
/// no name yet.
pub(super) fn inode(
    ops: &Arc<Operations>,
    handle: &mut Handle,
    parent: &Arc<Inode>,
    new: &NewInode<'_>,
    ownership: &Ownership,
) -> Result<Arc<Inode>> {
    let kind = new.kind();
    let ino = ops.space.allocate_inode(handle, parent.ino, kind == FileKind::Directory)?;
    let generation = u32::try_from(ops.runtime.random() & 0xffff_ffff).unwrap_or(0);
    let mut record = Record::new(generation, &ops.layout);
    let now = attributes::now(ops);
    record.mode = mode_of(kind) | ownership.permissions;
    (record.atime, record.mtime, record.ctime, record.crtime) = (now, now, now, now);
    record.uid = ownership.uid;
    record.gid = ownership.gid;
    record.links = if kind == FileKind::Directory { 2 } else { 1 };
    record.flags |= parent.state.read().record.flags & inherited(kind);
    match new {
        NewInode::BlockDevice(device) | NewInode::CharDevice(device) => {
            let (major, minor) = cairn_vfs::decode_device(*device);
            record.set_device(major, minor);
        }
        NewInode::Symlink(target) if target.len() <= FAST_SYMLINK_MAX => {
            record.block[..target.len()].copy_from_slice(target);
            record.size = target.len() as u64;
        }
        NewInode::Regular | NewInode::Directory | NewInode::Symlink(_) => {
            crate::inode::init_block_map(&ops.layout, &mut record)
        }
        NewInode::Fifo | NewInode::Socket => {}
    }
    let location = ops.locate(ino)?;
    let inode = ops.adopt(Inode::new(
        &ops.pages,
        &ops.layout,
        ino,
        location,
        kind,
        record,
        Ledger::fresh(&ops.flushes),
    ))?;
    if let Err(error) = fill(ops, handle, parent, &inode, new, ownership) {
        undo(ops, handle, &inode)?;
        return Err(error);
    }
    Ok(inode)
}

/// The file type bits of a mode.
fn mode_of(kind: FileKind) -> u16 {
    u16::try_from(kind.mode_bits()).expect("modes have 16 bits")
}

fn inherited(kind: FileKind) -> InodeFlags {
    match kind {
        FileKind::Directory => INHERITED,
        FileKind::Regular => INHERITED - InodeFlags::DIRSYNC,
        _ => InodeFlags::NODUMP | InodeFlags::NOATIME,
    }
}

fn fill(
    ops: &Operations,
    handle: &Handle,
    parent: &Arc<Inode>,
    inode: &Arc<Inode>,
    new: &NewInode<'_>,
    ownership: &Ownership,
) -> Result<()> {
    match new {
        NewInode::Directory => directory::init(ops, handle, inode, parent.ino)?,
        NewInode::Symlink(target) if target.len() > FAST_SYMLINK_MAX => {
            crate::inode::symlink::write(ops, handle, inode, target)?;
        }
        _ => {}
    }
    xattr_ops::store_acls(ops, handle, inode, ownership)?;
    let mut state = inode.state.write();
    inode.write_inode(ops, handle, &mut state)
}

/// Undoes the creation after a failure, in the same handle if the credits suffice.
pub(super) fn undo(ops: &Arc<Operations>, handle: &mut Handle, inode: &Arc<Inode>) -> Result<()> {
    {
        let mut state = inode.state.write();
        state.record.links = 0;
        ops.ensure_credits(handle, ops.credits.orphan + ops.credits.attributes)?;
        ops.orphans.add(ops, handle, inode.ino)?;
        inode.write_inode(ops, handle, &mut state)?;
    }
    ops.release_later(inode.ino);
    Ok(())
}
