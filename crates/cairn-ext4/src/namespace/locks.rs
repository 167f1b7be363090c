//! Locking several directories at once.
//!
//! Their `namespace` locks are taken by inode number. Which directories are concerned is only known after names were
//! looked up, so the names are looked up again under the locks, and all is done anew if they changed meanwhile.

use std::sync::Arc;

use cairn_base::Ino;
use cairn_base::ranked_lock::RwLockWriteGuard;
use cairn_vfs::{Error as VfsError, FileKind};

use crate::error::Result;
use crate::inode::{Inode, directory};
use crate::volume::Volume;

/// Write locks on the names of every directory among `inodes`, each once.
pub fn lock_names<'a>(inodes: &[&'a Arc<Inode>]) -> Vec<RwLockWriteGuard<'a, ()>> {
    let mut directories: Vec<_> = inodes.iter().filter(|inode| inode.kind == FileKind::Directory).collect();
    directories.sort_by_key(|inode| inode.ino);
    directories.dedup_by_key(|inode| inode.ino);
    directories.into_iter().map(|inode| inode.namespace.write()).collect()
}

/// What a name stands for right now.
pub fn peek(volume: &Arc<Volume>, parent: &Arc<Inode>, name: &[u8]) -> Result<Option<Arc<Inode>>> {
    super::check_directory(parent)?;
    let _names = parent.namespace.read();
    find(volume, parent, name)?.map(|ino| volume.inode(ino)).transpose()
}

/// True if `name` still stands for `expected`. Call with the directory's names locked.
pub fn still(volume: &Arc<Volume>, parent: &Arc<Inode>, name: &[u8], expected: Option<&Arc<Inode>>) -> Result<bool> {
    Ok(find(volume, parent, name)? == expected.map(|inode| inode.ino))
}

fn find(volume: &Arc<Volume>, parent: &Arc<Inode>, name: &[u8]) -> Result<Option<Ino>> {
    Ok(directory::lookup(volume, parent, name)?.map(|(ino, _)| ino))
}

/// The inode behind a name, with the names of its directory and (if it is one) its own locked for writing.
pub fn lock_entry<R>(
    volume: &Arc<Volume>,
    parent: &Arc<Inode>,
    name: &[u8],
    then: impl FnOnce(&Arc<Inode>) -> Result<R>,
) -> Result<R> {
    loop {
        let inode = peek(volume, parent, name)?.ok_or(VfsError::NotFound)?;
        let locks = lock_names(&[parent, &inode]);
        if still(volume, parent, name, Some(&inode))? {
            let done = then(&inode);
            drop(locks);
            return done;
        }
    }
}
