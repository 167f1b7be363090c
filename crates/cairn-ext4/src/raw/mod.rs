//! [`RawVolume`]: reads structures one by one, of a volume that need not mount. Nothing is written.
//!
//! Each structure is found with as few others as possible: an inode needs the superblock and its
//! group's descriptor, nothing else. What is damaged is left to the caller, with its place.
//!
//! **Bounds.** An [`Allowance`] ends what maps, directories and contents may have read.

#![cfg_attr(
    not(test),
    deny(
        clippy::indexing_slicing,
        clippy::as_conversions,
        clippy::arithmetic_side_effects,
        clippy::unwrap_used,
        clippy::expect_used
    )
)]

mod choice;
pub(crate) mod directory;
pub(crate) mod journal;
pub(crate) mod map;
mod open;

use std::sync::Arc;

use cairn_base::units::as_index;
use cairn_base::{Ino, Pba, bitmap};
use cairn_block::{BlockDevice, Error, ErrorKind, Operation};
use cairn_cache::block::{BufferCache, Image};
use cairn_check::salvage::Allowance;

use crate::corrupt::Corrupt;
use crate::format::group_desc::{GroupDesc, GroupFlags};
use crate::format::inode::Inode as Record;
use crate::format::layout::{InodeLocation, Layout};
use crate::format::superblock::Superblock;

pub use choice::SuperblockChoice;
pub(crate) use open::has_unusual;

/// A volume whose structures are read by themselves.
pub(crate) struct RawVolume {
    pub(crate) device: Arc<dyn BlockDevice>,
    pub(crate) buffers: Arc<BufferCache>,
    pub(crate) superblock: Superblock,
    pub(crate) layout: Layout,
    /// Byte offset of the superblock in use.
    pub(crate) superblock_at: u64,
    /// The group whose backups are in use, if the first ones are not.
    pub(crate) backup: Option<u32>,
    /// What is wrong with the volume as a whole.
    pub(crate) notes: Vec<String>,
    /// The log holds changes that are not replayed.
    pub(crate) lacks_log: bool,
    /// What may still be read.
    pub(crate) allowance: Allowance,
}

/// A group descriptor and its place.
#[derive(Clone, Debug)]
pub(crate) struct FoundDesc {
    pub(crate) block: Pba,
    pub(crate) offset: usize,
    pub(crate) bytes: Vec<u8>,
    pub(crate) desc: GroupDesc,
    /// Why it is not to be trusted.
    pub(crate) wrong: Option<Corrupt>,
}

impl RawVolume {
    /// A block of the volume.
    ///
    /// # Errors
    /// The volume or the device ends before, or the device failed.
    pub(crate) fn block(&self, pba: Pba) -> Result<Image, Error> {
        let size = u64::from(self.layout.block_size);
        let end = pba.get().checked_add(1).and_then(|end| end.checked_mul(size));
        if pba.get() >= self.layout.blocks_count
            || end.is_none_or(|end| end > self.device.geometry().size)
        {
            let what = format!("block {pba} lies beyond the end");
            return Err(Error::new(ErrorKind::Io, Operation::Read, what));
        }
        Ok(self.buffers.get(pba)?.image())
    }

    /// The descriptor of a group: the one in use, or, if it is damaged, a sound one of a backup.
    pub(crate) fn desc(&self, group: u32) -> Option<FoundDesc> {
        let is_sound = |found: &FoundDesc| found.wrong.is_none() && self.can_be(&found.desc);
        let first = self.desc_at(group, self.desc_block(group)?);
        if first.as_ref().is_some_and(is_sound) {
            return first;
        }
        let index = group.checked_div(self.layout.descs_per_block())?;
        let backups = (1..self.layout.groups.min(128)).filter(|group| self.layout.backups(*group));
        let copies = backups.filter_map(|group| self.layout.descriptor_block_copy(index, group));
        let sound = copies.filter_map(|block| self.desc_at(group, block)).find(is_sound);
        sound.or(first)
    }

