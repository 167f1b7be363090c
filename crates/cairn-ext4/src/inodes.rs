//! The inodes of a volume: those in memory, which of them have no names, and the caches of their
//! contents.

use std::ops::Deref;
use std::sync::Arc;

use cairn_cache::budget::{Reclaim, reclaim_inodes};
use cairn_cache::file::PageCache;
use cairn_vfs::inode_table::InodeTable;

use crate::dir::hash::HashSettings;
use crate::inode::unwritten::Unwritten;
use crate::inode::{Inode, access_times};
use crate::mount_state::MountState;
use crate::orphan::Orphans;

/// The table of inodes of a volume, and what is shared by all of them.
pub(crate) struct Inodes {
    pub(crate) mount: Arc<MountState>,
    /// Inodes in memory.
    pub(crate) table: InodeTable<Inode>,
    /// File data.
    pub(crate) pages: Arc<PageCache>,
    /// Inodes that are dirty only because of their access time.
    pub(crate) accessed: access_times::Waiting,
    /// Inodes that sync has to write.
    pub(crate) unwritten: Unwritten,
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
            table: InodeTable::new(pages.budget().inode_limit(Inode::BYTES), Inode::can_evict),
            pages,
            accessed: access_times::Waiting::default(),
            unwritten: Unwritten::default(),
            orphans,
            hash,
        }
    }

    /// Changes the size of the cache.
    pub(crate) fn set_cache_bytes(&self, bytes: u64) {
        self.pages.budget().set_limit(bytes);
        self.table.set_limit(self.pages.budget().inode_limit(Inode::BYTES));
    }
}

impl Reclaim for Inodes {
    fn reclaim(&self, bytes: u64) -> u64 {
        reclaim_inodes(bytes, Inode::BYTES, |count| self.table.evict(count))
    }
}
