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

pub mod attributes;
pub mod data;
pub mod delete;
pub mod lifetime;
pub mod map;
pub mod mapper;
pub mod preallocate;
pub mod resize;
mod shift;
pub mod symlink;
pub mod sync;
pub mod tree;
pub mod truncate;
pub mod write;
pub mod writer;

use std::sync::Arc;

use cairn_base::Ino;
use cairn_base::ranked_lock::{Mutex, Rank, RwLock};
use cairn_cache::durability::{Ledger, Part};
use cairn_cache::file::FileCache;
use cairn_vfs::FileKind;

use crate::dir::cache::DirCache;
use crate::error::{Error, Result};
use crate::format::features::Features;
use crate::format::inode::{Advise, InlineFlags, Inode as Record};
use crate::format::units::{BLOCK_SIZE, Nid};
use crate::namespace::parent::Known;
use crate::volume::Volume;

/// What changes under the `state` lock.
pub struct State {
    /// The record.
    pub record: Record,
    /// The record has changed since it was written into its node. Set by [`Inode::touch`].
    pub(crate) dirty: bool,
    /// Freed: nothing of it may be written any more.
    pub(crate) deleted: bool,
}

/// Does the inode point to blocks? Not if its contents are in it, nor if it is a device or the like.
#[must_use]
pub fn has_blocks(record: &Record) -> bool {
    let kind = matches!(record.kind, FileKind::Regular | FileKind::Directory | FileKind::Symlink);
    kind && !record.inline.intersects(InlineFlags::DATA | InlineFlags::DENTRY)
}

/// One inode, shared by all who use it.
pub struct Inode {
    /// Number.
    pub nid: Nid,
    /// Kind; never changes while the number is in use.
    pub kind: FileKind,
    /// Device number of a device node.
    pub device: u32,
    /// Entries of a directory.
    pub namespace: RwLock<()>,
    /// Contents and size.
    pub data: RwLock<()>,
    /// The record.
    pub state: RwLock<State>,
    /// Cached contents (regular files).
    pub cache: FileCache,
    /// What is known of the map, and what is reserved for delayed blocks (regular files).
    pub map: map::FileMap,
    /// Cached blocks of entries (directories of a volume that is written).
    pub entries: DirCache,
    /// What of it is durable.
    pub ledger: Ledger<u64>,
    /// Names that it may have, for [`crate::namespace::parent`].
    pub(crate) known_names: Mutex<Vec<Known>>,
    /// For the next fsync.
    pub sync: sync::SyncState,
}

impl Inode {
    /// Reads an inode.
    ///
    /// # Errors
    /// [`cairn_vfs::Error::Stale`] if there is none; it is damaged; the device failed.
    pub fn load(volume: &Volume, ino: Ino) -> Result<Self> {
        let nid = Nid::of(ino).ok_or(cairn_vfs::Error::Stale)?;
        let image = volume.nodes.inode(nid)?.ok_or(cairn_vfs::Error::Stale)?;
        let record = Record::decode(&image, nid, volume.layout.features)?;
        let version = volume.store.as_ref().map_or(0, |store| store.checkpoints.version());
        // Changed names, and nodes that left the tree, keep the inode in memory until the next
        // snapshot. So the newest snapshot has them.
        let ledger = Ledger::loaded(&volume.flushes, &[Part::Names], version.saturating_sub(1));
        Ok(Self::new(volume, nid, record, &image, ledger))
    }

    /// An inode of this record; `image` is its node.
    #[must_use]
    pub fn new(volume: &Volume, nid: Nid, record: Record, image: &[u8], ledger: Ledger<u64>) -> Self {
        let is_device = matches!(record.kind, FileKind::BlockDevice | FileKind::CharDevice);
        let order = u64::from(nid.get());
        Self {
            nid,
            kind: record.kind,
            device: if is_device { record.device(image) } else { 0 },
            namespace: RwLock::new_ordered(Rank::NAMESPACE, order, ()),
            data: RwLock::new_ordered(Rank::INODE_DATA, order, ()),
            cache: FileCache::new(&volume.pages, BLOCK_SIZE as u32),
            state: RwLock::new(Rank::MAPPING, State { record, dirty: false, deleted: false }),
            map: map::FileMap::new(order),
            entries: DirCache::new(&volume.entries),
            ledger,
            known_names: Mutex::new(Rank::LEAF, Vec::new()),
            sync: sync::SyncState::new(order),
        }
    }

    /// The record has changed: the next checkpoint stores it, if nobody does before.
    pub fn touch(self: &Arc<Self>, volume: &Volume, state: &mut State) {
        if !state.dirty && !state.deleted {
            state.dirty = true;
            volume.dirty.insert(self);
        }
    }

    /// Writes the record into its node if it has changed. The caller holds the operation lock,
    /// shared or exclusively.
    ///
    /// # Errors
    /// The node is damaged, or the device failed.
    pub fn write_inode(&self, volume: &Volume) -> Result<()> {
        // The node first: nothing is read under the state.
        let store = volume.store()?;
        let node = match store.nodes.inode(self.nid)? {
            Some(node) => node,
            None if self.state.read().deleted => return Ok(()),
            None => return Err(cairn_vfs::Error::Stale.into()),
        };
        let mut state = self.state.write();
        if std::mem::take(&mut state.dirty) && !state.deleted {
            state.record.encode_into(&mut node.modify());
        }
        if !self.entries.is_dirty() {
            volume.dirty.remove(self.nid);
        }
        Ok(())
    }

    /// True if nothing is lost when the inode leaves memory. `version` is that of the newest
    /// snapshot.
    pub(crate) fn can_leave(&self, version: Option<u64>) -> bool {
        if version.is_some_and(|version| self.ledger.changed_in(Part::Data, version)) {
            return false;
        }
        let idle = !self.cache.has_dirty() && !self.entries.is_dirty() && !self.cache.errors().is_open();
        idle && self.state.try_read().is_some_and(|state| !state.dirty && state.record.links > 0)
    }

    /// A copy of the record.
    #[must_use]
    pub fn record(&self) -> Record {
        self.state.read().record.clone()
    }

    /// Size in bytes.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.state.read().record.size
    }

    /// Are the contents, or the entries, in the inode?
    #[must_use]
    pub fn is_inline(&self) -> bool {
        self.state.read().record.inline.intersects(InlineFlags::DATA | InlineFlags::DENTRY)
    }

    /// Contents and names of encrypted inodes cannot be read without their key, which Cairn never has.
    ///
    /// # Errors
    /// It is encrypted.
    pub fn check_readable(&self, volume: &Volume) -> Result<()> {
        let encrypted = self.state.read().record.advise.contains(Advise::ENCRYPT);
        if encrypted && volume.layout.features.contains(Features::ENCRYPT) {
            return Err(Error::Vfs(cairn_vfs::Error::Unsupported("encrypted contents cannot be read without a key")));
        }
        Ok(())
    }
}
