//! The inode of the reserved descriptor blocks (inode 7, `resize_inode`).
//!
//! Its double indirect block has a slot for each reserved block behind the descriptors of group 0,
//! and each of these has the addresses of its backups. Blocks that become descriptors leave it, and
//! new groups with a backup come in.

use cairn_base::Pba;
use cairn_base::units::as_index;

use crate::corrupt::Corrupt;
use crate::error::Result;
use crate::format::features::Compat;
use crate::format::inode::Inode as Record;
use crate::format::layout::{Layout, inodes};
use crate::offline::{Blocks, Offline};

/// The place of the double indirect block in `i_block`.
const DOUBLE_INDIRECT: usize = 13 * 4;

fn backups(layout: &Layout) -> Vec<u32> {
    (1..layout.groups).filter(|group| layout.backups(*group)).collect()
}

/// Adds what changes in the inode and in its blocks. Returns the block that has become free, if the
/// volume loses the inode.
///
/// # Errors
/// The inode is damaged, or the device failed.
pub(super) fn change(volume: &Offline, new: &Layout, changes: &mut Blocks) -> Result<Option<Pba>> {
    let old = &volume.layout;
    if !old.features.compat(Compat::RESIZE_INODE) {
        return Ok(None);
    }
    if !new.features.compat(Compat::RESIZE_INODE) {
        return remove(volume, changes);
    }
    // Blocks that were descriptors come in.
    let shrinks = new.contiguous_descriptor_blocks() < old.contiguous_descriptor_blocks();
    let are_anew = backups(old) != backups(new) || shrinks;
    if !are_anew && old.reserved_gdt_blocks == new.reserved_gdt_blocks {
        return Ok(None);
    }
    let location = crate::groups::locate_unopened(&volume.buffers, old, inodes::RESIZE)?;
    let image = volume.buffers.get(location.pba)?.image();
    let range = location.offset..location.offset + as_index(old.inode_size);
    let bytes = image.get(range.clone()).unwrap_or_default();
    let mut record = Record::decode(bytes, inodes::RESIZE, old)?;
    let top = double_indirect(&record, old)?;
    let size = as_index(old.block_size);
    let words = u64::from(old.block_size / 4);
    let mut slots = vec![0; size];
    let first = new.superblock_block(0).get() + 1 + u64::from(new.contiguous_descriptor_blocks());
    for index in 0..new.reserved_gdt_blocks {
        let primary = first + u64::from(index);
        let slot = u64::from(new.contiguous_descriptor_blocks() + index) % words;
        put_word(&mut slots, slot, primary);
        if are_anew {
            let mut block = vec![0; size];
            for (place, group) in (0..).zip(backups(new)) {
                let twin = primary + u64::from(group) * u64::from(new.blocks_per_group);
                put_word(&mut block, place, twin);
            }
            changes.insert(Pba(primary), block);
        }
    }
    changes.insert(top, slots);
    let owned = 1 + u64::from(new.reserved_gdt_blocks) * (1 + backups(new).len() as u64);
    record.blocks_512 = owned << (new.block_bits - 9);
    let mut table = image.to_vec();
    if let Some(place) = table.get_mut(range) {
        record.encode(inodes::RESIZE, new, place);
    }
    changes.insert(location.pba, table);
    Ok(None)
}

/// Adds that the inode has no blocks: all that it had are descriptors. Returns its double indirect
/// block, if it has one.
fn remove(volume: &Offline, changes: &mut Blocks) -> Result<Option<Pba>> {
    let old = &volume.layout;
    let location = crate::groups::locate_unopened(&volume.buffers, old, inodes::RESIZE)?;
    let mut table = volume.buffers.get(location.pba)?.image().to_vec();
    let range = location.offset..location.offset + as_index(old.inode_size);
    let bytes = table.get(range.clone()).unwrap_or_default();
    let record = Record::decode(bytes, inodes::RESIZE, old)?;
    let has_block = record.blocks_512 > 0;
    let top = has_block.then(|| double_indirect(&record, old)).transpose()?;
    if let Some(place) = table.get_mut(range) {
        place.fill(0);
    }
    changes.insert(location.pba, table);
    Ok(top)
}

fn double_indirect(record: &Record, layout: &Layout) -> Result<Pba> {
    let word = record.block.get(DOUBLE_INDIRECT..).and_then(<[u8]>::first_chunk::<4>);
    let top = Pba(u32::from_le_bytes(word.copied().unwrap_or_default()).into());
    if top.get() > layout.first_data_block && layout.contains(top, 1) {
        return Ok(top);
    }
    Err(Corrupt::Inode {
        ino: inodes::RESIZE,
        field: "i_block",
        value: top.get(),
        problem: "has no double indirect block",
    }
    .into())
}

/// Puts a block number of 32 bits. The blocks that are reserved lie below 2^32.
fn put_word(block: &mut [u8], index: u64, value: u64) {
    let at = usize::try_from(index * 4).unwrap_or(usize::MAX);
    let word = u32::try_from(value).unwrap_or(0).to_le_bytes();
    if let Some(place) = block.get_mut(at..at.saturating_add(4)) {
        place.copy_from_slice(&word);
    }
}
