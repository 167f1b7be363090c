//! An inode in memory: its record, its locks, its cached data.
//!
//! Locks, in their order (each has a rank; two of one kind are taken in order of inode number):
//! `namespace` (a directory's entries); `data` (contents and size: shared for readers and
//! write-back, exclusive for every change of size or mapping); a handle; `state` (the record and
//! its block map, held briefly).
//!
//! [`State::record`]`.size` is the size *on disk*; `size` describes how it follows [`State::size`].
//! [`State::dirty`]: the record differs from the inode table.

pub(crate) mod access_times;
pub(crate) mod attributes;
pub(crate) mod data;
pub(crate) mod delete;
pub(crate) mod directory;

pub(crate) mod disksize;
mod eof_block;
mod extra_isize;
pub(crate) mod inline;
pub(crate) mod lifetime;
pub(crate) mod load;
pub(crate) mod mapper;
pub(crate) mod preallocate;
pub(crate) mod setattr;
mod state;
pub(crate) mod symlink;
pub(crate) mod truncate;
pub(crate) mod unwritten;
pub(crate) mod writeback;

use std::sync::{Arc, OnceLock};

use cairn_base::ranked_lock::{Rank, RwLock};
use cairn_base::{Ino, Tid};
use cairn_cache::budget::{Charge, Use};
use cairn_cache::durability::Ledger;
use cairn_cache::file::{FileCache, PageCache};
use cairn_cache::status::ExtentStatus;
use cairn_cache::writeback::Flushable;
use cairn_vfs::{Error as VfsError, FileKind};

use crate::checksum::InodeSeed;
use crate::form;
use crate::format::features::Incompat;
use crate::format::inode::{Inode as Record, InodeFlags};
use crate::format::layout::Layout;
use crate::store::Location;

use state::PendingDisksize;
pub(crate) use state::State;

/// True if the record has a block map: a file, a directory, or a symbolic link whose target has a
/// block, none of them inline. A device has none.
#[must_use]
pub(crate) fn has_block_map(record: &Record) -> bool {
    if record.flags.contains(InodeFlags::INLINE_DATA) {
        return false;
    }
    // A target in the inode has no block but perhaps one for attributes, and is shorter than the
    // map.
    let fast_target =
        record.is_symlink() && !record.flags.contains(InodeFlags::EXTENTS) && record.size < 60;
    record.is_regular() || record.is_directory() || (record.is_symlink() && !fast_target)
}

/// Initialises a record with an empty block map of the volume's kind.
pub(crate) fn init_block_map(layout: &Layout, record: &mut Record) {
    if layout.features.incompat(Incompat::EXTENTS) {
        record.flags.insert(InodeFlags::EXTENTS);
        crate::extent::initialize(&mut record.block);
    } else {
        record.block = [0; 60];
    }
}

/// An inode, shared by all its users.
pub(crate) struct Inode {
    /// Number.
    pub ino: Ino,
    /// Kind. It does not change while the number is in use.
    pub kind: FileKind,
    /// Place of the record.
    pub location: Location,
    /// Seed of the inode's checksums.
    pub seed: InodeSeed,
    /// Lock of a directory's entries.
    pub namespace: RwLock<()>,
    /// Lock of contents and size.
    pub data: RwLock<()>,
    /// The record.
    pub state: RwLock<State>,
    /// Cached contents of a regular file.
    pub cache: FileCache,
    /// What of the inode is durable.
    pub ledger: Ledger<Tid>,
    /// The cache's interface for writing the inode back.
    pub flusher: OnceLock<Arc<dyn Flushable>>,
    /// The memory of all this.
    #[expect(dead_code, reason = "held, not read")]
    charge: Charge,
}

impl Inode {
    /// Memory that an inode takes: with its counters, its cache, its flusher, its map's status and
    /// its places in the table and in lists. The constant makes it what a heap profile of a mount
    /// with 20,000 inodes showed for each: 3,830 bytes.
    pub(crate) const BYTES: u64 = (size_of::<Self>() + FileCache::BYTES + 1920) as u64;

