//! Locking several directories at once.
//!
//! Which directories an operation concerns is only known after names were looked up, so the names are looked up again under
//! the locks, and all is done anew if they changed meanwhile.

use std::sync::Arc;

use cairn_base::ranked_lock::RwLockWriteGuard;

use super::{NamedInode, Namespace};
use crate::types::FileKind;

/// Write locks on the names of every directory among `inodes`, each once, by inode number.
#[must_use]
pub fn lock_names<'a, I: NamedInode>(inodes: &[&'a Arc<I>]) -> Vec<RwLockWriteGuard<'a, ()>> {
    let mut directories: Vec<_> = inodes.iter().filter(|inode| inode.kind() == FileKind::Directory).collect();
    directories.sort_by_key(|inode| inode.ino());
    directories.dedup_by_key(|inode| inode.ino());
    directories.into_iter().map(|inode| inode.names().write()).collect()
}

/// What a name stands for right now. Call it with no names locked.
///
/// # Errors
/// `parent` is no directory; those of the file system.
pub fn peek<N: Namespace + ?Sized>(
    names: &N,
    parent: &Arc<N::Inode>,
    name: &[u8],
) -> Result<Option<Arc<N::Inode>>, N::Error> {
    parent.kind().check_directory()?;
    let _names = parent.names().read();
    names.locate(parent, name)?.map(|entry| names.inode(entry.into())).transpose()
}

/// The entry of `name`, if it still stands for `expected` (or is still missing): the outer `None` says that it does not. Call
/// it with the names of `parent` locked.
///
/// # Errors
/// Those of the file system.
pub fn still<N: Namespace + ?Sized>(
    names: &N,
    parent: &Arc<N::Inode>,
    name: &[u8],
    expected: Option<&Arc<N::Inode>>,
) -> Result<Option<Option<N::Entry>>, N::Error> {
    let found = names.locate(parent, name)?;
    let same = found.map(Into::into) == expected.map(|inode| inode.ino());
    Ok(same.then_some(found))
}
