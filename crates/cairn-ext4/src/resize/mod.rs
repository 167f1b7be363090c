//! Changes the size of a volume that nobody has mounted. The module `shrink` makes it smaller.
//!
//! Growth has one moment. What comes before it is written behind the end of the volume, where
//! nothing looks: bitmaps and inode tables of new groups, and their backups. Then one transaction
//! changes the superblock, the descriptors, the bitmap of the last group and the inode of the
//! reserved descriptor blocks. Backups in older groups follow. A crash therefore leaves the old
//! volume or the new one.

mod descriptors;
mod geometry;
mod reserved;
mod shrink;

use std::sync::Arc;

use cairn_base::runtime::Runtime;
use cairn_base::units::as_index;
use cairn_base::{Pba, bitmap};
use cairn_block::BlockDevice;
use zerocopy::little_endian::U32;

use crate::error::{Error, Result};
use crate::format::group_desc::{GroupDesc, GroupFlags};
use crate::format::layout::Layout;
use crate::format::superblock::Superblock;
use crate::mkfs::added;
use crate::offline::{Blocks, Offline};

use self::descriptors::Descriptors;

/// Sizes before and after, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Resized {
    /// Before.
    pub before: u64,
    /// After: a little less than what was asked for, if a last group would have been too short.
    /// More, if a volume that shrinks has less room for what moves than was estimated.
    pub after: u64,
}

/// Bytes of the volume on a device. It is recovered if it was not unmounted cleanly.
///
/// # Errors
/// It is damaged or cannot be recovered, or the device failed.
pub fn size(device: Arc<dyn BlockDevice>, runtime: Arc<dyn Runtime>) -> Result<u64> {
    Ok(bytes(&Offline::open(device, runtime)?.layout))
}

/// Bytes of the smallest volume that this one can become.
///
/// # Errors
/// As [`size()`]; the volume is not made smaller in place.
pub fn least(device: Arc<dyn BlockDevice>, runtime: Arc<dyn Runtime>) -> Result<u64> {
    let volume = Offline::open(device, runtime)?;
    volume.check_writable()?;
    Ok(shrink::least(&volume)?.saturating_mul(volume.layout.block_size.into()))
}

/// Refuses a size that a volume cannot have, if its device had it.
///
/// # Errors
/// As [`resize`].
pub fn check(device: Arc<dyn BlockDevice>, runtime: Arc<dyn Runtime>, bytes: u64) -> Result<()> {
    let volume = Offline::open(device, runtime)?;
    volume.check_writable()?;
    let blocks = bytes / u64::from(volume.layout.block_size);
    if blocks < volume.layout.blocks_count {
        return shrink::steps(&volume, blocks).map(drop);
    }
    geometry::grown(&volume.superblock, &volume.layout, blocks).map(drop)
}

/// Gives a volume the size of `wanted` bytes, which the device has already.
///
/// # Errors
/// [`Error::Refused`] if the volume cannot have this size; it is damaged or cannot be recovered;
/// the device failed.
pub fn resize(
    device: Arc<dyn BlockDevice>,
    runtime: Arc<dyn Runtime>,
    wanted: u64,
) -> Result<Resized> {
    let mut volume = Offline::open(device, runtime)?;
    volume.check_writable()?;
    let before = bytes(&volume.layout);
    let blocks = wanted / u64::from(volume.layout.block_size);
    if blocks < volume.layout.blocks_count {
        let after = bytes(&shrink::shrink(volume, blocks)?.layout);
        return Ok(Resized { before, after });
    }
    // The last step is refused before the first one is made.
    geometry::grown(&volume.superblock, &volume.layout, blocks)?;
    loop {
        let step = step(&volume, blocks)?;
        let superblock = geometry::grown(&volume.dated(), &volume.layout, step)?;
        let new = Layout::new(&superblock, volume.device.geometry().size)?;
        if new.blocks_count > volume.layout.blocks_count {
            volume = grow_by_step(volume, superblock, &new)?;
        }
        if step == blocks {
            return Ok(Resized { before, after: bytes(&volume.layout) });
        }
    }
}

/// The number of blocks for the next transaction, whose descriptors the log has room for.
fn step(volume: &Offline, blocks: u64) -> Result<u64> {
    let layout = &volume.layout;
    // Bitmaps, the inode of the reserved blocks, its block, and the reserved blocks.
    let others = as_index(layout.reserved_gdt_blocks) + 5;
    let room = volume.commit_limit().saturating_sub(others);
    if room < 2 {
        return Err(Error::Refused(
            "the journal is too small to add groups: make the journal larger".into(),
        ));
    }
    let per_block = u64::from(layout.descs_per_block());
    let full = u64::from(layout.groups - 1) / per_block;
    let groups = full.saturating_add(room as u64).saturating_mul(per_block);
    let end = groups.saturating_mul(layout.blocks_per_group.into());
    Ok(blocks.min(end.saturating_add(layout.first_data_block)))
}

