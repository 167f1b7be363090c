//! An inode in memory: its record, its locks, its cached data.
//!
//! Locks, in the order they may be taken (each ranked, two of a kind by inode number):
//! `namespace` (a directory's entries) → `data` (contents and size: readers and write-back shared, everything that
//! changes size or mapping exclusive) → a handle → `state` (the record and its block map; held briefly).
//!
//! [`State::record`]`.size` is the size *on disk*; see `size` for how it follows [`State::size`]. [`State::dirty`] says that the
//! record differs from the inode table.

pub mod access_times;
pub mod attributes;
pub mod data;
pub mod delete;
pub mod directory;
mod extra_isize;
pub mod inline;
pub mod load;
pub mod mapper;
pub mod preallocate;
pub(crate) mod size;
pub mod truncate;

use std::sync::{Arc, OnceLock};

use cairn_base::ranked_lock::{Rank, RwLock};
use cairn_base::{Ino, Pba, Tid};
use cairn_cache::durability::{Ledger, Part};
use cairn_cache::file::FileCache;
use cairn_cache::status::ExtentStatus;
use cairn_vfs::FileKind;

use crate::checksum::InodeSeed;
use crate::error::Result;
use crate::format::inode::{Inode as Record, InodeFlags};
use crate::txn::Handle;
use crate::volume::Volume;

/// Where an inode's record lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Location {
    /// Inode table block.
    pub block: Pba,
    /// Byte offset of the record in it.
    pub offset: usize,
}

/// What changes under the `state` lock.
pub struct State {
    /// The record as it is, or will be, in the inode table.
    pub record: Record,
    /// Size in bytes as readers see it.
    pub size: u64,
    /// Blocks reserved for delayed data (`i_reserved_data_blocks`).
    pub delayed: u64,
    /// What is known of the block map, with all delayed ranges.
    pub status: ExtentStatus,
    /// `record` has changed since it was stored.
    pub dirty: bool,
    /// What keeps the size on disk back.
    pub pending: size::PendingDisksize,
    /// The fields of its record cannot grow: see the module `extra_isize`.
    pub stays_small: bool,
    /// The record has been freed; only teardown may touch the inode.
    pub deleted: bool,
}

/// True if the record maps blocks: a file, a directory, or a link whose target has a block; neither inline nor a device.
#[must_use]
pub fn has_block_map(record: &Record) -> bool {
    if record.flags.contains(InodeFlags::INLINE_DATA) {
        return false;
    }
    // A target in the inode owns no blocks but perhaps one of attributes, and never fills the map's place.
    let fast_target = record.is_symlink() && !record.flags.contains(InodeFlags::EXTENTS) && record.size < 60;
    record.is_regular() || record.is_directory() || (record.is_symlink() && !fast_target)
}

/// One inode, shared by all who use it.
pub struct Inode {
    /// Number.
    pub ino: Ino,
    /// Kind; never changes while the number is in use.
    pub kind: FileKind,
    /// Place of the record.
    pub location: Location,
    /// Seed of this inode's checksums.
    pub seed: InodeSeed,
    /// Entries of a directory.
    pub namespace: RwLock<()>,
    /// Contents and size.
    pub data: RwLock<()>,
    /// The record.
    pub state: RwLock<State>,
    /// Cached contents (regular files).
    pub cache: FileCache,
    /// What of it is durable.
    pub ledger: Ledger<Tid>,
    /// What the cache calls to have this inode written back.
    pub flusher: OnceLock<Arc<load::Flusher>>,
}

impl Inode {
    /// An inode that is being made, or was stored by somebody who is not in memory any more.
    pub(crate) fn new(
        volume: &Volume,
        ino: Ino,
        location: Location,
        kind: FileKind,
        record: Record,
        ledger: Ledger<Tid>,
    ) -> Self {
        let order = ino.get();
        let seed = volume.layout.checksum.for_inode(ino, record.generation);
        Self {
            ino,
            kind,
            location,
            seed,
            namespace: RwLock::new_ordered(Rank::NAMESPACE, order, ()),
            data: RwLock::new_ordered(Rank::INODE_DATA, order, ()),
            cache: FileCache::new(&volume.pages, volume.layout.block_size),
            state: RwLock::new(
                Rank::MAPPING,
                State {
                    size: record.size,
                    record,
                    delayed: 0,
                    status: ExtentStatus::default(),
                    dirty: false,
                    pending: size::PendingDisksize::default(),
                    stays_small: false,
                    deleted: false,
                },
            ),
            ledger,
            flusher: OnceLock::new(),
        }
    }

    /// Size in bytes as readers see it.
    pub fn size(&self) -> u64 {
        self.state.read().size
    }

    /// True if the contents live in the inode.
    pub fn is_inline(&self) -> bool {
        self.state.read().record.flags.contains(InodeFlags::INLINE_DATA)
    }

    /// Writes the record into its inode table block as part of `handle`: more than times may have changed.
    pub fn write_inode(&self, volume: &Volume, handle: &Handle, state: &mut State) -> Result<()> {
        self.write_inode_times(volume, handle, state)?;
        self.ledger.changed(Part::Data, handle.tid());
        Ok(())
    }

    /// The same where nothing but times has changed: fdatasync does without it.
    pub fn write_inode_times(&self, volume: &Volume, handle: &Handle, state: &mut State) -> Result<()> {
        let buffer = volume.buffers.get(self.location.block)?;
        state.update_disksize();
        extra_isize::grow(volume, handle, self.ino, state)?;
        let orphans = &volume.orphans;
        orphans.with_link(self.ino, |link| {
            if let Some(next) = link {
                // While an inode is on the orphan list, its deletion time holds the next one's number.
                state.record.dtime = next;
            }
            let mut block = handle.write(&buffer)?;
            let end = self.location.offset + volume.layout.inode_size as usize;
            state.record.encode(self.ino, &volume.layout, &mut block[self.location.offset..end]);
            Ok::<_, crate::Error>(())
        })?;
        state.dirty = false;
        self.ledger.changed(Part::Attributes, handle.tid());
        Ok(())
    }
}
