//! Operations that change the volume: how they begin, and where their blocks come from.
//!
//! An operation checks what it can, starts a handle ([`MountState::begin`]), and changes structures
//! in it. There is no volume-wide lock.

use std::ops::Deref;
use std::sync::Arc;

use cairn_base::FileBlock;
use cairn_base::ranked_lock::{Mutex, Rank};
use cairn_block::BlockDevice;
use cairn_cache::mapper::Run;
use cairn_vfs::Error as VfsError;

use crate::alloc::{Allocation, Space};
use crate::error::{Error, Result};
use crate::format::inode::InodeFlags;
use crate::inode::{Inode, State};
use crate::inodes::Inodes;
use crate::map::{BlockMap, MapContext};
#[cfg(doc)]
use crate::mount_state::MountState;
use crate::space::BlockSource;
use crate::txn::{Handle, PartialChange};

/// Starts handles for operations, and says where their blocks come from.
pub(crate) struct Operations {
    pub(crate) inodes: Arc<Inodes>,
    /// Block and inode allocation.
    pub(crate) space: Arc<Space>,
    /// Held while a name moves between directories (Linux: `s_vfs_rename_mutex`).
    pub(crate) rename_mutex: Mutex<()>,
}

impl Deref for Operations {
    type Target = Inodes;

    fn deref(&self) -> &Inodes {
        &self.inodes
    }
}

impl Operations {
    pub(crate) fn new(inodes: Arc<Inodes>, space: Arc<Space>) -> Self {
        Self {
            inodes,
            space,
            // It ranks below every directory's lock, whose numbers start at 1.
            rename_mutex: Mutex::new_ordered(Rank::Namespace, 0, ()),
        }
    }

    /// The block map of an inode whose `state` is locked.
    pub(crate) fn map_of<'a>(&'a self, inode: &Inode, state: &State) -> BlockMap<'a> {
        self.map_with(inode, state, &*self.space)
    }

    /// The block map, with `source` for its own blocks.
    pub(crate) fn map_with<'a>(
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
    pub(crate) fn map_allocation(
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
                state.account(&self.layout, grown);
                Ok(())
            }
            Err(error) => {
                self.space.unmark(handle, allocation)?;
                Err(error)
            }
        }
    }

    /// Commits if the commit makes freed blocks available. True if the caller should try again.
    ///
    /// # Errors
    /// The journal was aborted.
    pub(crate) fn reclaim_freed(&self) -> Result<bool> {
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
    pub(crate) fn with_space<T>(&self, mut work: impl FnMut() -> Result<T>) -> Result<T> {
        match work() {
            Err(Error::Vfs(VfsError::NoSpace)) if self.reclaim_freed()? => {
                // What the first attempt began has been undone.
                PartialChange::take();
                work()
            }
            other => other,
        }
    }

    /// Passes options to the parts that keep copies.
    pub(crate) fn follow_options(&self) {
        self.space.set_stripe(self.options.get().stripe);
        self.space.set_pool(self.options.get().reserved_clusters);
        let wanted = self.options.get().discard;
        let device = Some(&self.device).filter(|device| wanted && device.geometry().discard);
        if wanted && device.is_none() {
            tracing::warn!("discard: the device does not discard");
        }
        self.space.set_discard(device.cloned());
    }
}
