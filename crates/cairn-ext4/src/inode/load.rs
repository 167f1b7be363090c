//! From the inode table to memory, references, and the way out again.

use std::sync::Arc;

use cairn_base::Ino;
use cairn_cache::durability::{Ledger, Part};
use cairn_cache::file::CacheError;
use cairn_cache::mapper::MapError;
use cairn_cache::writeback::{Flushable, Flushed, WritebackMode};
use cairn_vfs::{Error as VfsError, FileKind};

use crate::corrupt::Corrupt;
use crate::error::Result;
use crate::inode::mapper::InodeMapper;
use crate::inode::{Inode, State};
use crate::volume::Volume;

/// Write-back's view of an inode.
pub struct Flusher {
    volume: std::sync::Weak<Volume>,
    inode: std::sync::Weak<Inode>,
}

impl Flushable for Flusher {
    fn flush(&self, mode: WritebackMode) -> Result<Flushed, CacheError> {
        let (Some(volume), Some(inode)) = (self.volume.upgrade(), self.inode.upgrade()) else {
            return Ok(Flushed::Written);
        };
        let guard = match mode {
            WritebackMode::Sync => Some(inode.data.read()),
            WritebackMode::Background => inode.data.try_read(),
        };
        if guard.is_none() {
            return Ok(Flushed::Busy);
        }
        let mapper = InodeMapper::new(&volume, &inode);
        let written = inode.cache.write_back(&mapper, 0..u64::MAX, inode.size(), mode).map_err(crate::Error::from);
        let sized = written.and_then(|()| crate::inode::data::update_disksize(&volume, &inode));
        // The times that the data came with, so that they are as old on disk as it is.
        let stored = sized.and_then(|()| crate::fsync::write_inode_if_dirty(&volume, &inode));
        volume.observe(stored).map_err(MapError::from)?;
        Ok(Flushed::Written)
    }

    fn read_ahead(&self, blocks: std::ops::Range<u64>) {
        let (Some(volume), Some(inode)) = (self.volume.upgrade(), self.inode.upgrade()) else { return };
        let Some(_data) = inode.data.try_read() else { return };
        // A shorter file, or one that has moved into its inode since, has nothing there.
        if !inode.is_inline() {
            inode.cache.read_ahead(&InodeMapper::new(&volume, &inode), inode.size(), blocks);
        }
    }

    fn release_reservation(&self) {
        if let (Some(volume), Some(inode)) = (self.volume.upgrade(), self.inode.upgrade()) {
            inode.cache.release_reservation(&InodeMapper::new(&volume, &inode));
        }
    }
}

/// True if an inode can leave memory without losing anything. What is on its way to the medium is no reason to stay: whoever
/// loads it takes for changed whatever may have been ([`Ledger::loaded`]).
pub fn can_evict(inode: &Inode) -> bool {
    let idle = !inode.cache.has_dirty() && !inode.cache.errors().is_open();
    let stored = |state: &State| !state.dirty && (inode.kind != FileKind::Regular || state.record.size == state.size);
    idle && inode.state.try_read().is_some_and(|state| stored(&state) && state.record.links > 0 && state.delayed == 0)
}

impl Volume {
    /// The inode, loaded if need be.
    ///
    /// # Errors
    /// [`VfsError::Stale`] if the number is not in use.
    pub fn inode(self: &Arc<Self>, ino: Ino) -> Result<Arc<Inode>> {
        if let Some(inode) = self.inodes.get(ino) {
            return Ok(inode);
        }
        self.inodes.get_or_try_insert(ino, || self.load(ino)).inspect(|inode| self.own(inode))
    }

