//! Loads inodes from the inode table (`ext4_iget`).

use std::sync::Arc;

use cairn_base::Ino;
use cairn_cache::durability::{Ledger, Part};
use cairn_cache::writeback::Flushable;
use cairn_vfs::{Error as VfsError, FileKind};

use crate::corrupt::Corrupt;
use crate::error::Result;
use crate::form::{Around, loaded};
use crate::format::inode::Inode as Record;
use crate::format::layout::Layout;
use crate::inode::Inode;
use crate::inode::writeback::Flusher;
use crate::op::Operations;
use crate::system_file;

/// What lies around an inode that is being loaded.
struct Loading<'a>(&'a Operations);

impl Around for Loading<'_> {
    fn layout(&self) -> &Layout {
        &self.0.layout
    }

    fn first_block(&self, ino: Ino, record: &Record) -> Option<Vec<u8>> {
        let Operations { inodes, .. } = self.0;
        let system = inodes.groups.system_blocks(ino);
        let (layout, buffers) = (&inodes.layout, &inodes.buffers);
        let first = system_file::leading_blocks(layout, buffers, system, ino, record, 1).ok()?;
        Some(buffers.get(*first.first()?).ok()?.image().to_vec())
    }

    fn attribute_block(&self, record: &Record) -> Option<Vec<u8>> {
        let pba = record.file_acl;
        let is_inside = self.0.layout.contains(pba, 1);
        is_inside.then(|| self.0.buffers.get(pba).ok())?.map(|buffer| buffer.image().to_vec())
    }
}

impl Operations {
    /// The inode, which is loaded if it is not in memory.
    ///
    /// # Errors
    /// [`VfsError::Stale`] if the number is not in use; the record is damaged or the device failed.
    pub(crate) fn inode(self: &Arc<Self>, ino: Ino) -> Result<Arc<Inode>> {
        if let Some(inode) = self.table.get(ino) {
            return Ok(inode);
        }
        self.table.get_or_try_insert(ino, || self.load(ino)).inspect(|inode| self.set_owner(inode))
    }

    fn load(&self, ino: Ino) -> Result<Inode> {
        let record = self.read_record(ino)?;
        // An unlinked inode is valid as long as it is an orphan: a process has it open.
        if record.mode == 0 || (record.links == 0 && !self.orphans.contains(ino)) {
            return Err(VfsError::Stale.into());
        }
        let kind = FileKind::from_mode(u32::from(record.mode)).ok_or(Corrupt::Inode {
            ino,
            field: "i_mode",
            value: u64::from(record.mode),
            problem: "not a known file type",
        })?;
        if record.size > i64::MAX as u64 {
            let (field, value, problem) = ("i_size", record.size, "beyond 2^63");
            return Err(Corrupt::Inode { ino, field, value, problem }.into());
        }
        let acl = record.file_acl;
        let own = acl.get() <= self.layout.first_data_block
            || self.groups.system_blocks(ino).overlap(acl, 1);
        if acl.get() != 0 && own {
            let (field, value, problem) =
                ("i_file_acl", acl.get(), "a block of the volume's structures");
            return Err(Corrupt::Inode { ino, field, value, problem }.into());
        }
        loaded::check(&Loading(self), ino, &record, kind)?;
        let location = self.locate(ino)?;
        let ledger =
            Ledger::loaded(&self.flushes, &[Part::Attributes, Part::Data], self.txn().newest());
        Ok(Inode::new(&self.pages, &self.layout, ino, location, kind, record, ledger))
    }

    /// Sets the owner of an inode's cache, once.
    fn set_owner(self: &Arc<Self>, inode: &Arc<Inode>) {
        inode.flusher.get_or_init(|| {
            let flusher: Arc<dyn Flushable> = Arc::new(Flusher::new(self, inode));
            inode.cache.set_owner(Arc::downgrade(&flusher));
            flusher
        });
    }

    /// The inode, with a reference for the caller's front-end.
    ///
    /// # Errors
    /// As [`Operations::inode`].
    pub(crate) fn acquire(self: &Arc<Self>, ino: Ino) -> Result<Arc<Inode>> {
        self.acquire_as(ino, None)
    }

    /// As [`Operations::acquire`], of the type that the name has which leads to the inode.
    ///
    /// # Errors
    /// As [`Operations::inode`]; the inode has another type: one of the two is damaged, and nothing
    /// here says which.
    pub(crate) fn acquire_as(
        self: &Arc<Self>,
        ino: Ino,
        said: Option<FileKind>,
    ) -> Result<Arc<Inode>> {
        let inode = self.inode(ino)?;
        if said.is_some_and(|said| said != inode.kind) {
            let (field, problem) = ("i_mode", "another file type than that of a name");
            let value = inode.state.read().record.mode.into();
            return Err(Corrupt::Inode { ino, field, value, problem }.into());
        }
        // The caller holds the value, so the entry exists unless the inode was deleted.
        self.table.acquire(ino).ok_or(cairn_vfs::Error::Stale)?;
        Ok(inode)
    }

    /// Adds a new inode to the table, with a reference.
    ///
    /// # Errors
    /// The number is in use: the bitmap is damaged.
    pub(crate) fn adopt(self: &Arc<Self>, inode: Inode) -> Result<Arc<Inode>> {
        let ino = inode.ino;
        let mut fresh = false;
        let inode = self.table.get_or_try_insert(ino, || {
            fresh = true;
            Ok::<_, crate::Error>(inode)
        })?;
        if !fresh {
            // The bitmap says that the number is free, and it is in use.
            let (field, value, problem) =
                ("i_mode", u64::from(inode.state.read().record.mode), "not 0 in a free inode");
            return Err(Corrupt::Inode { ino, field, value, problem }.into());
        }
        self.table.acquire(ino);
        self.set_owner(&inode);
        Ok(inode)
    }
}
