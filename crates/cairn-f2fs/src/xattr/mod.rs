//! Extended attributes of a mounted volume.
//!
//! The inline part and the attribute node are put together and decoded as one area. ACLs are stored
//! in a compact form, and converted to and from the form that programs use.

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

pub(crate) mod edit;

use cairn_vfs::Error as VfsError;
use cairn_vfs::acl::shown_from_compact;

use crate::disk::Disk;
use crate::error::Result;
use crate::format::node::XATTR_OFFSET;
use crate::format::xattr::{self, INDEX_ACL_ACCESS, INDEX_ACL_DEFAULT, NODE_BYTES, Xattr};
use crate::inode::Inode;

/// `e_name_index` of the advice bits, which are kept in the inode and shown as an attribute.
const INDEX_ADVISE: u8 = 7;

/// All attributes of an inode, including those that users do not see.
///
/// # Errors
/// They are damaged, or the device failed.
pub(crate) fn read_all(disk: &Disk, inode: &Inode) -> Result<Vec<Xattr>> {
    if inode.has_no_xattrs() {
        return Ok(Vec::new());
    }
    let (range, node) = inode.with_record(|record| (record.inline_xattr_range(), record.xattr_nid));
    let mut area = Vec::new();
    if !range.is_empty() {
        let image = disk.nodes.inode(inode.nid)?.ok_or(VfsError::Stale)?;
        area.extend_from_slice(image.get(range).unwrap_or_default());
    }
    if !node.is_none() {
        let image = disk.nodes.read(node, inode.nid, XATTR_OFFSET)?;
        area.extend_from_slice(image.get(..NODE_BYTES).unwrap_or_default());
    }
    Ok(xattr::decode(&area, inode.nid)?)
}

/// The value of an attribute.
///
/// # Errors
/// There is no such attribute, or attributes are damaged, or the device failed.
pub(crate) fn get(disk: &Disk, inode: &Inode, name: &[u8]) -> Result<Vec<u8>> {
    let (index, rest) = split(name)?;
    if index == INDEX_ADVISE {
        return Ok(vec![inode.with_record(|record| record.advise.bits())]);
    }
    if inode.has_no_xattrs() {
        return Err(VfsError::NoAttribute.into());
    }
    let _data = inode.data.read();
    let all = read_all(disk, inode)?;
    let found = all.into_iter().find(|xattr| xattr.index == index && xattr.name == rest);
    let found = found.ok_or(VfsError::NoAttribute)?;
    match index {
        INDEX_ACL_ACCESS | INDEX_ACL_DEFAULT => shown_acl(&found.value),
        _ => Ok(found.value),
    }
}

/// Names of all attributes that users may see.
///
/// # Errors
/// Attributes are damaged, or the device failed.
pub(crate) fn list(disk: &Disk, inode: &Inode) -> Result<Vec<Vec<u8>>> {
    let _data = inode.data.read();
    Ok(read_all(disk, inode)?.iter().filter_map(Xattr::full_name).collect())
}

fn split(name: &[u8]) -> Result<(u8, &[u8])> {
    if name.len() > crate::format::units::NAME_MAX {
        return Err(VfsError::Range.into());
    }
    if name.ends_with(b".") && xattr::split_name(&[name, b"x"].concat()).is_some() {
        return Err(VfsError::Invalid("empty attribute name").into());
    }
    let unknown = VfsError::Unsupported("extended attributes with this prefix");
    Ok(xattr::split_name(name).ok_or(unknown)?)
}

/// As in Linux, a malformed list is EINVAL, and a list without entries does not exist.
fn shown_acl(stored: &[u8]) -> Result<Vec<u8>> {
    match shown_from_compact(stored) {
        Ok(shown) => Ok(shown.ok_or(VfsError::NoAttribute)?),
        Err(_) => Err(VfsError::Invalid("malformed access control list").into()),
    }
}
