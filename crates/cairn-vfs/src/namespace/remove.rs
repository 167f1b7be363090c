//! Removes names: `unlink` and `rmdir`.

use std::sync::Arc;

use super::{NamedInode, Namespace, check_name, check_parent, locks};
use crate::error::Error;
use crate::types::FileKind;

/// Runs `remove` with the names of `parent` locked, after checking that `name` can be removed and
/// is not a directory's. Returns the inode that lost the name.
///
/// # Errors
/// There is no such name, the flags of its inode or directory forbid the removal, or `remove`
/// failed.
pub fn unlink<N: Namespace + ?Sized>(
    names: &N,
    parent: &Arc<N::Inode>,
    name: &[u8],
    remove: impl FnOnce(&N::Entry, &Arc<N::Inode>) -> Result<(), N::Error>,
) -> Result<Arc<N::Inode>, N::Error> {
    parent.kind().check_directory()?;
    check_name(name, Error::IsDirectory)?;
    let _names = parent.names().write();
    check_parent(&**parent, true)?;
    let entry = names.locate(parent, name)?.ok_or(Error::NotFound)?;
    let inode = names.inode(entry.into())?;
    if inode.kind() == FileKind::Directory {
        return Err(Error::IsDirectory.into());
    }
    inode.flags().check_links()?;
    remove(&entry, &inode)?;
    Ok(inode)
}

/// Runs `remove` with the names of `parent` and of the directory locked, after checking that the
/// directory is empty and can be removed. Returns the directory.
///
/// # Errors
/// As [`unlink`], or the inode is not a directory or is not empty.
pub fn rmdir<N: Namespace + ?Sized>(
    names: &N,
    parent: &Arc<N::Inode>,
    name: &[u8],
    remove: impl FnOnce(&N::Entry, &Arc<N::Inode>) -> Result<(), N::Error>,
) -> Result<Arc<N::Inode>, N::Error> {
    parent.kind().check_directory()?;
    let dots =
        if name == b".." { Error::NotEmpty } else { Error::Invalid("`.` cannot be removed") };
    check_name(name, dots)?;
    loop {
        let inode = locks::peek(names, parent, name)?.ok_or(Error::NotFound)?;
        let locks = locks::lock_names(&[parent, &inode]);
        let Some(Some(entry)) = locks::relocate(names, parent, name, Some(&inode))? else {
            continue;
        };
        check_parent(&**parent, true)?;
        inode.kind().check_directory()?;
        inode.flags().check_links()?;
        if !names.is_empty(&inode)? {
            return Err(Error::NotEmpty.into());
        }
        remove(&entry, &inode)?;
        drop(locks);
        return Ok(inode);
    }
}
