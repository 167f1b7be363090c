//! A new inode: number, node, record, contents.

use std::sync::Arc;

use cairn_vfs::acl::Acl;
use cairn_vfs::{Caller, Error as VfsError, FileKind, NewInode};

use super::SYMLINK_MAX;
use crate::dir::edit;
use crate::error::Result;
use crate::format::Nid;
use crate::format::features::Features;
use crate::format::inode::{EXTRA_SIZE, FileFlags, InlineFlags, Inode as Record};
use crate::format::units::BLOCK_SIZE;
use crate::inode::{Inode, attributes, delete, tree};
use crate::node::{NodeGuard, Owner};
use crate::op::Op;
use crate::volume::Volume;
use crate::xattr;

/// Blocks that a new inode may take: its own, one of attributes, one of contents.
pub const BLOCKS: u64 = 3;

/// Words for inline attributes of new inodes, as Linux has it without an option.
const INLINE_XATTR_WORDS: u16 = 50;
/// Set-group-id.
const SET_GID: u32 = 0o2000;

/// Flags that a new inode takes from its directory.
const INHERITED: FileFlags = FileFlags::SYNC
    .union(FileFlags::NODUMP)
    .union(FileFlags::NOATIME)
    .union(FileFlags::DIRSYNC)
    .union(FileFlags::PROJINHERIT)
    .union(FileFlags::NOCOMP);

/// Kind of what is to be made.
pub fn kind(new: &NewInode<'_>) -> FileKind {
    match new {
        NewInode::Regular => FileKind::Regular,
        NewInode::Directory => FileKind::Directory,
        NewInode::Symlink(_) => FileKind::Symlink,
        NewInode::BlockDevice(_) => FileKind::BlockDevice,
        NewInode::CharDevice(_) => FileKind::CharDevice,
        NewInode::Fifo => FileKind::Fifo,
        NewInode::Socket => FileKind::Socket,
    }
}

/// What can be refused before anything is allocated.
pub fn check(new: &NewInode<'_>) -> Result<()> {
    match new {
        NewInode::Symlink(b"") => Err(VfsError::NotFound.into()),
        NewInode::Symlink(target) if target.len() > SYMLINK_MAX => Err(VfsError::NameTooLong.into()),
        NewInode::Symlink(target) if target.contains(&0) => {
            Err(VfsError::Invalid("a symlink target holds no NUL").into())
        }
        _ => Ok(()),
    }
}

/// Owner, group, mode and inherited ACLs of a new inode.
pub struct Ownership {
    uid: u32,
    gid: u32,
    permissions: u32,
    access: Option<Acl>,
    default: Option<Acl>,
}

impl Ownership {
    /// What a new inode of `kind` in `parent` gets, as Linux decides it.
    pub fn of_new(
        parent: &Record,
        parent_default: Option<&Acl>,
        kind: FileKind,
        permissions: u32,
        caller: &Caller,
    ) -> Self {
        let from_parent = u32::from(parent.permissions) & SET_GID != 0;
        let gid = if from_parent { parent.gid } else { caller.gid };
        let mut bits = permissions & 0o7777;
        if from_parent && kind == FileKind::Directory {
            bits |= SET_GID;
        }
        let (bits, access, default) = match parent_default {
            _ if kind == FileKind::Symlink => (0o777, None, None),
            Some(acl) => Acl::inherit(acl, kind.mode_bits() | bits),
            None => (bits & !(caller.umask & 0o777), None, None),
        };
        let default = default.filter(|_| kind == FileKind::Directory);
        Self { uid: caller.uid, gid, permissions: bits & 0o7777, access, default }
    }
}

/// Makes an inode; takes a reference. It has one link (a directory two), but no entry yet: `name` is what it will have.
pub fn inode(
    op: &mut Op<'_>,
    parent: &Arc<Inode>,
    name: Option<&[u8]>,
    new: &NewInode<'_>,
    ownership: &Ownership,
) -> Result<Arc<Inode>> {
    let (volume, kind) = (op.volume, kind(new));
    let nid = op.store.nat.allocate()?;
    let owner = if kind == FileKind::Directory { Owner::Directory } else { Owner::Other };
    let node = op.store.nodes.create(nid, nid, 0, owner, &mut op.promise);
    let node = node.inspect_err(|_| op.store.nat.give_back(nid))?;
    let record = record(volume, &parent.record(), parent.nid, name, new, ownership);
    let inode = {
        let mut guard = node.modify();
        fill_node(&record, new, &mut guard);
        record.encode_into(&mut guard);
        Inode::new(volume, nid, record, &guard)
    };
    let inode = adopt(volume, inode)?;
    if let Err(error) = fill(op, parent, &inode, new, ownership) {
        undo(op, &inode)?;
        return Err(error);
    }
    Ok(inode)
}

