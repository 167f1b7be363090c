//! Loading inodes: Linux's `f2fs_iget`.

use std::sync::Arc;

use cairn_base::Ino;
use cairn_base::ranked_lock::{Mutex, Rank, RwLock};
use cairn_cache::budget::Use;
use cairn_cache::durability::{Ledger, Part};
use cairn_cache::file::FileCache;
use cairn_vfs::FileKind;

use super::{Inode, State, map, proof, writeback_state};
use crate::dir::cache::DirCache;
use crate::disk::Disk;
use crate::error::{Error, Result};
use crate::format::features::Features;
use crate::format::inode::{Advise, Inode as Record};
use crate::format::units::{BLOCK_SIZE, Nid};
use crate::format::xattr;
use crate::inodes::Inodes;

impl Inodes {
    /// The inode of a number, read if it is not in memory.
    ///
    /// # Errors
    /// [`cairn_vfs::Error::Stale`] if no inode has the number; the inode is damaged; the device
    /// failed; the volume is unmounted.
    pub fn inode(&self, ino: Ino) -> Result<Arc<Inode>> {
        if self.mount.is_closed() {
            return Err(Error::Unmounted);
        }
        self.table.get_or_try_insert(ino, || Inode::load(self, ino))
    }

    /// The inode, with a reference for the caller's front-end.
    ///
    /// # Errors
    /// As [`Inodes::inode`].
    pub(crate) fn acquire(&self, ino: Ino) -> Result<Arc<Inode>> {
        let inode = self.inode(ino)?;
        // A reference keeps the value in the table, unless the inode is deleted.
        self.table.acquire(ino).ok_or(cairn_vfs::Error::Stale)?;
        Ok(inode)
    }
}

impl Inode {
    /// Reads an inode.
    ///
    /// # Errors
    /// [`cairn_vfs::Error::Stale`] if no inode has the number; the inode is damaged; the device
    /// failed.
    pub fn load(inodes: &Inodes, ino: Ino) -> Result<Self> {
        let nid = Nid::of(ino).ok_or(cairn_vfs::Error::Stale)?;
        let image = inodes.disk.nodes.inode(nid)?.ok_or(cairn_vfs::Error::Stale)?;
        let layout = &inodes.disk.layout;
        let record = Record::decode(&image, nid, layout.features)?;
        record.check_body(&image, nid, layout)?;
        proof::check_links(&inodes.disk, nid, &record)?;
        proof::check_form(&inodes.disk, (nid, &record, &image))?;
        let version = inodes.disk.store.as_ref().map_or(0, |store| store.checkpoints.version());
        // Changed names, and nodes that left the tree, keep the inode in memory until the next
        // snapshot. So the newest snapshot has them.
        let ledger =
            Ledger::loaded(&inodes.disk.flushes, &[Part::Names], version.saturating_sub(1));
        let inode = Self::new(inodes, nid, record, &image, ledger);
        proof::check_end(&inodes.disk, &inode, (&inode.record(), &image))?;
        Ok(inode)
    }

    /// An inode with this record. `image` is its node.
    #[must_use]
    pub fn new(
        inodes: &Inodes,
        nid: Nid,
        record: Record,
        image: &[u8],
        ledger: Ledger<u64>,
    ) -> Self {
        let is_device = matches!(record.kind, FileKind::BlockDevice | FileKind::CharDevice);
        let order = u64::from(nid.get());
        let attributes = image.get(record.inline_xattr_range()).unwrap_or_default();
        let inline_xattrs = !xattr::is_empty(attributes);
        Self {
            nid,
            kind: record.kind,
            device: if is_device { record.device(image) } else { 0 },
            namespace: RwLock::new_ordered(Rank::Namespace, order, ()),
            data: RwLock::new_ordered(Rank::InodeData, order, ()),
            cache: FileCache::new(&inodes.pages, BLOCK_SIZE as u32),
            state: RwLock::new(
                Rank::Mapping,
                State { record, dirty: false, inline_xattrs, deleted: false },
            ),
            map: map::FileMap::new(order),
            entries: DirCache::new(&inodes.directories),
            ledger,
            known_names: Mutex::new(Rank::Leaf, Vec::new()),
            sync: writeback_state::SyncState::new(order),
            charge: inodes.pages.budget().hold(Use::Inodes, Self::BYTES),
        }
    }

    /// Contents and names of encrypted inodes cannot be read or written without their key, which
    /// Cairn never has.
    ///
    /// # Errors
    /// The inode is encrypted.
    pub(crate) fn check_unencrypted(&self, disk: &Disk) -> Result<()> {
        let encrypted = self.state.read().record.advise.contains(Advise::ENCRYPT);
        if encrypted && disk.layout.features.contains(Features::ENCRYPT) {
            return Err(Error::Vfs(cairn_vfs::Error::Encrypted));
        }
        Ok(())
    }
}
