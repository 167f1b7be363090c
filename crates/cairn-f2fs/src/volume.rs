//! A mounted volume: the parts, wired together. Each part knows only those below it.
//!
//! Locks are the parts' own; see their modules. `superblock` and the layout do not change while the volume is open.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use cairn_base::Pba;
use cairn_base::ranked_lock::{Mutex, Rank};
use cairn_base::runtime::{DaemonHandle, Runtime};
use cairn_base::stats::Report;
use cairn_block::BlockDevice;
use cairn_cache::block::BufferCache;
use cairn_cache::durability::Flushes;
use cairn_cache::file::PageCache;
use cairn_vfs::inode_table::InodeTable;
use cairn_vfs::{VolumeStats, WriteAccess};

use crate::blocks::Writes;
use crate::checkpoint::Loaded;
use crate::compress::ClusterCache;
use crate::dir::cache::DirCaches;
use crate::dirty::DirtyInodes;
use crate::error::{Error, Result};
use crate::format::layout::Layout;
use crate::format::superblock::{OFFSET, Superblock};
use crate::format::units::{BLOCK_SIZE, NAME_MAX, Nid};
use crate::fsync::Fsyncs;
use crate::gc::Collector;
use crate::inode::Inode;
use crate::nat::NatTable;
use crate::node::NodeCache;
use crate::options::MountOptions;
use crate::space::Counts;
use crate::store::Store;

/// Inodes kept in memory although nobody refers to them.
const INODES_IN_MEMORY: usize = 32_768;

/// The address of a superblock's copy, for whoever writes it: the second one first.
pub(crate) const SUPERBLOCKS: [Pba; 2] = [Pba(0), Pba(1)];

/// See the module.
pub struct Volume {
    /// The device: [`Volume::flushes`], as everybody sees it.
    pub device: Arc<dyn BlockDevice>,
    /// What of it is on the medium.
    pub flushes: Arc<Flushes>,
    /// Time, randomness, threads.
    pub runtime: Arc<dyn Runtime>,
    /// Mount options in force: see [`Volume::options`].
    pub(crate) options: Mutex<Arc<MountOptions>>,
    /// See [`crate::remount`].
    pub(crate) access: WriteAccess,
    /// The superblock as it was read, but for [`Volume::label`].
    pub superblock: Superblock,
    /// Held while it is written.
    label: Mutex<String>,
    /// Geometry.
    pub layout: Arc<Layout>,
    /// Blocks of metadata, nodes and directories, by address.
    pub buffers: Arc<BufferCache>,
    /// The checkpoint that was found at mount.
    pub checkpoint: Loaded,
    /// The NAT.
    pub nat: Arc<NatTable>,
    /// Nodes.
    pub nodes: NodeCache,
    /// Inodes in memory.
    pub inodes: InodeTable<Inode>,
    /// File data.
    pub pages: Arc<PageCache>,
    /// Unpacked clusters.
    pub clusters: ClusterCache,
    /// The write core, unless the volume was opened to be read only.
    pub store: Option<Arc<Store>>,
    /// Inodes that the last checkpoint has not seen as they are.
    pub dirty: DirtyInodes,
    /// Blocks of directories in memory.
    pub entries: Arc<DirCaches>,
    /// Dirty blocks of directories.
    pub dirty_entries: AtomicU64,
    /// Blocks that were unusable when checkpoints were disabled.
    pub(crate) unusable_at_first: AtomicU64,
    /// Inodes with blocks of entries that have their places and are not on the device yet.
    pub(crate) placed_entries: Mutex<Vec<Arc<Inode>>>,
    /// Moving a directory to another parent: one at a time, so that no loop can form.
    pub moves: Mutex<()>,
    pub(crate) daemons: Mutex<Vec<DaemonHandle>>,
    /// Why nothing is written now, although it could be or could have been.
    pub(crate) read_only: Mutex<Option<Arc<str>>>,
    pub(crate) closed: AtomicBool,
    /// Roll-forward runs: no checkpoint may be written.
    pub(crate) recovering: AtomicBool,
    /// Makes sections free.
    pub gc: Collector,
    /// What fsyncs share.
    pub fsyncs: Fsyncs,
}

