//! An inode in memory: its record, its locks, its cached data.
//!
//! Locks, in the order they may be taken (each ranked, two of a kind by inode number): `namespace`
//! (a directory's entries) → `data` (contents and size) → the operation lock → `state` (the record;
//! held briefly). Nothing is read from the device under `state`. The shape of the node tree changes
//! only under `namespace` (directories) or `data` (all others), alone.
//!
//! The record is written into its node by [`Inode::write_inode`]; one that has changed since is on
//! the volume's list of dirty inodes, which keeps it in memory, and is stored by the next
//! checkpoint at the latest.

pub(crate) mod access_times;
pub(crate) mod attributes;
pub(crate) mod data;
pub(crate) mod delayed;
pub(crate) mod delete;
mod freed;
pub(crate) mod inline;
pub(crate) mod lifetime;
mod load;
pub(crate) mod map;
pub(crate) mod mapper;
pub(crate) mod owned;
pub(crate) mod preallocate;
pub(crate) mod proof;
pub(crate) mod read_mapper;
pub(crate) mod setattr;
mod shift;
pub(crate) mod symlink;
pub(crate) mod tree;
pub(crate) mod truncate;
pub(crate) mod truncate_blocks;
pub(crate) mod writeback;
mod writeback_state;

use cairn_base::ranked_lock::{Mutex, RwLock};
use cairn_cache::budget::Charge;
use cairn_cache::durability::{Ledger, Part};
use cairn_cache::file::FileCache;
use cairn_vfs::FileKind;

use crate::dir::cache::DirCache;
use crate::format::inode::{InlineFlags, Inode as Record};
use crate::format::path::TreeShape;
use crate::format::units::{BLOCK_BYTES, Nid};

/// What changes under the `state` lock.
pub(crate) struct State {
    /// The record.
    pub(crate) record: Record,
    /// True if the record has changed since it was written into its node. [`Inode::mark_dirty`]
    /// sets it. The times of an inode without links do not count.
    pub(crate) dirty: bool,
    /// The inode's own area has extended attributes. Most have none and are asked for some often,
    /// so this is known without the node.
    pub(crate) inline_xattrs: bool,
    /// True once the inode is freed: nothing of it may be written any more.
    pub(crate) deleted: bool,
}

/// A parent and a name.
pub(crate) type KnownName = (Nid, Vec<u8>);

/// True if the inode points to blocks: its contents are not inline, and it is not a device or the
/// like.
#[must_use]
pub(crate) fn has_blocks(record: &Record) -> bool {
    let kind = matches!(record.kind, FileKind::Regular | FileKind::Directory | FileKind::Symlink);
    kind && !record.inline.intersects(InlineFlags::DATA | InlineFlags::DENTRY)
}

/// One inode, shared by all its users.
pub struct Inode {
    /// Number.
    pub(crate) nid: Nid,
    /// Kind; never changes while the number is in use.
    pub(crate) kind: FileKind,
    /// Device number of a device node.
    pub(crate) device: u32,
    /// Guards the entries of a directory.
    pub(crate) namespace: RwLock<()>,
    /// Guards contents and size.
    pub(crate) data: RwLock<()>,
    /// The record.
    pub(crate) state: RwLock<State>,
    /// The page cache (regular files).
    pub cache: FileCache,
    /// The known part of the map, and the reservation for delayed blocks (regular files).
    pub(crate) map: map::FileMap,
    /// Cached blocks of entries (directories of a writable volume).
    pub(crate) entries: DirCache,
    /// Which of its changes are durable.
    pub(crate) ledger: Ledger<u64>,
    /// Names that it may have, for [`crate::namespace::parent`].
    pub(crate) known_names: Mutex<Vec<KnownName>>,
    /// State for the next fsync.
    pub(crate) sync: writeback_state::SyncState,
    /// The memory of all this.
    #[expect(dead_code, reason = "held, not read")]
    charge: Charge,
}

impl Inode {
    /// Memory that an inode takes: with its counters, its cache, its map's status and its places in
    /// the table and in lists, as found for small files that were created (3,850 bytes in all).
    pub(crate) const BYTES: u64 = (size_of::<Self>() + FileCache::BYTES + 1536) as u64;

    /// True if nothing is lost when the inode leaves memory. `version` is that of the newest
    /// snapshot.
    pub(crate) fn can_leave(&self, version: Option<u64>) -> bool {
        if version.is_some_and(|version| self.ledger.changed_in(Part::Data, version)) {
            return false;
        }
        let idle =
            !self.cache.has_dirty() && !self.entries.is_dirty() && !self.cache.errors().is_needed();
        idle && self.state.try_read().is_some_and(|state| !state.dirty && state.record.links > 0)
    }

    /// A copy of the record.
    #[must_use]
    pub fn record(&self) -> Record {
        self.state.read().record.clone()
    }

    /// What `read` finds in the record, without a copy of it. `read` takes no lock.
    pub(crate) fn with_record<R>(&self, read: impl FnOnce(&Record) -> R) -> R {
        read(&self.state.read().record)
    }

    /// True if it has no extended attributes at all.
    #[must_use]
    pub(crate) fn has_no_xattrs(&self) -> bool {
        let state = self.state.read();
        state.record.xattr_nid.is_none() && !state.inline_xattrs
    }

    /// Size in bytes.
    #[must_use]
    pub(crate) fn size(&self) -> u64 {
        self.state.read().record.size
    }

    /// The largest possible size.
    #[must_use]
    pub(crate) fn max_size(&self) -> u64 {
        self.shape().max_blocks() * BLOCK_BYTES
    }

    /// The shape of its node tree.
    #[must_use]
    pub(crate) fn shape(&self) -> TreeShape {
        self.state.read().record.shape()
    }

    /// True if the contents or the entries are in the inode.
    #[must_use]
    pub(crate) fn is_inline(&self) -> bool {
        self.state.read().record.inline.intersects(InlineFlags::DATA | InlineFlags::DENTRY)
    }
}
