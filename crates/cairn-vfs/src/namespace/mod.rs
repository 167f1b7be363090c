//! Operations on names, as far as all file systems do them alike: what is checked, in the order in which Linux answers,
//! and which locks are held meanwhile. A file system says how it finds entries ([`Namespace`]) and makes the change itself.
//!
//! Everything that can be refused is refused before the change begins. An operation that removes a name gives the inode
//! behind it: the file system deletes it, if that was its last, with no lock of names held.
//!
//! Locking: every directory has a lock of its names, shared to search and alone to change. Several are taken by inode
//! number ([`locks`]); [`Namespace::moves`] comes before all of them.

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

/// An inode in memory, as far as names concern it.
pub trait NamedInode {
    /// Its number.
    fn ino(&self) -> Ino;

    /// Its kind, which never changes.
    fn kind(&self) -> FileKind;

    /// The lock of a directory's names, ordered by inode number.
    fn names(&self) -> &RwLock<()>;

    /// Its names, and for directories what Linux counts besides; 0 once it has been removed.
    fn links(&self) -> u32;

    /// Its `chattr` flags.
    fn flags(&self) -> InodeFlags;
}

/// How a file system finds and moves names. The names of the directories given are locked by the caller.
pub trait Namespace {
    /// An inode in memory.
    type Inode: NamedInode;
    /// What a search finds: at least the number that the name stands for.
    type Entry: Copy + Into<Ino>;
    /// The file system's error.
    type Error: From<Error>;
    /// Names that an inode other than a directory can have.
    const LINK_MAX: u32;

    /// Finds a name.
    ///
    /// # Errors
    /// The directory is damaged, or the device failed.
    fn locate(&self, parent: &Arc<Self::Inode>, name: &[u8]) -> Result<Option<Self::Entry>, Self::Error>;

    /// The inode of a number.
    ///
    /// # Errors
    /// There is none, it is damaged, or the device failed.
    fn inode(&self, ino: Ino) -> Result<Arc<Self::Inode>, Self::Error>;

    /// Does a directory hold nothing but `.` and `..`?
    ///
    /// # Errors
    /// As [`Namespace::locate`].
    fn is_empty(&self, directory: &Arc<Self::Inode>) -> Result<bool, Self::Error>;

    /// The root directory.
    fn root(&self) -> Ino;

    /// No more inodes than these exist: the bound of a walk from a directory to the root.
    fn most_inodes(&self) -> u64;

    /// Held while a name moves from one directory to another.
    fn moves(&self) -> &Mutex<()>;

    /// Moves `inode` to another name, in the place of `target`, all at once; a whiteout of its caller takes the old place.
    /// Everything but limits of the format is checked.
    ///
    /// # Errors
    /// No space, too many links; the volume is damaged, or the device failed.
    fn replace(
        &self,
        from: &Side<'_, Self>,
        inode: &Arc<Self::Inode>,
        to: &Side<'_, Self>,
        target: Option<&Arc<Self::Inode>>,
        whiteout: Option<&Caller>,
    ) -> Result<(), Self::Error>;

    /// Lets two names swap what they stand for, all at once. Everything but limits of the format is checked.
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
    /// The name in it.
    pub name: Name<'a>,
    /// Its entry, if there is one.
    pub entry: Option<N::Entry>,
}

/// Checks a name that is to be made or removed. Every system call has an answer of its own to `.` and `..`.
///
/// # Errors
/// The name cannot be.
pub fn check_name(name: &[u8], dots: Error) -> Result<Name<'_>> {
    let name = Name::check(name)?;
    if name.is_dots() { Err(dots) } else { Ok(name) }
}

/// Fails if the directory's own flags or its removal forbid changing its names.
///
/// # Errors
/// That, or it is no directory.
pub fn check_parent(parent: &impl NamedInode, removing: bool) -> Result<()> {
    parent.kind().check_directory()?;
    if parent.links() == 0 {
        return Err(Error::NotFound);
    }
    parent.flags().check_entries(removing)
}
