//! Adds names: of a new inode (`create`), or a further one of an existing inode (`link`).

use std::sync::Arc;

use super::{NamedInode, Namespace, check_name, check_parent};
use crate::error::Error;
use crate::name::Name;
use crate::types::{FileKind, NewInode};

/// Runs `make` with the names of `parent` locked, after checking that `name` can be created.
///
/// # Errors
/// The name exists or is invalid, `parent` accepts no new entry, or `make` failed.
pub fn create<N: Namespace + ?Sized, R>(
    names: &N,
    parent: &Arc<N::Inode>,
    name: &[u8],
    new: &NewInode<'_>,
    make: impl FnOnce(Name<'_>) -> Result<R, N::Error>,
) -> Result<R, N::Error> {
    parent.kind().check_directory()?;
    let name = check_name(name, Error::Exists)?;
    new.check()?;
    let _names = parent.names().write();
    check_parent(&**parent, false)?;
    check_vacant(names, parent, &name)?;
    make(name)
}

/// Runs `add` with the names of `parent` locked, after checking that `inode` can get this name.
///
/// # Errors
/// The name exists or is invalid, `parent` accepts no new entry, `inode` can have no further name,
/// or `add` failed.
pub fn link<N: Namespace + ?Sized, R>(
    names: &N,
    inode: &Arc<N::Inode>,
    parent: &Arc<N::Inode>,
    name: &[u8],
    add: impl FnOnce(Name<'_>) -> Result<R, N::Error>,
) -> Result<R, N::Error> {
    parent.kind().check_directory()?;
    let name = check_name(name, Error::Exists)?;
    if inode.kind() == FileKind::Directory {
        return Err(Error::NotPermitted.into());
    }
    let _names = parent.names().write();
    check_parent(&**parent, false)?;
    inode.flags().check_links()?;
    check_vacant(names, parent, &name)?;
    if inode.links() >= N::LINK_MAX {
        return Err(Error::TooManyLinks.into());
    }
    add(name)
}

fn check_vacant<N: Namespace + ?Sized>(
    names: &N,
    parent: &Arc<N::Inode>,
    name: &[u8],
) -> Result<(), N::Error> {
    match names.locate(parent, name)? {
        Some(_) => Err(Error::Exists.into()),
        None => Ok(()),
    }
}
