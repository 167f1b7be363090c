//! A new inode: number, node, record, contents.

use std::sync::Arc;

use cairn_cache::block::Image;
use cairn_cache::durability::Ledger;
use cairn_vfs::new_inode::{Inheritance, Ownership};
use cairn_vfs::{Caller, FileKind, Name, NewInode};

use crate::dir::edit;
use crate::disk::Disk;
use crate::error::Result;
use crate::format::Nid;
use crate::format::features::Features;
use crate::format::inode::{EXTRA_SIZE, FileFlags, InlineFlags, Inode as Record};
use crate::format::units::BLOCK_SIZE;
use crate::inode::{Inode, delete, tree};
use crate::inodes::Inodes;
use crate::node::{NodeGuard, Owner};
use crate::op::Op;
use crate::xattr;

/// Blocks that a new inode may take: its own, one of attributes, one of contents.
pub(super) const BLOCKS: u64 = 3;

/// Words for inline attributes of new inodes, as Linux has it without an option.
const INLINE_XATTR_WORDS: u16 = 50;

/// Flags that a new inode takes from its directory.
const INHERITED: FileFlags = FileFlags::SYNC
    .union(FileFlags::NODUMP)
    .union(FileFlags::NOATIME)
    .union(FileFlags::DIRSYNC)
    .union(FileFlags::PROJINHERIT)
    .union(FileFlags::NOCOMP);

/// Owner, group and permissions of a new inode of `kind` in `parent`, as in Linux.
///
/// # Errors
/// The default ACL of `parent` is damaged, or the device failed.
pub(super) fn ownership(
    disk: &Disk,
    parent: &Inode,
    kind: FileKind,
    permissions: u32,
    caller: &Caller,
) -> Result<Ownership> {
    let default_acl = xattr::edit::default_acl(disk, parent)?;
    let state = parent.state.read();
    let permissions_above = state.record.permissions.into();
    let inheritance = Inheritance {
        permissions: permissions_above,
        gid: state.record.gid,
        group_of_parent: false,
        default_acl,
    };
    Ok(Ownership::of_new(&inheritance, kind, permissions, caller))
}

/// Makes an inode and takes a reference. It has one link (a directory two), but no entry yet: the
/// caller adds the entry `name`.
pub(super) fn inode(
    op: &mut Op<'_>,
    parent: &Arc<Inode>,
    name: Option<Name<'_>>,
    new: &NewInode<'_>,
    ownership: &Ownership,
) -> Result<Arc<Inode>> {
    let (inodes, kind) = (op.inodes, new.kind());
    let nid = op.store.allocate_nid()?;
    let owner = if kind == FileKind::Directory { Owner::Directory } else { Owner::Other };
    let node = op.store.nodes.create(nid, nid, 0, owner, &mut op.reservation);
    let node = node.inspect_err(|_| op.store.nat.give_back(nid))?;
    let inherited = parent.with_record(Inherited::of);
    let record = record(inodes, &inherited, parent.nid, name, new, ownership);
    let inode = {
        let mut guard = node.modify();
        fill_node(&record, new, &mut guard);
        record.encode_into(&mut guard);
        Inode::new(inodes, nid, record, &guard, Ledger::fresh(&inodes.disk.flushes))
    };
    let inode = adopt(inodes, inode)?;
    if let Err(error) = fill(op, parent, &inode, new, ownership) {
        undo(op, &inode)?;
        return Err(error);
    }
    Ok(inode)
}

fn adopt(inodes: &Inodes, inode: Inode) -> Result<Arc<Inode>> {
    let ino = inode.nid.ino();
    // An inode in memory with this number is stale: it had no links and no references.
    inodes.table.remove(ino);
    let inode = inodes.table.get_or_try_insert(ino, || Ok::<_, crate::Error>(inode))?;
    inodes.table.acquire(ino);
    Ok(inode)
}

/// What a new inode's record takes from the record of its directory.
struct Inherited {
    flags: FileFlags,
    project: u32,
}

impl Inherited {
    fn of(above: &Record) -> Self {
        Self { flags: above.flags, project: above.extra.map_or(0, |extra| extra.projid) }
    }
}

fn record(
    inodes: &Inodes,
    above: &Inherited,
    parent: Nid,
    name: Option<Name<'_>>,
    new: &NewInode<'_>,
    ownership: &Ownership,
) -> Record {
    let features = inodes.disk.layout.features;
    let (kind, now) = (new.kind(), inodes.now());
    let extra_size = if features.contains(Features::EXTRA_ATTR) { EXTRA_SIZE } else { 0 };
    let mut record = Record::new(kind, ownership.permissions, features, extra_size);
    record.generation = inodes.runtime.random() as u32;
    (record.uid, record.gid) = (ownership.uid, ownership.gid);
    (record.atime, record.mtime, record.ctime) = (now, now, now);
    record.flags = above.flags & inherited(kind, features);
    if let Some(extra) = &mut record.extra {
        if features.contains(Features::FLEXIBLE_INLINE_XATTR) {
            extra.inline_xattr_size = INLINE_XATTR_WORDS;
        }
        if features.contains(Features::INODE_CRTIME) {
            extra.crtime = now;
        }
        if features.contains(Features::PROJECT_QUOTA)
            && above.flags.contains(FileFlags::PROJINHERIT)
        {
            extra.projid = above.project;
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
            record.advise |=
                inodes.disk.superblock.advise_for(name.map(Name::bytes).unwrap_or_default());
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
    record.name = name.map(Name::bytes).unwrap_or_default().into();
    record
}

fn inherited(kind: FileKind, features: Features) -> FileFlags {
    match kind {
        FileKind::Directory if features.contains(Features::CASEFOLD) => {
            INHERITED | FileFlags::CASEFOLD
        }
        FileKind::Directory => INHERITED,
        FileKind::Regular => INHERITED - FileFlags::DIRSYNC - FileFlags::PROJINHERIT,
        _ => FileFlags::NODUMP | FileFlags::NOATIME,
    }
}

/// Fills the parts of the node besides the record.
fn fill_node(record: &Record, new: &NewInode<'_>, node: &mut NodeGuard<'_>) {
    match new {
        NewInode::BlockDevice(device) | NewInode::CharDevice(device) => {
            record.set_device(node, *device)
        }
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
            // The target waits in memory for the next checkpoint, as entries do: a symbolic link
            // has no fsync of its own.
            let zeros = Image::zeroed(BLOCK_SIZE);
            let copy = |block: &mut [u8]| block[..target.len()].copy_from_slice(target);
            inode.entries.change(0, zeros, &op.inodes.dirty_entries, copy);
            op.inodes.dirty.insert(inode);
        }
        _ => {}
    }
    xattr::edit::store_acls(op, inode, ownership.access.as_ref(), ownership.default.as_ref())
}

/// Frees everything after a failure that came after the allocation of the number.
pub(super) fn undo(op: &mut Op<'_>, inode: &Arc<Inode>) -> Result<()> {
    inode.state.write().record.links = 0;
    delete::erase(op, inode)
}
