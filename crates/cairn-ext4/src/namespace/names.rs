//! [`Names`]: how ext4 finds and moves names for [`cairn_vfs::namespace`].

use std::sync::Arc;

use cairn_base::Ino;
use cairn_base::ranked_lock::{Mutex, RwLock};
use cairn_vfs::namespace::{NamedInode, Namespace, Side};
use cairn_vfs::{Caller, FileKind, InodeFlags};

use super::rename::{exchange, replace};
use crate::error::{Error, Result};
use crate::inode::{Inode, directory};
use crate::op::Operations;

impl NamedInode for Inode {
    fn ino(&self) -> Ino {
        self.ino
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
        self.state.read().record.shown_flags()
    }
}

/// The names of a volume.
pub(super) struct Names<'v>(pub &'v Arc<Operations>);

impl Namespace for Names<'_> {
    type Inode = Inode;
    type Entry = Ino;
    type Error = Error;
    /// Ext4's `EXT4_LINK_MAX`.
    const LINK_MAX: u32 = 65_000;

    fn locate(&self, parent: &Arc<Inode>, name: &[u8]) -> Result<Option<Ino>> {
        Ok(directory::lookup(self.0, parent, name)?.map(|(ino, _)| ino))
    }

    fn inode(&self, ino: Ino) -> Result<Arc<Inode>> {
        self.0.inode(ino)
    }

    fn is_empty(&self, directory: &Arc<Inode>) -> Result<bool> {
        directory::is_empty(self.0, directory)
    }

    fn root(&self) -> Ino {
        crate::ROOT_INO
    }

    fn most_inodes(&self) -> u64 {
        self.0.layout.inodes_count.into()
    }

    fn rename_mutex(&self) -> &Mutex<()> {
        &self.0.rename_mutex
    }

    fn replace(
        &self,
        from: &Side<'_, Self>,
        inode: &Arc<Inode>,
        to: &Side<'_, Self>,
        target: Option<&Arc<Inode>>,
        whiteout: Option<&Caller>,
    ) -> Result<()> {
        replace(self.0, from, inode, to, target, whiteout)
    }

    fn exchange(
        &self,
        from: &Side<'_, Self>,
        inode: &Arc<Inode>,
        to: &Side<'_, Self>,
        other: &Arc<Inode>,
    ) -> Result<()> {
        exchange(self.0, from, inode, to, other)
    }
}
