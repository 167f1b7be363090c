//! Finds and changes names, for the code that all formats share.

use std::sync::Arc;

use cairn_base::Ino;
use cairn_base::ranked_lock::{Mutex, RwLock};
use cairn_vfs::namespace::{NamedInode, Namespace, Side};
use cairn_vfs::{Caller, FileKind, InodeFlags, NewInode};

use super::{make, rename};
use crate::dir::edit;
use crate::dir::lookup::{self, Found};
use crate::error::{Error, Result};
use crate::inode::{Inode, attributes};
use crate::op::Operations;

impl NamedInode for Inode {
    fn ino(&self) -> Ino {
        self.nid.ino()
    }

    fn kind(&self) -> FileKind {
        self.kind
    }

    fn names(&self) -> &RwLock<()> {
        &self.namespace
    }

    fn links(&self) -> u32 {
        self.state.read().record.links
    }

    fn flags(&self) -> InodeFlags {
        attributes::flags(&self.state.read().record)
    }
}

impl From<Found> for Ino {
    fn from(found: Found) -> Self {
        found.nid.ino()
    }
}

impl Namespace for Operations {
    type Inode = Inode;
    type Entry = Found;
    type Error = Error;
    const LINK_MAX: u32 = u32::MAX;

    fn locate(&self, parent: &Arc<Inode>, name: &[u8]) -> Result<Option<Found>> {
        // The way up is readable: only the names below are encrypted.
        if name != b".." {
            parent.check_unencrypted(&self.disk)?;
        }
        lookup::locate(&self.disk, parent, name)
    }

    fn inode(&self, ino: Ino) -> Result<Arc<Inode>> {
        self.inodes.inode(ino)
    }

    fn is_empty(&self, directory: &Arc<Inode>) -> Result<bool> {
        edit::is_empty(&self.disk, directory)
    }

    fn root(&self) -> Ino {
        crate::ROOT_INO
    }

    fn most_inodes(&self) -> u64 {
        self.disk.layout.max_nid().into()
    }

    fn rename_mutex(&self) -> &Mutex<()> {
        &self.moves
    }

    fn replace(
        &self,
        from: &Side<'_, Self>,
        inode: &Arc<Inode>,
        to: &Side<'_, Self>,
        target: Option<&Arc<Inode>>,
        whiteout: Option<&Caller>,
    ) -> Result<()> {
        let left = whiteout
            .map(|caller| {
                make::ownership(&self.disk, from.parent, NewInode::WHITEOUT.kind(), 0, caller)
            })
            .transpose()?;
        // Replacing an existing name adds no entry.
        let adds = if target.is_some() { 0 } else { edit::BLOCKS };
        if target.is_none() {
            edit::hash_of_new(&self.disk, to.parent, &to.name)?;
        }
        let blocks = adds + if left.is_some() { make::BLOCKS } else { 0 };
        self.change(blocks, |op| rename::replace(op, from, inode, to, target, left.as_ref()))
    }

    fn exchange(
        &self,
        from: &Side<'_, Self>,
        inode: &Arc<Inode>,
        to: &Side<'_, Self>,
        other: &Arc<Inode>,
    ) -> Result<()> {
        self.change(0, |op| rename::exchange(op, from, inode, to, other))
    }
}
