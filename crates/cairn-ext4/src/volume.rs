//! A mounted volume: its parts, and functions that concern several of them.
//!
//! [`Store`] is for structures on disk. [`Volume`] adds what inodes need: folios, transactions,
//! space, the inode table, orphans. There is no volume-wide lock.

use std::ops::Deref;
use std::sync::{Arc, Weak};

use cairn_base::ranked_lock::{Mutex, Rank, RwLock};
use cairn_base::runtime::DaemonHandle;
use cairn_base::{FileBlock, Ino, Pba};
use cairn_block::{BlockDevice, BlockDeviceExt};
use cairn_cache::file::PageCache;
use cairn_cache::mapper::Run;
use cairn_jbd2::Journal;
use cairn_vfs::inode_table::InodeTable;
use cairn_vfs::{Error as VfsError, ReservedFor, VolumeStats, WriteAccess};

use crate::alloc::{Allocation, Class, Space};
use crate::credits::Credits;
use crate::damage_log::DamageLog;
use crate::dir::hash::HashSettings;
use crate::error::{Error, Result};
use crate::format::features::Incompat;
use crate::format::inode::{Inode as Record, InodeFlags};
use crate::inode::{Inode, State, access_times};
use crate::live_options::LiveOptions;
use crate::map::{BlockMap, MapContext};
use crate::options::MountOptions;
use crate::orphan::{FoundSlots, Orphans};
use crate::space::BlockSource;
use crate::stop_cause::Stopped;
use crate::store::Store;
use crate::txn::{Handle, PartialChange, Txn};

/// Inodes without references that are kept in memory.
const INODES_IN_MEMORY: usize = 32_768;
/// Bytes of a sector in an inode's block count.
const SECTOR: u64 = 512;

/// A mounted volume.
pub struct Volume {
    store: Store,
    /// The page cache.
    pub pages: Arc<PageCache>,
    /// The destination of metadata changes. It is replaced when the volume turns read-only or
    /// writable.
    txn: RwLock<Txn>,
    /// Which calls may change the volume; see [`crate::remount`].
    pub(crate) access: WriteAccess,
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
    /// The mount options.
    pub options: LiveOptions,
    /// Credits of each kind of operation.
    pub credits: Credits,
    /// Held while a name moves between directories (Linux: `s_vfs_rename_mutex`).
    pub rename_mutex: Mutex<()>,
    /// The daemons for write-back and readahead.
    pub(crate) daemons: Mutex<Vec<DaemonHandle>>,
    /// How the volume hashes names.
    pub hash: HashSettings,
    /// Why nothing may be written; `None` if the volume is writable.
    pub(crate) stopped: Mutex<Option<Stopped>>,
    /// Damage to be recorded; see [`crate::damage`].
    pub(crate) damage: DamageLog,
    /// The volume itself, for deferred work.
    pub(crate) me: Weak<Self>,
}

impl Deref for Volume {
    type Target = Store;

    fn deref(&self) -> &Store {
        &self.store
    }
}

impl Volume {
    /// Connects the parts of a volume. `stopped` is the reason if the volume is read-only.
    #[expect(clippy::too_many_arguments, reason = "the one place where everything meets")]
    pub(crate) fn new(
        store: Store,
        pages: Arc<PageCache>,
        txn: Txn,
        space: Arc<Space>,
        orphans: Orphans,
        options: MountOptions,
        hash: HashSettings,
        stopped: Option<Stopped>,
    ) -> Arc<Self> {
        let credits = Credits::for_layout(&store.layout);
        Arc::new_cyclic(|me| Self {
            store,
            pages,
            txn: RwLock::new(Rank::Leaf, txn),
            access: WriteAccess::default(),
            unfinished: Mutex::new(Rank::Leaf, None),
            space,
            inodes: InodeTable::new(INODES_IN_MEMORY, Inode::can_evict),
            accessed: access_times::Waiting::default(),
            orphans,
            options: LiveOptions::new(options),
            credits,
            hash,
            // It ranks below every directory's lock, whose numbers start at 1.
            rename_mutex: Mutex::new_ordered(Rank::Namespace, 0, ()),
            daemons: Mutex::new(Rank::Leaf, Vec::new()),
            stopped: Mutex::new(Rank::Leaf, stopped),
            damage: DamageLog::default(),
            me: me.clone(),
        })
    }

    /// The present destination of metadata changes.
    pub fn txn(&self) -> Txn {
        self.txn.read().clone()
    }

