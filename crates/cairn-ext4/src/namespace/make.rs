//! Creates an inode, from its number to its record.

use std::sync::Arc;

use cairn_cache::durability::Ledger;
use cairn_vfs::new_inode::{Inheritance, Ownership};
use cairn_vfs::{Caller, FileKind, NewInode};

use crate::error::Result;
use crate::format::inode::{Inode as Record, InodeFlags};
use crate::inode::{Inode, attributes, directory};
use crate::txn::Handle;
use crate::volume::Volume;
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
    volume: &Arc<Volume>,
    parent: &Inode,
    kind: FileKind,
    permissions: u32,
    caller: &Caller,
) -> Result<Ownership> {
    let default_acl = xattr_ops::default_acl(volume, parent)?;
    let state = parent.state.read();
    let inheritance = Inheritance {
        permissions: state.record.mode.into(),
        gid: state.record.gid,
        group_of_parent: volume.options.group_of_parent(),
        default_acl,
    };
    Ok(Ownership::of_new(&inheritance, kind, permissions, caller))
}

/// Allocates and writes a new inode, and takes a reference. It has one link (a directory two) and
/// no name yet.
pub(super) fn inode(
    volume: &Arc<Volume>,
    handle: &mut Handle,
    parent: &Arc<Inode>,
    new: &NewInode<'_>,
    ownership: &Ownership,
) -> Result<Arc<Inode>> {
    let kind = new.kind();
    let ino = volume.space.allocate_inode(handle, parent.ino, kind == FileKind::Directory)?;
    let generation = u32::try_from(volume.runtime.random() & 0xffff_ffff).unwrap_or(0);
    let mut record = Record::new(generation, &volume.layout);
    let now = attributes::now(volume);
    record.mode = mode_of(kind) | ownership.permissions;
    (record.atime, record.mtime, record.ctime, record.crtime) = (now, now, now, now);
    record.uid = ownership.uid;
    record.gid = ownership.gid;
    record.links = if kind == FileKind::Directory { 2 } else { 1 };
    record.flags |= parent.state.read().record.flags & inherited(kind);
    match new {
        NewInode::BlockDevice(device) | NewInode::CharDevice(device) => {
            let (major, minor) = attributes::decode_device(*device);
            record.set_device(major, minor);
        }
        NewInode::Symlink(target) if target.len() <= FAST_SYMLINK_MAX => {
            record.block[..target.len()].copy_from_slice(target);
            record.size = target.len() as u64;
        }
        NewInode::Regular | NewInode::Directory | NewInode::Symlink(_) => {
            volume.init_block_map(&mut record)
        }
        NewInode::Fifo | NewInode::Socket => {}
    }
    let location = volume.locate(ino)?;
    let inode = volume.adopt(Inode::new(
        &volume.pages,
        &volume.layout,
        ino,
        location,
        kind,
        record,
        Ledger::fresh(&volume.flushes),
    ))?;
    if let Err(error) = fill(volume, handle, parent, &inode, new, ownership) {
        undo(volume, handle, &inode)?;
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
    volume: &Arc<Volume>,
    handle: &Handle,
    parent: &Arc<Inode>,
    inode: &Arc<Inode>,
    new: &NewInode<'_>,
    ownership: &Ownership,
) -> Result<()> {
    match new {
        NewInode::Directory => directory::init(volume, handle, inode, parent.ino)?,
        NewInode::Symlink(target) if target.len() > FAST_SYMLINK_MAX => {
            crate::inode::symlink::write(volume, handle, inode, target)?;
        }
        _ => {}
    }
    xattr_ops::store_acls(volume, handle, inode, ownership)?;
    let mut state = inode.state.write();
    inode.write_inode(volume, handle, &mut state)
}

/// Undoes the creation after a failure, in the same handle if the credits suffice.
pub(super) fn undo(volume: &Arc<Volume>, handle: &mut Handle, inode: &Arc<Inode>) -> Result<()> {
    {
        let mut state = inode.state.write();
        state.record.links = 0;
        volume.ensure_credits(handle, volume.credits.orphan + volume.credits.attributes)?;
        volume.orphans.add(volume, handle, inode.ino)?;
        inode.write_inode(volume, handle, &mut state)?;
    }
    volume.release_later(inode.ino);
    Ok(())
}
