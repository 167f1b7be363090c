//! The inodes of a volume: those in memory, which of them are dirty, and the caches of their
//! contents.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use cairn_base::Ino;
use cairn_base::runtime::Runtime;
use cairn_cache::budget::{Reclaim, reclaim_inodes};
use cairn_cache::file::PageCache;
use cairn_vfs::Timestamp;
use cairn_vfs::inode_table::InodeTable;

use crate::compress::ClusterCache;
use crate::dir::cache::DirCaches;
use crate::dirty::DirtyInodes;
use crate::disk::Disk;
use crate::format::units::BLOCK_BYTES;
use crate::inode::Inode;
use crate::mount_state::MountState;
use crate::segment::Mode;
use crate::space::Pending;
use crate::store::Store;

/// The table of inodes of a volume, and what is shared by all of them.
pub struct Inodes {
    pub(crate) disk: Arc<Disk>,
    pub(crate) mount: Arc<MountState>,
    /// Time, randomness, threads.
    pub(crate) runtime: Arc<dyn Runtime>,
    /// Inodes in memory.
    pub table: InodeTable<Inode>,
    /// Inodes that have changed since the last checkpoint.
    pub(crate) dirty: DirtyInodes,
    /// File data.
    pub pages: Arc<PageCache>,
    /// Unpacked clusters.
    pub(crate) clusters: ClusterCache,
    /// Blocks of directories in memory.
    pub(crate) directories: Arc<DirCaches>,
    /// Dirty blocks of directories.
    pub(crate) dirty_entries: AtomicU64,
}

impl Inodes {
    pub(crate) fn new(
        mount: Arc<MountState>,
        pages: Arc<PageCache>,
        runtime: Arc<dyn Runtime>,
    ) -> Self {
        let disk = mount.disk.clone();
        let store = disk.store.clone();
        Self {
            disk,
            mount,
            runtime,
            table: InodeTable::new(
                pages.budget().inode_limit(Inode::BYTES),
                move |inode: &Inode| {
                    inode.can_leave(store.as_ref().map(|store| store.checkpoints.version()))
                },
            ),
            dirty: DirtyInodes::default(),
            clusters: ClusterCache::default(),
            directories: DirCaches::new(pages.budget()),
            pages,
            dirty_entries: AtomicU64::new(0),
        }
    }

    /// The volume's clock.
    pub(crate) fn now(&self) -> Timestamp {
        Timestamp::from(self.runtime.now())
    }

    /// True if the inode has no references.
    pub(crate) fn is_unused(&self, ino: Ino) -> bool {
        self.table.references(ino) == 0
    }

    /// Dirty blocks that will take new addresses at the next checkpoint.
    pub(crate) fn pending(&self) -> Pending {
        let store = self.disk.store.as_ref();
        let nodes = store.map_or(0, |store| store.nodes.dirty_count() as u64);
        let dentries = self.dirty_entries.load(Ordering::Relaxed);
        let lfs = store.is_some_and(|store| store.segments.mode() == Mode::Lfs);
        // If data is never overwritten in place, each dirty page needs a block.
        let data = if lfs { self.pages.dirty_bytes() / BLOCK_BYTES } else { 0 };
        Pending { nodes, dentries, inodes: self.dirty.len() as u64, data }
    }

    /// Counts what can be allocated while checkpoints are disabled.
    pub(crate) fn limit_space(&self, store: &Store) {
        if store.checkpoints.is_disabled() {
            store.limit_space(self.pending(), self.pages.dirty_bytes() / BLOCK_BYTES);
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
