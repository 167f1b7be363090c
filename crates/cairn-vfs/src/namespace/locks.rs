//! Locks several directories at once.
//!
//! An operation knows its directories only after it has looked names up. It looks them up again
//! under the locks, and starts again if they have changed.

use std::sync::Arc;

use cairn_base::ranked_lock::RwLockWriteGuard;
use smallvec::SmallVec;

use super::{NamedInode, Namespace};
use crate::types::FileKind;

/// Most inodes of an operation: two directories, what is renamed, and what it replaces.
pub(super) const MOST: usize = 4;

/// Locks the names of every directory among `inodes` exclusively, each once, in order of inode
/// number.
#[must_use]
pub(crate) fn lock_names<'a, I: NamedInode>(
    inodes: &[&'a Arc<I>],
) -> SmallVec<[RwLockWriteGuard<'a, ()>; MOST]> {
    let mut directories: SmallVec<[_; MOST]> =
        inodes.iter().filter(|inode| inode.kind() == FileKind::Directory).collect();
    directories.sort_by_key(|inode| inode.ino());
    directories.dedup_by_key(|inode| inode.ino());
    directories.into_iter().map(|inode| inode.names().write()).collect()
}

/// Looks a name up. The caller holds no lock of names.
///
/// # Errors
/// `parent` is not a directory, or the filesystem failed.
pub fn peek<N: Namespace + ?Sized>(
    names: &N,
    parent: &Arc<N::Inode>,
    name: &[u8],
) -> Result<Option<Arc<N::Inode>>, N::Error> {
    parent.kind().check_directory()?;
    let _names = parent.names().read();
    names.locate(parent, name)?.map(|entry| names.inode(entry.into())).transpose()
}

/// Looks a name up again. Returns its entry if the name has the inode `expected` (or is missing,
/// for `None`); the outer `None` says that it has changed. The caller holds the lock of the names
/// of `parent`.
///
/// # Errors
/// The filesystem failed.
pub fn relocate<N: Namespace + ?Sized>(
    names: &N,
    parent: &Arc<N::Inode>,
    name: &[u8],
    expected: Option<&Arc<N::Inode>>,
) -> Result<Option<Option<N::Entry>>, N::Error> {
    let found = names.locate(parent, name)?;
    let same = found.map(Into::into) == expected.map(|inode| inode.ino());
    Ok(same.then_some(found))
}