/// What [`Volume::new`] wires together.
pub(crate) struct Parts {
    pub device: Arc<dyn BlockDevice>,
    pub flushes: Arc<Flushes>,
    pub runtime: Arc<dyn Runtime>,
    pub superblock: Superblock,
    pub layout: Arc<Layout>,
    pub buffers: Arc<BufferCache>,
    pub pages: Arc<PageCache>,
    pub checkpoint: Loaded,
    pub nat: Arc<NatTable>,
    pub nodes: NodeCache,
    pub store: Option<Arc<Store>>,
}

impl Volume {
    pub(crate) fn new(parts: Parts, options: MountOptions, read_only: Option<Arc<str>>) -> Self {
        let store = parts.store.clone();
        Self {
            device: parts.device,
            flushes: parts.flushes,
            runtime: parts.runtime,
            options: Mutex::new(Rank::LEAF, Arc::new(options)),
            access: WriteAccess::default(),
            label: Mutex::new(Rank::BUFFER, parts.superblock.label()),
            superblock: parts.superblock,
            layout: parts.layout,
            buffers: parts.buffers,
            checkpoint: parts.checkpoint,
            nat: parts.nat,
            nodes: parts.nodes,
            inodes: InodeTable::new(INODES_IN_MEMORY, move |inode: &Inode| {
                inode.can_leave(store.as_ref().map(|store| store.checkpoints.version()))
            }),
            entries: DirCaches::new(parts.pages.budget()),
            pages: parts.pages,
            clusters: ClusterCache::default(),
            store: parts.store,
            dirty: DirtyInodes::default(),
            dirty_entries: AtomicU64::new(0),
            unusable_at_first: AtomicU64::new(0),
            placed_entries: Mutex::new(Rank::LEAF, Vec::new()),
            // Before every directory's lock: numbers start at 3.
            moves: Mutex::new_ordered(Rank::NAMESPACE, 0, ()),
            daemons: Mutex::new(Rank::LEAF, Vec::new()),
            read_only: Mutex::new(Rank::LEAF, read_only),
            closed: AtomicBool::new(false),
            recovering: AtomicBool::new(false),
            gc: Collector::default(),
            fsyncs: Fsyncs::default(),
        }
    }

    /// The options in force.
    #[must_use]
    pub fn options(&self) -> Arc<MountOptions> {
        self.options.lock().clone()
    }

    /// Why nothing can be written, if that is so.
    #[must_use]
    pub fn read_only_reason(&self) -> Option<Arc<str>> {
        let asked = self.read_only.lock().clone();
        asked.or_else(|| self.store.as_ref().and_then(|store| store.operation_lock.stopped()))
    }

    /// The answer to everything that would write. A volume that has stopped answers with
    /// [`crate::operation_lock::OperationLock::check`].
    #[must_use]
    pub fn refuse_write(&self) -> Error {
        let stopped = self.store.as_ref().and_then(|store| store.operation_lock.check().err());
        stopped.unwrap_or_else(|| {
            let reason = self.read_only_reason().unwrap_or_else(|| "the volume is mounted read-only".into());
            Error::Vfs(cairn_vfs::Error::ReadOnly(reason))
        })
    }

    /// Blocks and nodes in use now.
    fn counts(&self) -> Counts {
        let checkpoint = &self.checkpoint.checkpoint;
        let found = || Counts {
            valid_blocks: checkpoint.valid_block_count,
            valid_nodes: checkpoint.valid_node_count,
            valid_inodes: checkpoint.valid_inode_count,
        };
        self.store.as_ref().map_or_else(found, |store| store.space.counts())
    }

    /// `statfs`, as Linux answers it: of all blocks behind the superblocks, what files can have is free; as many inodes as there are
    /// numbers or blocks.
    #[must_use]
    pub fn statfs(&self) -> VolumeStats {
        // Reservations without data count as free.
        self.pages.release_reservations();
        let checkpoint = &self.checkpoint.checkpoint;
        let counts = self.counts();
        let free = match &self.store {
            Some(store) => {
                store.space.set_unusable(self.unusable());
                store.space.free_blocks()
            }
            None => checkpoint.user_block_count.saturating_sub(counts.valid_blocks),
        };
        let user_blocks = self.store.as_ref().map_or(checkpoint.user_block_count, |store| store.space.user_blocks());
        // Numbers 0 to 2 are no inodes; every inode needs a block.
        let numbers = u64::from(self.layout.max_nid().saturating_sub(Nid::ROOT.get()));
        let used = u64::from(counts.valid_nodes);
        // As Linux counts them: where there are more numbers than blocks, the blocks are what ends first.
        let inodes = numbers.min(user_blocks);
        let fsid = self.superblock.uuid.first_chunk::<8>().map_or(0, |bytes| u64::from_le_bytes(*bytes));
        VolumeStats {
            block_size: BLOCK_SIZE as u32,
            blocks: self.layout.block_count.saturating_sub(self.layout.cp.into()),
            free_blocks: free,
            available_blocks: free,
            inodes,
            free_inodes: numbers.saturating_sub(used).min(free),
            name_max: NAME_MAX as u32,
            fsid,
        }
    }

