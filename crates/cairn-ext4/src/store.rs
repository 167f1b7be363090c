//! [`Store`]: what the structures on disk need: the device, metadata buffers, geometry, superblock
//! and group descriptors.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use cairn_base::runtime::Runtime;
use cairn_base::{Ino, Pba};
use cairn_block::BlockDevice;
use cairn_cache::block::BufferCache;
use cairn_cache::durability::Flushes;
use cairn_vfs::Error as VfsError;

use crate::error::Result;
use crate::format::inode::Inode as Record;
use crate::format::layout::Layout;
use crate::groups::GroupTable;
use crate::txn::Handle;

/// The place of an inode's record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Location {
    /// Inode table block.
    pub block: Pba,
    /// Byte offset of the record in it.
    pub offset: usize,
}

/// The superblock of a mounted volume; see [`mod@crate::superblock`].
#[derive(Debug)]
pub(crate) struct LiveSuperblock {
    pub(crate) block: Pba,
    pub(crate) offset: usize,
    /// True if the volume was found as not unmounted cleanly. Only e2fsck may mark it clean.
    pub(crate) was_unclean: AtomicBool,
    /// The features of [`crate::features_in_use`] that the superblock is known to have.
    pub(crate) has_ext_attr: AtomicBool,
    pub(crate) has_large_file: AtomicBool,
}

/// What the structures on disk need.
pub(crate) struct Store {
    /// The device, which is [`Store::flushes`].
    pub device: Arc<dyn BlockDevice>,
    /// Counts flushes, to tell what is durable.
    pub flushes: Arc<Flushes>,
    /// Metadata buffers.
    pub buffers: Arc<BufferCache>,
    /// Geometry and features.
    pub layout: Arc<Layout>,
    /// The primary superblock.
    pub superblock: LiveSuperblock,
    /// Group descriptors.
    pub groups: Arc<GroupTable>,
    /// Number of blocks that files cannot have: structures and the journal.
    pub overhead: u64,
    /// Clock, randomness, threads.
    pub runtime: Arc<dyn Runtime>,
}

impl Store {
    /// The place of an inode's record.
    ///
    /// # Errors
    /// [`VfsError::Stale`] if the volume has no such inode.
    pub(crate) fn locate(&self, ino: Ino) -> Result<Location> {
        let index =
            ino.get().checked_sub(1).filter(|index| *index < u64::from(self.layout.inodes_count));
        let index = index.ok_or(VfsError::Stale)?;
        let per_group = u64::from(self.layout.inodes_per_group);
        let group = u32::try_from(index / per_group).map_err(|_| VfsError::Stale)?;
        let byte = (index % per_group) * u64::from(self.layout.inode_size);
        let block_size = u64::from(self.layout.block_size);
        let table = self.groups.inode_table(group);
        Ok(Location {
            block: Pba(table.get() + byte / block_size),
            offset: usize::try_from(byte % block_size).map_err(|_| VfsError::Stale)?,
        })
    }

    /// Reads an inode's record from the inode table.
    ///
    /// # Errors
    /// The record is damaged or the device failed.
    pub(crate) fn read_record(&self, ino: Ino) -> Result<Record> {
        let location = self.locate(ino)?;
        let image = self.buffers.get(location.block)?.image();
        let end = location.offset + self.layout.inode_size as usize;
        let raw = image.get(location.offset..end).ok_or(VfsError::Stale)?;
        Ok(Record::decode(raw, ino, &self.layout)?)
    }

    /// Changes the deletion time of a record whose inode may not be in memory (a link of the orphan
    /// list).
    ///
    /// # Errors
    /// The inode table cannot be read, or the journal was aborted.
    pub(crate) fn patch_deletion_time(&self, handle: &Handle, ino: Ino, value: u32) -> Result<()> {
        let location = self.locate(ino)?;
        let buffer = self.buffers.get(location.block)?;
        let mut block = handle.write(&buffer)?;
        let end = location.offset + self.layout.inode_size as usize;
        let raw = block.get_mut(location.offset..end).ok_or(VfsError::Stale)?;
        let mut record = Record::decode(raw, ino, &self.layout)?;
        record.dtime = value;
        record.encode(ino, &self.layout, raw);
        Ok(())
    }
}