    /// Can the bitmaps and the inode table be where a descriptor says? Without a checksum that is
    /// all that tells a lost descriptor.
    fn can_be(&self, desc: &GroupDesc) -> bool {
        let table = (desc.inode_table, u64::from(self.layout.inode_table_blocks()));
        [(desc.block_bitmap, 1), (desc.inode_bitmap, 1), table]
            .into_iter()
            .all(|(block, count)| block.get() != 0 && self.layout.contains(block, count))
    }

    /// Is the descriptor of a group in use that of a backup, because the usual one is damaged?
    pub(crate) fn is_desc_backup(&self, group: u32) -> bool {
        self.desc(group).is_some_and(|found| Some(found.block) != self.desc_block(group))
    }

    fn desc_block(&self, group: u32) -> Option<Pba> {
        if group >= self.layout.groups {
            return None;
        }
        let index = group.checked_div(self.layout.descs_per_block())?;
        let copy = self.backup.and_then(|of| self.layout.descriptor_block_copy(index, of));
        Some(copy.unwrap_or_else(|| self.layout.descriptor_block(group)))
    }

    fn desc_at(&self, group: u32, block: Pba) -> Option<FoundDesc> {
        let image = self.block(block).ok()?;
        let offset = self.layout.descriptor_offset(group);
        let end = offset.saturating_add(as_index(self.layout.desc_size));
        let bytes = image.get(offset..end)?.to_vec();
        let desc = GroupDesc::decode_unchecked(&bytes, &self.layout);
        let wrong = GroupDesc::decode(&bytes, group, &self.layout).err();
        Some(FoundDesc { block, offset, bytes, desc, wrong })
    }

    /// The first block of a group's inode table, if it can be one.
    pub(crate) fn table(&self, group: u32) -> Option<Pba> {
        let table = self.desc(group)?.desc.inode_table;
        let blocks = self.layout.inode_table_blocks();
        (table.get() != 0 && self.layout.contains(table, blocks.into())).then_some(table)
    }

    /// The place of an inode's record.
    pub(crate) fn record_place(&self, ino: Ino) -> Option<InodeLocation> {
        let (group, index) = self.layout.inode_group(ino)?;
        Some(self.layout.inode_location(index, self.table(group)?))
    }

    /// The bytes of an inode's record.
    pub(crate) fn record_bytes(&self, ino: Ino) -> Option<Vec<u8>> {
        let place = self.record_place(ino)?;
        let block = self.block(place.pba).ok()?;
        let end = place.offset.saturating_add(as_index(self.layout.inode_size));
        block.get(place.offset..end).map(<[u8]>::to_vec)
    }

    /// An inode's record, whose fields may be wrong.
    pub(crate) fn record(&self, ino: Ino) -> Option<Record> {
        Record::decode_unchecked(&self.record_bytes(ino)?, &self.layout)
    }

    /// Is the block marked as in use? `None` if the bitmap cannot be read or is damaged.
    pub(crate) fn is_block_in_use(&self, pba: Pba) -> Option<bool> {
        let (group, offset) = self.layout.group_and_offset(pba)?;
        let found = self.desc(group)?;
        if found.desc.flags.contains(GroupFlags::BLOCK_UNINIT) && found.wrong.is_none() {
            return Some(false);
        }
        let bits = self.block(found.desc.block_bitmap).ok()?;
        let cluster = offset >> self.layout.cluster_bits;
        (as_index(cluster) < bits.len().saturating_mul(8))
            .then(|| bitmap::test(&bits, as_index(cluster)))
    }

    /// Is the inode marked as in use?
    pub(crate) fn is_inode_in_use(&self, ino: Ino) -> Option<bool> {
        let (group, index) = self.layout.inode_group(ino)?;
        let found = self.desc(group)?;
        if found.desc.flags.contains(GroupFlags::INODE_UNINIT) && found.wrong.is_none() {
            return Some(false);
        }
        let bits = self.block(found.desc.inode_bitmap).ok()?;
        Some(bitmap::test(&bits, as_index(index)))
    }
}