fn adopt(volume: &Volume, inode: Inode) -> Result<Arc<Inode>> {
    let ino = inode.nid.ino();
    // Whoever was told of the number before it was free again has let go of it: it had no links.
    volume.inodes.remove(ino);
    let inode = volume.inodes.get_or_try_insert(ino, || Ok::<_, crate::Error>(inode))?;
    volume.inodes.acquire(ino);
    Ok(inode)
}

fn record(
    volume: &Volume,
    above: &Record,
    parent: Nid,
    name: Option<&[u8]>,
    new: &NewInode<'_>,
    ownership: &Ownership,
) -> Record {
    let features = volume.layout.features;
    let (kind, now) = (kind(new), attributes::now(volume));
    let extra_size = if features.contains(Features::EXTRA_ATTR) { EXTRA_SIZE } else { 0 };
    let mut record = Record::new(kind, ownership.permissions as u16, features, extra_size);
    record.generation = volume.runtime.random() as u32;
    (record.uid, record.gid) = (ownership.uid, ownership.gid);
    (record.atime, record.mtime, record.ctime) = (now, now, now);
    record.flags = above.flags & inherited(kind);
    if let Some(extra) = &mut record.extra {
        if features.contains(Features::FLEXIBLE_INLINE_XATTR) {
            extra.inline_xattr_size = INLINE_XATTR_WORDS;
        }
        if features.contains(Features::INODE_CRTIME) {
            extra.crtime = now;
        }
        let project = above.extra.map_or(0, |above| above.projid);
        if features.contains(Features::PROJECT_QUOTA) && above.flags.contains(FileFlags::PROJINHERIT) {
            extra.projid = project;
        }
    }
    record.inline.insert(InlineFlags::XATTR);
    match new {
        NewInode::Directory => {
            record.links = 2;
            record.flags |= FileFlags::INDEX;
            record.current_depth = 1;
            record.inline.insert(InlineFlags::DENTRY);
            record.size = record.max_inline_data() as u64;
        }
        NewInode::Regular => {
            record.inline.insert(InlineFlags::DATA);
            record.advise |= volume.superblock.advise_for(name.unwrap_or_default());
        }
        NewInode::Symlink(target) => {
            record.size = target.len() as u64;
            if target.len() <= record.max_inline_data() {
                record.inline.insert(InlineFlags::DATA | InlineFlags::DATA_EXIST);
            }
        }
        _ => {}
    }
    record.pino = parent;
    record.name = name.unwrap_or_default().to_vec();
    record
}

fn inherited(kind: FileKind) -> FileFlags {
    match kind {
        FileKind::Directory => INHERITED,
        FileKind::Regular => INHERITED - FileFlags::DIRSYNC - FileFlags::PROJINHERIT,
        _ => FileFlags::NODUMP | FileFlags::NOATIME,
    }
}

/// What stands in the node besides the record.
fn fill_node(record: &Record, new: &NewInode<'_>, node: &mut NodeGuard<'_>) {
    match new {
        NewInode::BlockDevice(device) | NewInode::CharDevice(device) => record.set_device(node, *device),
        NewInode::Symlink(target) if record.inline.contains(InlineFlags::DATA) => {
            let range = record.inline_data_range();
            node[range][..target.len()].copy_from_slice(target);
        }
        _ => {}
    }
}

fn fill(
    op: &mut Op<'_>,
    parent: &Arc<Inode>,
    inode: &Arc<Inode>,
    new: &NewInode<'_>,
    ownership: &Ownership,
) -> Result<()> {
    match new {
        NewInode::Directory => edit::init(op, inode, parent.nid)?,
        NewInode::Symlink(target) if !inode.is_inline() => {
            tree::make(op, inode, 0)?.reserve(op, inode);
            // Like entries it waits in memory for the next checkpoint: a link cannot be fsynced otherwise.
            let zeros = Arc::from(vec![0; BLOCK_SIZE]);
            let copy = |block: &mut [u8]| block[..target.len()].copy_from_slice(target);
            inode.entries.change(0, zeros, &op.volume.dirty_entries, copy);
            op.volume.dirty.insert(inode);
        }
        _ => {}
    }
    xattr::edit::store_acls(op, inode, ownership.access.as_ref(), ownership.default.as_ref())
}

/// Something failed after the number was taken: gives everything back.
pub fn undo(op: &mut Op<'_>, inode: &Arc<Inode>) -> Result<()> {
    inode.state.write().record.links = 0;
    delete::erase(op, inode)
}