    /// Bytes that can still be stored: none while the device has no room for what it was given.
    #[must_use]
    pub fn bytes_left(&self) -> u64 {
        if self.pages.lacks_room() {
            return 0;
        }
        let free = self.store.as_ref().map_or(0, |store| store.space.free_blocks());
        free.saturating_mul(BLOCK_SIZE as u64)
    }

    /// Counters and options in force.
    #[must_use]
    pub fn report(&self) -> Report {
        let (counts, stats) = (self.counts(), self.statfs());
        let free = self.checkpoint.checkpoint.free_segment_count;
        let mut state = Report::new().with("format", "f2fs");
        match self.read_only_reason() {
            Some(reason) => state.set("mode", "ro").set("read_only_reason", &*reason),
            None => state.set("mode", "rw"),
        };
        let state = state
            .with("frozen", self.access.is_frozen())
            .with("block_size", stats.block_size)
            .with("blocks", stats.blocks)
            .with("free_blocks", stats.free_blocks)
            .with("inodes", stats.inodes)
            .with("free_inodes", stats.free_inodes)
            .with("checkpoint_version", self.version())
            .with("valid_blocks", counts.valid_blocks)
            .with("valid_nodes", u64::from(counts.valid_nodes))
            .with("free_segments", u64::from(self.store.as_ref().map_or(free, |store| store.segments.free_segments())))
            .with("dirty_inodes", self.dirty.len())
            .with("dirty_entry_blocks", self.dirty_entries.load(Ordering::Relaxed))
            .with("inodes_in_memory", self.inodes.len());
        let report = Report::new().with("options", self.options().report()).with("state", state);
        let report = report.with("cache", self.pages.report());
        match &self.store {
            Some(store) => report
                .with("store", store.report())
                .with("checkpoint", self.disabled_report())
                .with("fsync", self.fsyncs.stats.report())
                .with("gc", self.gc.stats.report(store)),
            None => report,
        }
    }

    /// The label.
    #[must_use]
    pub fn label(&self) -> String {
        self.label.lock().clone()
    }

    /// Sets the label: in the second superblock, then in the first one.
    ///
    /// # Errors
    /// It is too long; the volume is read-only or has stopped, or the device failed.
    pub fn set_label(&self, label: &str) -> Result<()> {
        self.check_writable()?;
        let mut superblock = self.superblock.clone();
        if !superblock.set_label(label) {
            return Err(cairn_vfs::Error::Invalid("a label has at most 511 UTF-16 units").into());
        }
        let mut current = self.label.lock();
        let bytes = superblock.encode();
        for at in SUPERBLOCKS.into_iter().rev() {
            self.write_superblock(at, &bytes)?;
        }
        *current = label.into();
        Ok(())
    }

    fn write_superblock(&self, at: Pba, bytes: &[u8]) -> Result<()> {
        let mut block = crate::blocks::read(&*self.device, at, 1)?.to_vec();
        block[OFFSET..OFFSET + bytes.len()].copy_from_slice(bytes);
        let mut write = Writes::new();
        write.push(at, block);
        write.write(&*self.device).and_then(|()| Ok(self.device.flush()?))
    }

    /// Writes the first superblock, which was found damaged, as the second one says.
    pub(crate) fn restore_first_superblock(&self) -> Result<()> {
        self.write_superblock(SUPERBLOCKS[0], &self.superblock.encode())
    }

    /// See [`crate::operation_lock::OperationLock::moves`]; nothing moves on a volume that is only
    /// read.
    #[must_use]
    pub fn moves(&self) -> u64 {
        self.store.as_ref().map_or(0, |store| store.operation_lock.moves())
    }

    /// Version of the last checkpoint.
    fn version(&self) -> u64 {
        let found = self.checkpoint.checkpoint.version;
        self.store.as_ref().map_or(found, |store| store.checkpoints.last().version)
    }
}
