//! The group table: all descriptors in memory, and changes of bitmaps and descriptors in handles.
//!
//! Invariants: descriptors are verified when the table is opened. A descriptor in memory equals the
//! newest version of its buffer. The first change of an uninitialised bitmap writes it.
//!
//! Locking: each group has a lock of rank Allocator, ordered by number; allocators hold one at a
//! time. Totals and hints are atomics that may be read without it. Buffers are locked below a
//! group's lock, one at a time.

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

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use cairn_base::units::as_index;
use cairn_base::{FileBlock, Ino, Pba, bitmap};
use cairn_block::reserve::expect_room;
use cairn_cache::block::{Buffer, BufferCache, Image};

use crate::alloc::free_map::FreeMap;
use crate::corrupt::Corrupt;
use crate::error::Result;
use crate::format::extent::SystemBlocks;
use crate::format::group_desc::{GroupDesc, GroupFlags};
use crate::format::layout::{InodeLocation, Layout};
use crate::txn::Handle;

mod group;
mod inode_table;
pub(crate) mod zones;

pub(crate) use group::{Group, GroupState};

use zones::Zones;

/// Estimated memory of a descriptor and its group.
const BYTES_PER_GROUP: u64 = 500;

/// All groups of a volume.
pub(crate) struct GroupTable {
    layout: Arc<Layout>,
    buffers: Arc<BufferCache>,
    descriptors: Vec<Arc<Buffer>>,
    groups: Vec<Group>,
    zones: Zones,
    free_blocks: AtomicU64,
    free_inodes: AtomicU64,
}

/// The place of an inode's record on a volume whose table is not open. It reads only the descriptor
/// of the inode's group.
///
/// # Errors
/// The device failed, the descriptor is invalid, or the volume has no such inode.
pub(crate) fn locate_unopened(
    buffers: &BufferCache,
    layout: &Layout,
    ino: Ino,
) -> Result<InodeLocation> {
    let (group, index) = layout.inode_group(ino).ok_or(cairn_vfs::Error::Stale)?;
    let image = buffers.get(layout.descriptor_block(group))?.image();
    let desc = GroupDesc::decode(descriptor_bytes(&image, group, layout), group, layout)?;
    Ok(layout.inode_location(index, desc.inode_table))
}

impl GroupTable {
    /// Reads and verifies all descriptors. `journal` are the blocks of the journal.
    ///
    /// # Errors
    /// The device failed, or a descriptor is invalid or places metadata over other metadata.
    pub(crate) fn open(
        buffers: &Arc<BufferCache>,
        layout: &Arc<Layout>,
        journal: &[(FileBlock, Pba, u64)],
    ) -> Result<Self> {
        expect_room(
            "the group descriptors",
            u64::from(layout.groups).saturating_mul(BYTES_PER_GROUP),
        )?;
        let mut descriptors = Vec::new();
        let mut groups = Vec::new();
        let mut descs = Vec::new();
        for first in (0..layout.groups).step_by(as_index(layout.descs_per_block())) {
            let buffer = buffers.get(layout.descriptor_block(first))?;
            let image = buffer.image();
            let end = first.saturating_add(layout.descs_per_block()).min(layout.groups);
            for number in first..end {
                let desc =
                    GroupDesc::decode(descriptor_bytes(&image, number, layout), number, layout)?;
                descs.push(desc.clone());
                groups.push(Group::new(number, desc));
            }
            descriptors.push(buffer);
        }
        let mut zones = Zones::new(layout, &descs)?;
        zones.protect(journal)?;
        let free_blocks =
            AtomicU64::new(descs.iter().map(|desc| u64::from(desc.free_blocks)).sum());
        let free_inodes =
            AtomicU64::new(descs.iter().map(|desc| u64::from(desc.free_inodes)).sum());
        Ok(Self {
            layout: layout.clone(),
            buffers: buffers.clone(),
            descriptors,
            groups,
            zones,
            free_blocks,
            free_inodes,
        })
    }

    /// The geometry.
    #[must_use]
    pub(crate) fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Number of groups.
    #[must_use]
    pub(crate) fn len(&self) -> u32 {
        self.layout.groups
    }

    /// A group.
    ///
    /// # Panics
    /// If there is no such group.
    #[must_use]
    pub(crate) fn group(&self, number: u32) -> &Group {
        self.groups
            .get(as_index(number))
            .unwrap_or_else(|| panic!("group {number} of {}", self.layout.groups))
    }

    /// First block of a group's inode table.
    ///
    /// # Panics
    /// If there is no such group.
    #[must_use]
    pub(crate) fn inode_table(&self, group: u32) -> Pba {
        self.group(group).inode_table
    }

    /// Number of blocks with structures of the volume: superblocks, descriptors, bitmaps, inode
    /// tables.
    #[must_use]
    pub(crate) fn overhead(&self) -> u64 {
        let layout = &self.layout;
        let each = |group| {
            u64::from(layout.base_metadata(group))
                .saturating_add(2)
                .saturating_add(layout.inode_table_blocks().into())
        };
        layout.first_data_block.saturating_add((0..layout.groups).map(each).sum::<u64>())
    }