/// Adds groups, and blocks to the last one, in one transaction.
fn grow_by_step(mut volume: Offline, superblock: Superblock, new: &Layout) -> Result<Offline> {
    let old = volume.layout.clone();
    let mut descriptors = Descriptors::read(&volume, new)?;
    let added = added::write(volume.device.clone(), &superblock, new, old.groups)?;
    let mut free_blocks: u64 = added.iter().map(|desc| u64::from(desc.free_blocks)).sum();
    let free_inodes: u64 = added.iter().map(|desc| u64::from(desc.free_inodes)).sum();
    let mut changes = Blocks::new();
    free_blocks += extend_last_group(&volume, new, &mut descriptors, &mut changes)?;
    for (group, desc) in (old.groups..).zip(&added) {
        descriptors.put(group, desc);
    }
    if let Some(block) = reserved::change(&volume, new, &mut changes)? {
        free_block(&volume, new, block, &mut descriptors, &mut changes)?;
        free_blocks += 1;
    }
    let superblock = counted(superblock, free_blocks, free_inodes);
    descriptors.write_backups(&volume, &superblock, old.groups..new.groups)?;
    volume.device.flush()?;
    descriptors.add_to(&mut changes);
    volume.commit(changes, superblock.clone())?;
    descriptors.write_backups(&volume, &superblock, 1..old.groups)?;
    volume.device.flush()?;
    volume.reopen()
}

fn bytes(layout: &Layout) -> u64 {
    layout.blocks_count.saturating_mul(layout.block_size.into())
}

/// Makes the blocks behind the old end of the last old group free. Returns their number.
fn extend_last_group(
    volume: &Offline,
    new: &Layout,
    descriptors: &mut Descriptors,
    changes: &mut Blocks,
) -> Result<u64> {
    let old = &volume.layout;
    let last = old.groups - 1;
    let (from, to) = (old.group_blocks(last), new.group_blocks(last));
    let grown = to.saturating_sub(from);
    if grown == 0 {
        return Ok(0);
    }
    let mut desc = descriptors.get(last, old)?;
    if !desc.flags.contains(GroupFlags::BLOCK_UNINIT) {
        let buffer = volume.buffers.get(desc.block_bitmap)?;
        let mut bits = buffer.image().to_vec();
        let computed = GroupDesc::block_bitmap_checksum(&bits, old);
        if computed.is_some_and(|computed| computed != desc.block_bitmap_csum) {
            return Err(Error::NeedsCheck("the last block bitmap is damaged".into()));
        }
        bitmap::clear_range(&mut bits, as_index(from), as_index(grown));
        desc.block_bitmap_csum = GroupDesc::block_bitmap_checksum(&bits, new).unwrap_or(0);
        changes.insert(desc.block_bitmap, bits);
    }
    desc.free_blocks = desc.free_blocks.saturating_add(grown);
    descriptors.put(last, &desc);
    Ok(grown.into())
}

/// Makes a block of an old group free.
fn free_block(
    volume: &Offline,
    new: &Layout,
    block: Pba,
    descriptors: &mut Descriptors,
    changes: &mut Blocks,
) -> Result<()> {
    let Some((group, bit)) = volume.layout.group_and_offset(block) else { return Ok(()) };
    // It may have been extended.
    let mut desc = descriptors.get(group, new)?;
    if desc.flags.contains(GroupFlags::BLOCK_UNINIT) {
        return Err(Error::NeedsCheck("a block bitmap lacks a block of inode 7".into()));
    }
    let mut bits = match changes.get(&desc.block_bitmap) {
        Some(bits) => bits.clone(),
        None => volume.buffers.get(desc.block_bitmap)?.image().to_vec(),
    };
    bitmap::clear_range(&mut bits, as_index(bit), 1);
    desc.block_bitmap_csum = GroupDesc::block_bitmap_checksum(&bits, new).unwrap_or(0);
    desc.free_blocks = desc.free_blocks.saturating_add(1);
    changes.insert(desc.block_bitmap, bits);
    descriptors.put(group, &desc);
    Ok(())
}

fn counted(mut superblock: Superblock, free_blocks: u64, free_inodes: u64) -> Superblock {
    superblock.set_free_blocks(superblock.free_blocks().saturating_add(free_blocks));
    let raw = &mut superblock.raw;
    let inodes = u64::from(raw.s_free_inodes_count.get()).saturating_add(free_inodes);
    raw.s_free_inodes_count = U32::new(u32::try_from(inodes).unwrap_or(u32::MAX));
    superblock
}