    fn load(&self, ino: Ino) -> Result<Inode> {
        let record = self.read_record(ino)?;
        // An unlinked inode is alive while it is an orphan: opened through a number it is still good.
        if record.mode == 0 || (record.links == 0 && !self.orphans.contains(ino)) {
            return Err(VfsError::Stale.into());
        }
        let kind = FileKind::from_mode(u32::from(record.mode)).ok_or(Corrupt::Inode {
            ino,
            field: "i_mode",
            value: u64::from(record.mode),
            expected: "a known file type",
        })?;
        if record.size > i64::MAX as u64 {
            let (field, value, expected) = ("i_size", record.size, "less than 2^63");
            return Err(Corrupt::Inode { ino, field, value, expected }.into());
        }
        let acl = record.file_acl;
        let own = acl.get() <= self.layout.first_data_block || self.groups.system_blocks(ino).overlap(acl, 1);
        if acl.get() != 0 && own {
            let (field, value, expected) = ("i_file_acl", acl.get(), "not one of the volume's own blocks");
            return Err(Corrupt::Inode { ino, field, value, expected }.into());
        }
        let location = self.locate(ino)?;
        let ledger = Ledger::loaded(&self.flushes, &[Part::Attributes, Part::Data], self.txn().newest());
        Ok(Inode::new(self, ino, location, kind, record, ledger))
    }

    /// Ties an inode's cache to its owner, once.
    fn own(self: &Arc<Self>, inode: &Arc<Inode>) {
        inode.flusher.get_or_init(|| {
            let flusher = Arc::new(Flusher { volume: Arc::downgrade(self), inode: Arc::downgrade(inode) });
            let weak: std::sync::Weak<dyn Flushable> = Arc::downgrade(&(flusher.clone() as Arc<dyn Flushable>));
            inode.cache.set_owner(weak);
            flusher
        });
    }

    /// The inode, with a reference for the caller's front-end.
    pub fn acquire(self: &Arc<Self>, ino: Ino) -> Result<Arc<Inode>> {
        let inode = self.inode(ino)?;
        // Whoever holds the value keeps it in the table, unless it is deleted.
        self.inodes.acquire(ino).ok_or(cairn_vfs::Error::Stale)?;
        Ok(inode)
    }

    /// Takes in an inode that was just made, with a reference.
    pub fn adopt(self: &Arc<Self>, inode: Inode) -> Result<Arc<Inode>> {
        let ino = inode.ino;
        let mut fresh = false;
        let inode = self.inodes.get_or_try_insert(ino, || {
            fresh = true;
            Ok::<_, crate::Error>(inode)
        })?;
        if !fresh {
            // The bitmap gave out a number that is in use.
            let (field, value, expected) = ("i_mode", u64::from(inode.state.read().record.mode), "0 in a free inode");
            return Err(Corrupt::Inode { ino, field, value, expected }.into());
        }
        self.inodes.acquire(ino);
        self.own(&inode);
        Ok(inode)
    }

    /// Drops references; an inode without names and references is deleted.
    pub fn forget(self: &Arc<Self>, ino: Ino, count: u64) -> Result<()> {
        if self.inodes.release(ino, count) > 0 {
            return Ok(());
        }
        match self.inodes.get(ino) {
            Some(inode) => self.evict_inode(&inode),
            None => Ok(()),
        }
    }

    /// Deletes the inode if nothing keeps it.
    pub fn evict_inode(self: &Arc<Self>, inode: &Arc<Inode>) -> Result<()> {
        let nameless = inode.state.read().record.links == 0;
        if !nameless || self.inodes.references(inode.ino) > 0 || self.is_read_only() {
            return Ok(());
        }
        super::delete::delete_inode(self, inode)
    }

    /// Drops a reference from another thread: for callers that hold locks or a handle.
    pub fn release_later(self: &Arc<Self>, ino: Ino) {
        let volume = self.clone();
        self.runtime.defer(Box::new(move || {
            if let Err(error) = volume.observe(volume.forget(ino, 1)) {
                tracing::warn!(%ino, %error, "an inode could not be deleted; recovery will");
            }
        }));
    }

    /// At the end: whatever the front-end still holds, unlinked files are gone.
    pub fn delete_nameless(self: &Arc<Self>) -> Result<()> {
        self.runtime.drain_deferred();
        let mut nameless = Vec::new();
        self.inodes.for_each(|_, inode| {
            if inode.state.read().record.links == 0 {
                nameless.push(inode.clone());
            }
        });
        let deleted = nameless.iter().map(|inode| super::delete::delete_inode(self, inode));
        deleted.fold(Ok(()), Result::and)
    }
}
