//! An inode in memory: its record, its locks, its cached data.
//!
//! Locks, in the order they may be taken (each ranked, two of a kind by inode number): `namespace` (a directory's entries) →
//! `data` (contents and size) → `state` (the record; held briefly). Nothing is read from the device under `state`.

pub mod attributes;
pub mod data;
pub mod mapper;
pub mod symlink;

use cairn_base::Ino;
use cairn_base::ranked_lock::{Rank, RwLock};
use cairn_cache::file::FileCache;
use cairn_vfs::FileKind;

use crate::error::{Error, Result};
use crate::format::features::Features;
use crate::format::inode::{Advise, InlineFlags, Inode as Record};
use crate::format::units::{BLOCK_SIZE, Nid};
use crate::volume::Volume;

/// What changes under the `state` lock.
pub struct State {
    /// The record.
    pub record: Record,
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
        let is_device = matches!(record.kind, FileKind::BlockDevice | FileKind::CharDevice);
        let order = u64::from(nid.get());
        Ok(Self {
            nid,
            kind: record.kind,
            device: if is_device { record.device(&image) } else { 0 },
            namespace: RwLock::new_ordered(Rank::NAMESPACE, order, ()),
            data: RwLock::new_ordered(Rank::INODE_DATA, order, ()),
            cache: FileCache::new(&volume.pages, BLOCK_SIZE as u32),
            state: RwLock::new(Rank::MAPPING, State { record }),
        })
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
