//! `chattr +S` and `chattr +D`: a change of such an inode, or of the names in such a directory, is
//! on the disk before its call returns.

use std::sync::Arc;

use crate::InodeFlags;
use crate::namespace::NamedInode;

/// Names in these directories have changed.
///
/// # Errors
/// Those of `fsync`.
pub fn names_changed<I: NamedInode, E>(
    directories: &[&Arc<I>],
    fsync: impl FnMut(&&Arc<I>) -> Result<(), E>,
) -> Result<(), E> {
    let synchronous = |directory: &&&Arc<I>| directory.flags().has_synchronous_names();
    directories.iter().filter(synchronous).try_for_each(fsync)
}

/// An inode has changed.
///
/// # Errors
/// Those of `fsync`.
pub fn changed<I: NamedInode, E>(
    inode: &Arc<I>,
    fsync: impl FnOnce(&Arc<I>) -> Result<(), E>,
) -> Result<(), E> {
    if inode.flags().contains(InodeFlags::SYNC) { fsync(inode) } else { Ok(()) }
}