    /// What is encrypted cannot be read: Cairn has no keys.
    ///
    /// # Errors
    /// [`VfsError::Encrypted`]: the contents, the names or the target are.
    pub(crate) fn check_readable(&self, layout: &Layout) -> Result<(), VfsError> {
        let has_feature = layout.features.incompat(Incompat::ENCRYPT);
        let is_encrypted = has_feature && form::is_encrypted(layout, &self.state.read().record);
        if is_encrypted { Err(VfsError::Encrypted) } else { Ok(()) }
    }

    /// Creates an inode that is new or was loaded.
    pub(crate) fn new(
        pages: &Arc<PageCache>,
        layout: &Layout,
        ino: Ino,
        location: Location,
        kind: FileKind,
        record: Record,
        ledger: Ledger<Tid>,
    ) -> Self {
        let order = ino.get();
        let seed = layout.checksum.for_inode(ino, record.generation);
        Self {
            ino,
            kind,
            location,
            seed,
            namespace: RwLock::new_ordered(Rank::Namespace, order, ()),
            data: RwLock::new_ordered(Rank::InodeData, order, ()),
            cache: FileCache::new(pages, layout.block_size),
            state: RwLock::new(
                Rank::Mapping,
                State {
                    size: record.size,
                    record,
                    delayed: 0,
                    status: ExtentStatus::default(),
                    dirty: false,
                    listed: false,
                    pending: PendingDisksize::default(),
                    stays_small: false,
                    deleted: false,
                },
            ),
            ledger,
            flusher: OnceLock::new(),
            charge: pages.budget().hold(Use::Inodes, Self::BYTES),
        }
    }

    /// Size in bytes, as readers see it.
    pub(crate) fn size(&self) -> u64 {
        self.state.read().size
    }

    /// True if extents map the inode.
    pub(crate) fn has_extents(&self) -> bool {
        self.state.read().record.flags.contains(InodeFlags::EXTENTS)
    }

    /// True if the inode has a block map: it is not inline, not a fast symbolic link, not a device.
    pub(crate) fn has_block_map(&self) -> bool {
        has_block_map(&self.state.read().record)
    }

    /// Most blocks of a file with this kind of map.
    pub(crate) fn max_blocks(&self, layout: &Layout) -> u64 {
        crate::map::max_file_blocks(self.has_extents(), layout.block_size)
    }

    /// Largest size of a file, in bytes.
    pub(crate) fn max_size(&self, layout: &Layout) -> u64 {
        crate::map::max_file_size(self.has_extents(), layout.block_size)
    }

    /// True if the directory can have one more subdirectory.
    pub(crate) fn may_gain_subdirectory(&self, layout: &Layout) -> bool {
        self.state.read().record.may_link(layout)
    }

    /// True if the inode can be evicted without losing changes. Changes that are not durable do not
    /// prevent that, because a loaded inode counts as changed in the transaction in flight
    /// ([`Ledger::loaded`]).
    pub(crate) fn can_evict(&self) -> bool {
        let idle = !self.cache.has_dirty() && !self.cache.errors().is_needed();
        idle && self.state.try_read().is_some_and(|state| {
            self.is_written(&state) && state.record.links > 0 && state.delayed == 0
        })
    }

    /// True if the inode table, or a transaction, has the record with the size that the file has in
    /// memory. The inodes for which it is false are listed: [`unwritten`].
    pub(crate) fn is_written(&self, state: &State) -> bool {
        !state.dirty && (self.kind != FileKind::Regular || state.record.size == state.size)
    }

    /// True if the inode holds the contents.
    pub(crate) fn is_inline(&self) -> bool {
        self.state.read().record.flags.contains(InodeFlags::INLINE_DATA)
    }
}
