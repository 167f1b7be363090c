//! Setting and removing extended attributes.
//!
//! All attributes are written again: inline if they fit there, else inline and in the attribute
//! node.
//!
//! Locking: the inode's `data`, exclusively, so that readers see both parts of the same version.

#![cfg_attr(
    not(test),
    deny(
        clippy::indexing_slicing,
        clippy::as_conversions,
        clippy::arithmetic_side_effects,
        clippy::unwrap_used,
        clippy::expect_used
    )
)]

use std::sync::Arc;

use cairn_vfs::acl::{self, Acl};
use cairn_vfs::namespace::NamedInode;
use cairn_vfs::protection::after_access_list;
use cairn_vfs::{Error as VfsError, FileKind, XattrMode};

use super::{INDEX_ADVISE, read_all, split};
use crate::disk::Disk;
use crate::error::Result;
use crate::format::node::XATTR_OFFSET;
use crate::format::xattr::{self, INDEX_ACL_ACCESS, INDEX_ACL_DEFAULT, NODE_BYTES, Xattr};
use crate::format::{Nid, block};
use crate::inode::{Inode, tree};
use crate::op::{Op, Operations};

/// Blocks that setting attributes may take: the attribute node.
pub(crate) const BLOCKS: u64 = 1;

/// Blocks that this inode needs for these attributes.
fn blocks(inode: &Inode, list: &[Xattr]) -> u64 {
    let (range, node) = inode.with_record(|record| (record.inline_xattr_range(), record.xattr_nid));
    let fits = list.is_empty() || xattr::area_size(list) <= range.len();
    if fits || !node.is_none() { 0 } else { BLOCKS }
}

/// Header and end of an area.
const FRAME: usize = xattr::HEADER_SIZE + 4;

/// Sets an attribute. An access ACL also sets the permission bits, and is stored only if they
/// cannot express it.
///
/// # Errors
/// The attribute cannot be set on this inode or does not fit; the volume cannot be written, is
/// damaged, or the device failed.
pub(crate) fn set(
    ops: &Operations,
    inode: &Arc<Inode>,
    name: &[u8],
    value: &[u8],
    mode: XattrMode,
) -> Result<()> {
    ops.mount.check_writable()?;
    let (index, rest) = check(inode, name)?;
    if !matches!(index, INDEX_ACL_ACCESS | INDEX_ACL_DEFAULT) {
        return change(ops, inode, |list| put(list, index, rest, value, mode), None);
    }
    let acl =
        Acl::from_xattr(value).map_err(|_| VfsError::Invalid("malformed access control list"))?;
    if inode.kind == FileKind::Symlink {
        return Err(VfsError::Unsupported("symbolic links have no access control lists").into());
    }
    if index == INDEX_ACL_DEFAULT && inode.kind != FileKind::Directory {
        return if acl.is_some() { Err(VfsError::AccessDenied.into()) } else { Ok(()) };
    }
    let Some(acl) = acl else {
        // An empty list removes the attribute.
        return change(ops, inode, |list| take(list, index, rest).map(drop).or(Ok(())), None);
    };
    let (bits, complete) = acl.equivalent_mode();
    let access = index == INDEX_ACL_ACCESS;
    // As in Linux, access lists are set whatever `mode` asks for.
    let store = |list: &mut Vec<Xattr>| match access && complete {
        true => take(list, index, rest).map(drop).or(Ok(())),
        false => put(list, index, rest, &acl.to_compact(), XattrMode::Set),
    };
    let follow = |old: u16| {
        after_access_list(old & !0o777 | u16::try_from(bits & 0o777).unwrap_or_default(), mode)
    };
    change(ops, inode, store, if access { Some(&follow) } else { None })
}

/// Removes an attribute.
///
/// # Errors
/// There is no such attribute; or as [`set`].
pub(crate) fn remove(ops: &Operations, inode: &Arc<Inode>, name: &[u8]) -> Result<()> {
    ops.mount.check_writable()?;
    let (index, rest) = check(inode, name)?;
    let is_acl = matches!(index, INDEX_ACL_ACCESS | INDEX_ACL_DEFAULT);
    change(
        ops,
        inode,
        |list| take(list, index, rest).or_else(|error| if is_acl { Ok(()) } else { Err(error) }),
        None,
    )
}

fn check<'n>(inode: &Inode, name: &'n [u8]) -> Result<(u8, &'n [u8])> {
    let (index, rest) = split(name)?;
    if index == INDEX_ADVISE {
        return Err(VfsError::Unsupported("setting the advice bits").into());
    }
    inode.flags().check_links()?;
    // `user.` attributes are allowed only on files and directories: on other inodes permission bits
    // do not guard them.
    if name.starts_with(b"user.") && !matches!(inode.kind, FileKind::Regular | FileKind::Directory)
    {
        return Err(VfsError::NotPermitted.into());
    }
    Ok((index, rest))
}

fn put(list: &mut Vec<Xattr>, index: u8, name: &[u8], value: &[u8], mode: XattrMode) -> Result<()> {
    let at = list.iter().position(|xattr| xattr.index == index && xattr.name == name);
    match (at, mode) {
        (Some(_), XattrMode::Create) => return Err(VfsError::Exists.into()),
        (None, XattrMode::Replace) => return Err(VfsError::NoAttribute.into()),
        _ => {}
    }
    let new = Xattr { index, name: name.to_vec(), value: value.to_vec() };
    if let Some(at) = at {
        list.remove(at);
    }
    list.push(new);
    Ok(())
}

