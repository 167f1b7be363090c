//! The extended attributes of a node in their stored form.

use cairn_base::names::Escaped;
use cairn_vfs::new_tree::{Node, Source, TreeError};
use cairn_vfs::{Acl, FileKind, acl};

use super::settings::Settings;
use crate::format::units::NAME_MAX;
use crate::format::xattr::{NODE_BYTES, Xattr, area_size, split_name};

/// The attributes that are stored, in the order of the source. They fit into an inode and an
/// attribute node.
///
/// # Errors
/// One of them cannot be stored, exists twice, or has no room.
pub(super) fn attributes(
    source: &dyn Source,
    id: u32,
    node: &Node<'_>,
    settings: &Settings,
) -> Result<Vec<Xattr>, TreeError> {
    let mut list: Vec<Xattr> = Vec::with_capacity(node.xattrs.len());
    for (name, value) in &node.xattrs {
        let refuse = |why: &str| {
            let why = format!("attribute {}: {why}", name.escaped());
            TreeError::node(source.path(id), why)
        };
        let stored = stored(node.kind.file_kind(), name, value).map_err(|why| refuse(&why))?;
        let Some(xattr) = stored else { continue };
        if list.iter().any(|known| (known.index, &known.name) == (xattr.index, &xattr.name)) {
            return Err(refuse("exists twice"));
        }
        list.push(xattr);
        let room = settings.inline_xattrs + NODE_BYTES;
        if area_size(&list) > room {
            return Err(refuse(&format!("has no room beside the others: F2FS has {room} bytes")));
        }
    }
    Ok(list)
}

/// The stored form of an attribute; none for an access list that only repeats the permissions.
fn stored(kind: FileKind, name: &[u8], value: &[u8]) -> Result<Option<Xattr>, String> {
    let is_acl = name == acl::ACCESS || name == acl::DEFAULT;
    let known = split_name(name).filter(|_| is_acl || !name.starts_with(b"system."));
    let Some((index, rest)) = known.filter(|_| name.len() <= NAME_MAX) else {
        return Err("F2FS stores no such name".into());
    };
    if name.starts_with(b"user.") && !matches!(kind, FileKind::Regular | FileKind::Directory) {
        return Err("only files and directories have attributes of users".into());
    }
    let mut value = value.to_vec();
    if is_acl {
        let is_default = name == acl::DEFAULT;
        if kind == FileKind::Symlink || (is_default && kind != FileKind::Directory) {
            return Err("this kind of file has no such list".into());
        }
        match Acl::from_xattr(&value).map_err(|error| error.to_string())? {
            None => return Ok(None),
            Some(list) if !is_default && list.equivalent_mode().1 => return Ok(None),
            Some(list) => value = list.to_compact(),
        }
    }
    Ok(Some(Xattr { index, name: rest.to_vec(), value }))
}