    /// The journal of a writable volume that has one.
    pub fn journal(&self) -> Option<Arc<Journal>> {
        match &*self.txn.read() {
            Txn::Journaled(journal) => Some(journal.clone()),
            Txn::Direct(_) => None,
        }
    }

    pub(crate) fn set_txn(&self, txn: Txn) {
        *self.txn.write() = txn;
    }

    /// Starts a handle.
    ///
    /// # Errors
    /// As [`Txn::begin`].
    pub fn begin(&self, credits: u32) -> Result<Handle> {
        self.txn().begin(credits)
    }

    /// Gets credits for `credits` more blocks. The handle may move to a new transaction.
    ///
    /// # Errors
    /// As [`Handle::extend`].
    pub fn ensure_credits(&self, handle: &mut Handle, credits: u32) -> Result<()> {
        let left = handle.credits_left();
        if left >= credits || handle.extend(credits - left)? {
            return Ok(());
        }
        handle.restart(credits)
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

    /// The user and the group who may use the root-reserved blocks, if there are any.
    pub fn reserved_for(&self) -> Option<ReservedFor> {
        (self.layout.root_reserved_blocks > 0).then(|| {
            let (options, of) = (self.options.get(), self.layout.reserved_for);
            ReservedFor {
                uid: options.reserved_uid.unwrap_or(of.uid),
                gid: options.reserved_gid.unwrap_or(of.gid),
            }
        })
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

    /// Bytes that can still be stored. With `reserved`, root-reserved blocks count. None while the
    /// device has no room for dirty data.
    pub fn room(&self, reserved: bool) -> u64 {
        if self.pages.lacks_room() {
            return 0;
        }
        let class = if reserved { Class::Privileged } else { Class::User };
        self.space.available(class).saturating_mul(u64::from(self.layout.block_size))
    }

    /// `statfs`.
    pub fn statfs(&self) -> VolumeStats {
        // Blocks reserved ahead of a writer count as free.
        self.pages.release_reservations();
        let layout = &self.layout;
        let overhead = if self.options.get().minix_df { 0 } else { self.overhead };
        let free = self.space.unused();
        let uuid = layout.uuid;
        let half = |at: usize| {
            uuid.get(at..)
                .and_then(|rest| rest.first_chunk::<8>())
                .map_or(0, |raw| u64::from_le_bytes(*raw))
        };
        VolumeStats {
            block_size: layout.block_size,
            blocks: layout.blocks_count.saturating_sub(overhead),
            free_blocks: free,
            available_blocks: self.space.available(Class::User).min(free),
            inodes: u64::from(layout.inodes_count),
            free_inodes: self.groups.free_inodes_total(),
            name_max: 255,
            fsid: half(0) ^ half(8),
        }
    }

    /// `FITRIM`: discards free space of a byte range, in runs of at least `minimum` bytes. Returns
    /// the number of bytes.
    ///
    /// # Errors
    /// [`VfsError::Unsupported`] if the device cannot discard, [`VfsError::Invalid`] if the range
    /// is outside the volume or `minimum` is larger than a group; a bitmap is damaged.
    pub fn trim(&self, offset: u64, len: u64, minimum: u64) -> Result<u64> {
        self.check_writable()?;
        let block_size = u64::from(self.layout.block_size);
        if !self.device.geometry().discard {
            return Err(VfsError::Unsupported("the device does not discard").into());
        }
        let (start, least) = (offset / block_size, minimum / block_size);
        let per_group = self.layout.blocks_per_group;
        if start >= self.layout.blocks_count || len < block_size || least > per_group.into() {
            let what = "trimming takes a range that starts in the volume and has a block, and runs no longer than a group";
            return Err(VfsError::Invalid(what).into());
        }
        let (start, count, least) =
            (Pba(start), len / block_size, u32::try_from(least).unwrap_or(per_group));
        let done = self.space.trim(start, count, least, &mut |pba, blocks| {
            Ok(self.device.discard(pba.get() * block_size, blocks * block_size)?)
        })?;
        Ok(done * block_size)
    }

    /// Sets the label.
    ///
    /// # Errors
    /// The superblock cannot be read, or the journal was aborted.
    pub fn set_label(&self, label: &[u8]) -> Result<()> {
        self.check_writable()?;
        let handle = self.begin(self.credits.attributes)?;
        self.superblock.set_label(self, &handle, label)?;
        handle.finish();
        drop(handle);
        // Programs that read the image (blkid, udev) then see the label.
        if let Some(journal) = self.journal() {
            journal.force_commit()?;
            journal.checkpoint_all()?;
        } else {
            self.buffers.write_back()?;
            self.device.flush()?;
        }
        Ok(())
    }
}
