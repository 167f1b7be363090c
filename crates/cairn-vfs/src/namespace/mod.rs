//! Operations on names, as Linux does them for all filesystems: the checks in Linux's order, and
//! the locks. A filesystem finds entries ([`Namespace`]) and makes the changes.
//!
//! All checks come before the first change. An operation that removes a name returns its inode. If
//! that was the last name, the filesystem deletes the inode, and holds no lock of names meanwhile.
//!
//! Locking: each directory has a lock of its names, held shared to search and exclusively to
//! change. Several are locked in order of inode number ([`locks`]). [`Namespace::rename_mutex`] is
//! locked before all of them.

use std::sync::Arc;

use cairn_base::Ino;
use cairn_base::ranked_lock::{Mutex, RwLock};

use crate::error::{Error, Result};
use crate::name::Name;
use crate::types::{Caller, FileKind, InodeFlags};

mod create;
pub mod locks;
mod remove;
mod rename;
#[cfg(test)]
mod tests;

pub use create::{create, link};
pub use remove::{rmdir, unlink};
pub use rename::rename;

/// What operations on names need of an inode in memory.
pub trait NamedInode {
    /// The inode number.
    fn ino(&self) -> Ino;

    /// The kind, which never changes.
    fn kind(&self) -> FileKind;

    /// The lock of a directory's names, ordered by inode number.
    fn names(&self) -> &RwLock<()>;

    /// The link count, with the links that Linux counts for directories; 0 after the removal.
    fn links(&self) -> u32;

    /// The `chattr` flags.
    fn flags(&self) -> InodeFlags;
}

/// How a filesystem finds and moves names. The caller holds the locks of the directories.
pub trait Namespace {
    /// An inode in memory.
    type Inode: NamedInode;
    /// Result of a search. It contains at least the inode number.
    type Entry: Copy + Into<Ino>;
    /// The filesystem's error.
    type Error: From<Error>;
    /// Most links of an inode that is not a directory.
    const LINK_MAX: u32;

    /// Finds a name.
    ///
    /// # Errors
    /// The directory is damaged, or the device failed.
    fn locate(
        &self,
        parent: &Arc<Self::Inode>,
        name: &[u8],
    ) -> Result<Option<Self::Entry>, Self::Error>;

    /// The inode with a number.
    ///
    /// # Errors
    /// There is no such inode, it is damaged, or the device failed.
    fn inode(&self, ino: Ino) -> Result<Arc<Self::Inode>, Self::Error>;

    /// True if a directory contains only `.` and `..`.
    ///
    /// # Errors
    /// As [`Namespace::locate`].
    fn is_empty(&self, directory: &Arc<Self::Inode>) -> Result<bool, Self::Error>;

    /// The root directory's inode number.
    fn root(&self) -> Ino;

    /// Upper bound of the number of inodes. It limits the walk from a directory to the root.
    fn most_inodes(&self) -> u64;

    /// Held while a name moves between directories (Linux: `s_vfs_rename_mutex`).
    fn rename_mutex(&self) -> &Mutex<()>;

    /// Moves `inode` to another name in one change. It replaces `target`, and a whiteout of its
    /// caller gets the old name. Only limits of the format remain to be checked.
    ///
    /// # Errors
    /// There is no space, an inode has too many links, the volume is damaged, or the device failed.
    fn replace(
        &self,
        from: &Side<'_, Self>,
        inode: &Arc<Self::Inode>,
        to: &Side<'_, Self>,
        target: Option<&Arc<Self::Inode>>,
        whiteout: Option<&Caller>,
    ) -> Result<(), Self::Error>;

    /// Swaps the inodes of two names in one change. Only limits of the format remain to be checked.
    ///
    /// # Errors
    /// As [`Namespace::replace`].
    fn exchange(
        &self,
        from: &Side<'_, Self>,
        inode: &Arc<Self::Inode>,
        to: &Side<'_, Self>,
        other: &Arc<Self::Inode>,
    ) -> Result<(), Self::Error>;
}

/// One side of a rename.
pub struct Side<'a, N: Namespace + ?Sized> {
    /// The directory.
    pub parent: &'a Arc<N::Inode>,
    /// The name in the directory.
    pub name: Name<'a>,
    /// Its entry, if there is one.
    pub entry: Option<N::Entry>,
}

/// Validates a name that is created or removed. `dots` is the caller's error for `.` and `..`.
///
/// # Errors
/// The name is invalid.
pub fn check_name(name: &[u8], dots: Error) -> Result<Name<'_>> {
    let name = Name::check(name)?;
    if name.is_dots() { Err(dots) } else { Ok(name) }
}

/// Checks that the names of a directory may change. `removing`: an entry is removed or replaced.
///
/// # Errors
/// It is not a directory, it was removed, or its flags forbid the change.
pub fn check_parent(parent: &impl NamedInode, removing: bool) -> Result<()> {
    parent.kind().check_directory()?;
    if parent.links() == 0 {
        return Err(Error::NotFound);
    }
    parent.flags().check_entries(removing)
}
