//! A mounted volume: its parts, and functions that concern several of them.
//!
//! [`MountState`] is for who changes structures on disk. [`Volume`] adds what inodes need: folios,
//! space, the inode table, orphans. There is no volume-wide lock.

use std::ops::Deref;
use std::sync::Arc;

use cairn_base::ranked_lock::{Mutex, Rank};
use cairn_base::runtime::DaemonHandle;
use cairn_base::{FileBlock, Ino, Pba};
use cairn_block::BlockDevice;
use cairn_cache::file::PageCache;
use cairn_cache::mapper::Run;
use cairn_vfs::Error as VfsError;
use cairn_vfs::inode_table::InodeTable;

use crate::alloc::{Allocation, Space};
use crate::dir::hash::HashSettings;
use crate::error::{Error, Result};
use crate::format::features::Incompat;
use crate::format::inode::{Inode as Record, InodeFlags};
use crate::inode::{Inode, State, access_times};
use crate::map::{BlockMap, MapContext};
use crate::mount_state::MountState;
use crate::orphan::{FoundSlots, Orphans};
use crate::space::BlockSource;
use crate::txn::{Handle, PartialChange};

/// Inodes without references that are kept in memory.
const INODES_IN_MEMORY: usize = 32_768;
/// Bytes of a sector in an inode's block count.
const SECTOR: u64 = 512;

/// A mounted volume.
pub struct Volume {
    /// How it is mounted.
    pub(crate) mount: Arc<MountState>,
    /// The page cache.
    pub pages: Arc<PageCache>,
    /// Orphans for which recovery waits, because the volume was mounted read-only.
    pub(crate) unfinished: Mutex<Option<FoundSlots>>,
    /// Block and inode allocation.
    pub space: Arc<Space>,
    /// Inodes in memory.
    pub inodes: InodeTable<Inode>,
    /// Inodes that are dirty only because of their access time.
    pub(crate) accessed: access_times::Waiting,
    /// Inodes that are unlinked but open, or being truncated.
    pub orphans: Orphans,
    /// Held while a name moves between directories (Linux: `s_vfs_rename_mutex`).
    pub rename_mutex: Mutex<()>,
    /// The daemons for write-back and readahead.
    pub(crate) daemons: Mutex<Vec<DaemonHandle>>,
    /// How the volume hashes names.
    pub hash: HashSettings,
}

impl Deref for Volume {
    type Target = MountState;

    fn deref(&self) -> &MountState {
        &self.mount
    }
}

impl Volume {
    /// Connects the parts of a volume.
    pub(crate) fn new(
        mount: Arc<MountState>,
        pages: Arc<PageCache>,
        space: Arc<Space>,
        orphans: Orphans,
        hash: HashSettings,
    ) -> Arc<Self> {
        Arc::new(Self {
            mount,
            pages,
            unfinished: Mutex::new(Rank::Leaf, None),
            space,
            inodes: InodeTable::new(INODES_IN_MEMORY, Inode::can_evict),
            accessed: access_times::Waiting::default(),
            orphans,
            hash,
            // It ranks below every directory's lock, whose numbers start at 1.
            rename_mutex: Mutex::new_ordered(Rank::Namespace, 0, ()),
            daemons: Mutex::new(Rank::Leaf, Vec::new()),
        })
    }

