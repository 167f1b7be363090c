//! Locking several directories at once.
//!
//! Their `namespace` locks are taken by inode number. Which directories are concerned is only known after names were looked
//! up, so the names are looked up again under the locks, and all is done anew if they changed meanwhile.

use std::sync::Arc;

use cairn_base::ranked_lock::RwLockWriteGuard;
use cairn_vfs::{Error as VfsError, FileKind};

use crate::dir::lookup::{self, Found};
use crate::error::Result;
use crate::inode::Inode;
use crate::volume::Volume;

/// Write locks on the names of every directory among `inodes`, each once.
pub fn lock_names<'a>(inodes: &[&'a Arc<Inode>]) -> Vec<RwLockWriteGuard<'a, ()>> {
    let mut directories: Vec<_> = inodes.iter().filter(|inode| inode.kind == FileKind::Directory).collect();
    directories.sort_by_key(|inode| inode.nid);
    directories.dedup_by_key(|inode| inode.nid);
    directories.into_iter().map(|inode| inode.namespace.write()).collect()
}

/// What a name stands for right now.
pub fn peek(volume: &Volume, parent: &Inode, name: &[u8]) -> Result<Option<Arc<Inode>>> {
    super::check_directory(parent)?;
    let _names = parent.namespace.read();
    lookup::locate(volume, parent, name)?.map(|found| volume.inode(found.nid.ino())).transpose()
}

/// The entry of `name`, if it still stands for `expected` (or is still missing): the outer `None` says that it does not.
/// Call with the directory's names locked.
pub fn still(
    volume: &Volume,
    parent: &Inode,
    name: &[u8],
    expected: Option<&Arc<Inode>>,
) -> Result<Option<Option<Found>>> {
    let found = lookup::locate(volume, parent, name)?;
    let same = found.map(|found| found.nid) == expected.map(|inode| inode.nid);
    Ok(same.then_some(found))
}

/// The inode behind a name, with the names of its directory and (if it is one) its own locked for writing.
pub fn lock_entry<R>(
    volume: &Volume,
    parent: &Arc<Inode>,
    name: &[u8],
    then: impl FnOnce(&Arc<Inode>) -> Result<R>,
) -> Result<R> {
    loop {
        let inode = peek(volume, parent, name)?.ok_or(VfsError::NotFound)?;
        let locks = lock_names(&[parent, &inode]);
        if still(volume, parent, name, Some(&inode))?.is_some() {
            let done = then(&inode);
            drop(locks);
            return done;
        }
    }
}