    /// Free blocks by the descriptors, for the superblock and statfs.
    #[must_use]
    pub(crate) fn free_blocks_total(&self) -> u64 {
        self.free_blocks.load(Ordering::Relaxed)
    }

    /// Free inodes.
    #[must_use]
    pub(crate) fn free_inodes_total(&self) -> u64 {
        self.free_inodes.load(Ordering::Relaxed)
    }

    /// Directories.
    #[must_use]
    pub(crate) fn directories_total(&self) -> u64 {
        self.groups.iter().map(|group| u64::from(group.used_dirs.load(Ordering::Relaxed))).sum()
    }

    /// True if the range contains superblocks, descriptors, bitmaps, inode tables or the journal,
    /// which no file may have.
    #[must_use]
    pub(crate) fn is_metadata(&self, start: Pba, count: u64) -> bool {
        self.zones.all().overlap(start, count)
    }

    /// The blocks that this inode must not map: those of all structures. The journal's inode may
    /// map the journal.
    #[must_use]
    pub(crate) fn system_blocks(&self, ino: Ino) -> SystemBlocks<'_> {
        if ino == self.layout.journal_ino { self.zones.structures() } else { self.zones.all() }
    }

    /// The group's block bitmap. If it is not initialised, the bitmap it would have. Bits beyond
    /// the group's end are set.
    ///
    /// # Errors
    /// The device failed or the checksum is wrong.
    pub(crate) fn block_bitmap(&self, number: u32, state: &GroupState) -> Result<Vec<u8>> {
        if state.desc.flags.contains(GroupFlags::BLOCK_UNINIT) {
            return Ok(self.zones.initial_block_bitmap(&self.layout, number));
        }
        let buffer = self.buffers.get(state.desc.block_bitmap)?;
        let mut bits = buffer.image().to_vec();
        if !buffer.is_verified() {
            let computed = GroupDesc::block_bitmap_checksum(&bits, &self.layout);
            verify("block bitmap", number, state.desc.block_bitmap_csum, computed)?;
            buffer.set_verified();
        }
        zones::pad(&mut bits, self.layout.group_clusters(number));
        Ok(bits)
    }

    /// The group's inode bitmap.
    ///
    /// # Errors
    /// The device failed or the checksum is wrong.
    pub(crate) fn inode_bitmap(&self, number: u32, state: &GroupState) -> Result<Image> {
        if state.desc.flags.contains(GroupFlags::INODE_UNINIT) {
            let mut bits = vec![0; as_index(self.layout.block_size)];
            zones::pad(&mut bits, self.layout.inodes_per_group);
            return Ok(bits.into());
        }
        let buffer = self.buffers.get(state.desc.inode_bitmap)?;
        let image = buffer.image();
        if !buffer.is_verified() {
            let computed = GroupDesc::inode_bitmap_checksum(&image, &self.layout);
            verify("inode bitmap", number, state.desc.inode_bitmap_csum, computed)?;
            buffer.set_verified();
        }
        Ok(image)
    }

    /// True if the inode's bit is set.
    ///
    /// # Errors
    /// The bitmap cannot be read, or the volume has no such inode.
    pub(crate) fn inode_in_use(&self, ino: Ino) -> Result<bool> {
        let missing = Corrupt::Inode {
            ino,
            field: "number",
            value: ino.get(),
            problem: "no inode of the volume",
        };
        let (number, index) = self.layout.inode_group(ino).ok_or(missing)?;
        let state = self.group(number).lock();
        let image = self.inode_bitmap(number, &state)?;
        Ok(bitmap::test(&image, as_index(index)))
    }

    /// The free map of a locked group, which is built at its first use. `None` if the group is
    /// damaged.
    pub(crate) fn load_map<'s>(
        &self,
        number: u32,
        state: &'s mut GroupState,
    ) -> Result<Option<&'s mut FreeMap>> {
        if state.damaged {
            return Ok(None);
        }
        if state.map.is_none() {
            let bits = self.block_bitmap(number, state)?;
            self.zones.check_in_use(&self.layout, number, &bits)?;
            let map = FreeMap::new(bits, self.layout.group_blocks(number));
            if map.free() != state.desc.free_blocks {
                let (field, value) = ("bg_free_blocks_count", state.desc.free_blocks.into());
                let problem = "not the number in the block bitmap";
                return Err(Corrupt::Group { group: number, field, value, problem }.into());
            }
            state.map = Some(map);
        }
        Ok(state.map.as_mut())
    }

    /// Sets (`used`) or clears bits of the block bitmap in `handle`. All bits must change.
    pub(crate) fn change_blocks(
        &self,
        handle: &Handle,
        number: u32,
        state: &mut GroupState,
        start: u32,
        len: u32,
        used: bool,
    ) -> Result<()> {
        let (from, count) = (as_index(start), as_index(len));
        let desc = &mut state.desc;
        let buffer = if desc.flags.contains(GroupFlags::BLOCK_UNINIT) {
            let buffer = handle.create(desc.block_bitmap)?;
            let initial = self.zones.initial_block_bitmap(&self.layout, number);
            handle.write(&buffer)?.copy_from_slice(&initial);
            desc.flags.remove(GroupFlags::BLOCK_UNINIT);
            buffer
        } else {
            self.buffers.get(desc.block_bitmap)?
        };
        {
            let mut bits = handle.write(&buffer)?;
            let already = bitmap::count_set(&bits, from, count);
            if already != if used { 0 } else { count } {
                let state = if used { "already in use" } else { "already free" };
                return Err(
                    Corrupt::Bitmap { what: "block", group: number, bit: start, state }.into()
                );
            }
            if used {
                bitmap::set_range(&mut bits, from, count);
            } else {
                bitmap::clear_range(&mut bits, from, count);
            }
            desc.block_bitmap_csum =
                GroupDesc::block_bitmap_checksum(&bits, &self.layout).unwrap_or(0);
        }
        // The counters come from the disk. They saturate where the bitmap contradicts them.
        if used {
            desc.free_blocks = desc.free_blocks.saturating_sub(len);
            self.free_blocks.fetch_sub(len.into(), Ordering::Relaxed);
        } else {
            desc.free_blocks = desc.free_blocks.saturating_add(len);
            self.free_blocks.fetch_add(len.into(), Ordering::Relaxed);
        }
        self.store(handle, number, desc)
    }

    /// Sets or clears one bit of the inode bitmap in `handle`, and updates the counters.
    pub(crate) fn change_inode(
        &self,
        handle: &Handle,
        number: u32,
        state: &mut GroupState,
        index: u32,
        used: bool,
        directory: bool,
    ) -> Result<()> {
        let group = self.group(number);
        let desc = &mut state.desc;
        let buffer = if desc.flags.contains(GroupFlags::INODE_UNINIT) {
            let buffer = handle.create(desc.inode_bitmap)?;
            zones::pad(&mut handle.write(&buffer)?, self.layout.inodes_per_group);
            desc.flags.remove(GroupFlags::INODE_UNINIT);
            desc.itable_unused = self.layout.inodes_per_group;
            buffer
        } else {
            self.buffers.get(desc.inode_bitmap)?
        };
        {
            let mut bits = handle.write(&buffer)?;
            if bitmap::test(&bits, as_index(index)) == used {
                let state = if used { "already in use" } else { "already free" };
                return Err(
                    Corrupt::Bitmap { what: "inode", group: number, bit: index, state }.into()
                );
            }
            if used {
                bitmap::set(&mut bits, as_index(index));
            } else {
                bitmap::clear(&mut bits, as_index(index));
            }
            desc.inode_bitmap_csum =
                GroupDesc::inode_bitmap_checksum(&bits, &self.layout).unwrap_or(0);
        }
        if used {
            // As in `change_blocks`.
            desc.free_inodes = desc.free_inodes.saturating_sub(1);
            desc.used_dirs = desc.used_dirs.saturating_add(directory.into());
            self.free_inodes.fetch_sub(1, Ordering::Relaxed);
        } else {
            desc.free_inodes = desc.free_inodes.saturating_add(1).min(self.layout.inodes_per_group);
            desc.used_dirs = desc.used_dirs.saturating_sub(directory.into());
            self.free_inodes.fetch_add(1, Ordering::Relaxed);
        }
        group.free_inodes.store(desc.free_inodes, Ordering::Relaxed);
        group.used_dirs.store(desc.used_dirs, Ordering::Relaxed);
        self.store(handle, number, desc)
    }

    fn store(&self, handle: &Handle, number: u32, desc: &GroupDesc) -> Result<()> {
        let index = number.checked_div(self.layout.descs_per_block()).map(as_index);
        let buffer = index
            .and_then(|index| self.descriptors.get(index))
            .unwrap_or_else(|| panic!("group {number} of {}", self.layout.groups));
        let mut block = handle.write(buffer)?;
        let bytes = block
            .get_mut(descriptor_range(number, &self.layout))
            .unwrap_or_else(|| panic!("a descriptor lies in its block"));
        desc.encode(number, &self.layout, bytes);
        Ok(())
    }
}

fn descriptor_bytes<'i>(image: &'i Image, number: u32, layout: &Layout) -> &'i [u8] {
    image.get(descriptor_range(number, layout)).unwrap_or_default()
}

/// The bytes of a descriptor in its block.
fn descriptor_range(number: u32, layout: &Layout) -> Range<usize> {
    let offset = layout.descriptor_offset(number);
    offset..offset.saturating_add(as_index(layout.desc_size))
}

/// Verifies a bitmap's checksum. The stored checksum may lack its upper half.
fn verify(what: &'static str, number: u32, stored: u32, computed: Option<u32>) -> Result<()> {
    match computed {
        Some(computed) if computed != stored => {
            Err(Corrupt::Checksum { what, place: number.into(), stored, computed }.into())
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
pub(crate) mod tests;