    /// The block map of an inode whose `state` is locked.
    pub fn map_of<'a>(&'a self, inode: &Inode, state: &State) -> BlockMap<'a> {
        self.map_with(inode, state, &*self.space)
    }

    /// The block map, with `source` for its own blocks.
    pub fn map_with<'a>(
        &'a self,
        inode: &Inode,
        state: &State,
        source: &'a dyn BlockSource,
    ) -> BlockMap<'a> {
        let context = MapContext {
            ino: inode.ino,
            seed: inode.seed,
            layout: &self.layout,
            system: self.groups.system_blocks(inode.ino),
            buffers: &self.buffers,
            source,
        };
        BlockMap::new(context, state.record.flags.contains(InodeFlags::EXTENTS))
    }

    /// Marks allocated blocks in use and maps them, or cancels the allocation. The caller updates
    /// the status cache and writes the inode.
    ///
    /// # Errors
    /// The volume is damaged or full, or the journal was aborted.
    pub fn map_allocation(
        &self,
        handle: &Handle,
        inode: &Inode,
        state: &mut State,
        allocation: Allocation,
        start: FileBlock,
        unwritten: bool,
    ) -> Result<()> {
        if let Err(error) = self.space.mark(handle, &allocation) {
            self.space.cancel(allocation);
            return Err(error);
        }
        let run = Run { start, len: u64::from(allocation.len) };
        let source = self.space.for_mapping();
        let map = self.map_with(inode, state, &source);
        match map.insert(handle, &mut state.record.block, run, allocation.start, unwritten) {
            Ok(grown) => {
                self.account(state, grown);
                Ok(())
            }
            Err(error) => {
                self.space.unmark(handle, allocation)?;
                Err(error)
            }
        }
    }

    /// Initialises a record with an empty block map of the volume's kind.
    pub fn init_block_map(&self, record: &mut Record) {
        if self.layout.features.incompat(Incompat::EXTENTS) {
            record.flags.insert(InodeFlags::EXTENTS);
            crate::extent::initialize(&mut record.block);
        } else {
            record.block = [0; 60];
        }
    }

    /// True if extents map the inode.
    pub fn has_extents(&self, inode: &Inode) -> bool {
        inode.state.read().record.flags.contains(InodeFlags::EXTENTS)
    }

    /// True if the inode has a block map: it is not inline, not a fast symbolic link, not a device.
    pub fn has_block_map(&self, inode: &Inode) -> bool {
        let state = inode.state.read();
        crate::inode::has_block_map(&state.record)
    }

    /// The preferred place of an inode's first block.
    pub fn group_goal(&self, ino: Ino) -> Pba {
        self.space.goal_of(ino)
    }

    /// Adds blocks to an inode's count, or subtracts them.
    pub fn account(&self, state: &mut State, blocks: i64) {
        let sectors =
            blocks * i64::try_from(u64::from(self.layout.block_size) / SECTOR).unwrap_or(0);
        state.record.blocks_512 = state.record.blocks_512.saturating_add_signed(sectors);
    }

    /// Most blocks of a file with this kind of map.
    pub fn max_file_blocks(&self, inode: &Inode) -> u64 {
        crate::map::max_file_blocks(self.has_extents(inode), self.layout.block_size)
    }

    /// Largest size of a file, in bytes.
    pub fn max_file_size(&self, inode: &Inode) -> u64 {
        self.max_file_blocks(inode)
            .saturating_mul(u64::from(self.layout.block_size))
            .min(i64::MAX as u64)
    }

    /// Commits if the commit makes freed blocks available. True if the caller should try again.
    ///
    /// # Errors
    /// The journal was aborted.
    pub fn reclaim_freed(&self) -> Result<bool> {
        let given_back = self.pages.space_is_short();
        if self.space.pending_free() == 0 {
            return Ok(given_back);
        }
        if let Some(journal) = self.journal() {
            journal.force_commit()?;
        }
        Ok(true)
    }

    /// Runs an operation. If it finds no space and a commit makes some available, commits and runs
    /// it once more.
    ///
    /// # Errors
    /// The error of `work`, or the journal was aborted.
    pub fn with_space<T>(&self, mut work: impl FnMut() -> Result<T>) -> Result<T> {
        match work() {
            Err(Error::Vfs(VfsError::NoSpace)) if self.reclaim_freed()? => {
                // What the first attempt began has been undone.
                PartialChange::take();
                work()
            }
            other => other,
        }
    }

    /// True if the directory can have one more subdirectory.
    pub fn may_gain_subdirectory(&self, parent: &Inode) -> bool {
        parent.state.read().record.may_link(&self.layout)
    }

    /// Adds `change` to the link count of a directory, for its subdirectories.
    pub fn count_subdirectories(&self, state: &mut State, change: i32) {
        for _ in 0..change.max(0) {
            state.record.add_link();
        }
        for _ in change.min(0)..0 {
            state.record.drop_link();
        }
    }

    /// Passes options to the parts that keep copies.
    pub(crate) fn follow_options(&self) {
        self.space.set_stripe(self.options.get().stripe);
        let wanted = self.options.get().discard;
        let device = Some(&self.device).filter(|device| wanted && device.geometry().discard);
        if wanted && device.is_none() {
            tracing::warn!("discard: the device does not discard");
        }
        self.space.set_discard(device.cloned());
    }
}