fn take(list: &mut Vec<Xattr>, index: u8, name: &[u8]) -> Result<()> {
    let at = list.iter().position(|xattr| xattr.index == index && xattr.name == name);
    list.remove(at.ok_or(VfsError::NoAttribute)?);
    Ok(())
}

/// Changes the list, in an operation of its own.
fn change(
    ops: &Operations,
    inode: &Arc<Inode>,
    edit: impl FnOnce(&mut Vec<Xattr>) -> Result<()>,
    permissions: Option<&dyn Fn(u16) -> u16>,
) -> Result<()> {
    let _data = inode.data.write();
    let mut list = read_all(&ops.disk, inode)?;
    edit(&mut list)?;
    check_size(inode, &list)?;
    let now = ops.inodes.now();
    ops.change(blocks(inode, &list), |op| {
        write(op, inode, &list)?;
        let mut state = inode.state.write();
        if let Some(follow) = permissions {
            state.record.permissions = follow(state.record.permissions);
        }
        state.record.ctime = now;
        inode.mark_dirty(&ops.inodes, &mut state);
        Ok(())
    })
}

fn check_size(inode: &Inode, list: &[Xattr]) -> Result<()> {
    let most =
        inode.with_record(|record| record.inline_xattr_range()).len().saturating_add(NODE_BYTES);
    if list.iter().any(|xattr| xattr.value.len() > most.saturating_sub(FRAME)) {
        return Err(VfsError::TooBig.into());
    }
    if xattr::area_size(list) > most { Err(VfsError::NoAttributeSpace.into()) } else { Ok(()) }
}

/// Writes all attributes, which fit. Makes or removes the attribute node as needed.
fn write(op: &mut Op<'_>, inode: &Arc<Inode>, list: &[Xattr]) -> Result<()> {
    let (range, xattr_nid) =
        inode.with_record(|record| (record.inline_xattr_range(), record.xattr_nid));
    let mut size = range.len();
    let mut node = None;
    if xattr::area_size(list) > size && !list.is_empty() {
        size = size.saturating_add(NODE_BYTES);
        node = Some(match xattr_nid {
            Nid::NONE => tree::new_node(op, inode, XATTR_OFFSET)?,
            nid => op.store.nodes.child(nid, inode.nid, XATTR_OFFSET)?,
        });
    } else if !xattr_nid.is_none() {
        tree::remove_xattr_node(op, inode, xattr_nid)?;
    }
    let area = match list.is_empty() {
        true => vec![0; size],
        false => xattr::encode(list, size).ok_or(VfsError::NoAttributeSpace)?,
    };
    let (inline, rest) = area.split_at(range.len());
    block::put(&mut tree::own_node(op.store, inode)?.modify(), range.start, inline);
    if let Some(node) = &node {
        block::put(&mut node.modify(), 0, rest);
    }
    let mut state = inode.state.write();
    state.record.xattr_nid = node.map_or(Nid::NONE, |node| node.nid());
    state.inline_xattrs = !list.is_empty();
    inode.mark_dirty(op.inodes, &mut state);
    Ok(())
}

/// Default ACL of a directory.
///
/// # Errors
/// Attributes are damaged, or the device failed.
pub(crate) fn default_acl(disk: &Disk, directory: &Inode) -> Result<Option<Acl>> {
    match super::get(disk, directory, acl::DEFAULT) {
        Ok(value) => Ok(Acl::from_xattr(&value)
            .map_err(|_| VfsError::Invalid("malformed access control list"))?),
        Err(crate::Error::Vfs(VfsError::NoAttribute)) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Stores the ACLs that a new inode inherits.
///
/// # Errors
/// They do not fit, or no nid is free.
pub(crate) fn store_acls(
    op: &mut Op<'_>,
    inode: &Arc<Inode>,
    access: Option<&Acl>,
    default: Option<&Acl>,
) -> Result<()> {
    let mut list = Vec::new();
    for (index, acl) in [(INDEX_ACL_ACCESS, access), (INDEX_ACL_DEFAULT, default)] {
        if let Some(acl) = acl {
            put(&mut list, index, b"", &acl.to_compact(), XattrMode::Set)?;
        }
    }
    if list.is_empty() {
        return Ok(());
    }
    check_size(inode, &list)?;
    write(op, inode, &list)
}

/// After chmod: the access ACL's owner, mask and other entries follow the mode. The caller holds
/// `data` exclusively.
///
/// # Errors
/// Attributes are damaged, or the device failed.
pub(crate) fn follow_mode(op: &mut Op<'_>, inode: &Arc<Inode>, permissions: u32) -> Result<()> {
    if inode.kind == FileKind::Symlink {
        return Ok(());
    }
    let mut list = read_all(&op.inodes.disk, inode)?;
    let Some(stored) = list.iter_mut().find(|xattr| xattr.index == INDEX_ACL_ACCESS) else {
        return Ok(());
    };
    let acl = Acl::from_compact(&stored.value)
        .map_err(|_| VfsError::Invalid("malformed access control list"))?;
    let Some(acl) = acl else { return Ok(()) };
    stored.value = acl.with_mode(permissions).to_compact();
    write(op, inode, &list)
}
