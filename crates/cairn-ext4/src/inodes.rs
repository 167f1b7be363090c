//! The inodes of a volume: those in memory, which of them have no names, and the caches of their
//! contents.

use std::ops::Deref;
use std::sync::Arc;

use cairn_cache::file::PageCache;
use cairn_vfs::inode_table::InodeTable;

use crate::dir::hash::HashSettings;
use crate::inode::{Inode, access_times};
use crate::mount_state::MountState;
use crate::orphan::Orphans;

/// Inodes without references that are kept in memory.
const INODES_IN_MEMORY: usize = 32_768;

/// See the module.
pub(crate) struct Inodes {
    pub(crate) mount: Arc<MountState>,
    /// Inodes in memory.
    pub(crate) table: InodeTable<Inode>,
    /// File data.
    pub(crate) pages: Arc<PageCache>,
    /// Inodes that are dirty only because of their access time.
    pub(crate) accessed: access_times::Waiting,
    /// Inodes that are unlinked but open, or being truncated.
    pub(crate) orphans: Orphans,
    /// How directories hash names.
    pub(crate) hash: HashSettings,
}

impl Deref for Inodes {
    type Target = MountState;

    fn deref(&self) -> &MountState {
        &self.mount
    }
}

impl Inodes {
    pub(crate) fn new(
        mount: Arc<MountState>,
        pages: Arc<PageCache>,
        orphans: Orphans,
        hash: HashSettings,
    ) -> Self {
        Self {
            mount,
            table: InodeTable::new(INODES_IN_MEMORY, Inode::can_evict),
            pages,
            accessed: access_times::Waiting::default(),
            orphans,
            hash,
        }
    }
}
