//! The first superblock and descriptors, made from a backup.
//!
//! A backup is as old as the volume or its last change of size. So it does not say that the journal
//! holds changes, and that parts of inode tables are in use by now.

use std::sync::Arc;

use cairn_base::Pba;
use cairn_base::units::as_index;
use cairn_block::{BlockDevice, BlockDeviceExt};

use crate::error::Result;
use crate::format::features::Incompat;
use crate::format::group_desc::{GroupDesc, GroupFlags};
use crate::format::layout::Layout;
use crate::format::superblock::{OFFSET, SIZE, Superblock};
use crate::info;
use crate::journal_area;
use crate::probe::Probe;

/// Writes the superblock of a backup over the first one, and its descriptors over those that are
/// damaged. Returns the superblock.
///
/// # Errors
/// The device failed.
pub(super) fn restore(device: &Arc<dyn BlockDevice>, found: &Probe) -> Result<Superblock> {
    let mut superblock = found.superblock.clone();
    superblock.raw.s_block_group_nr = 0.into();
    let layout = Layout::new(&superblock, device.geometry().size)?;
    let images = found.images();
    for index in 0..layout.descriptor_blocks() {
        let first = index.saturating_mul(layout.descs_per_block());
        let pba = layout.descriptor_block(first);
        let now = device.read_block(place(&layout, pba), as_index(layout.block_size))?;
        if let Some(copy) = images.get(&pba).filter(|_| !are_sound(&now, first, &layout)) {
            let mut copy = copy.to_vec();
            unmark(&mut copy, first, &layout);
            device.write_at(place(&layout, pba), copy)?;
        }
    }
    device.write_at(OFFSET, superblock.encode().to_vec())?;
    // Nobody knows what a journal on another device holds: a replay of an empty one is harmless.
    let is_elsewhere = info::names_external_journal(&superblock);
    if is_elsewhere || journal_area::holds_log(device, &superblock, &layout)? {
        let mut features = superblock.features();
        features.incompat.insert(Incompat::RECOVER);
        superblock.set_features(features);
        device.write_at(OFFSET, superblock.encode().to_vec())?;
    }
    debug_assert_eq!(superblock.encode().len(), SIZE);
    Ok(superblock)
}

fn place(layout: &Layout, pba: Pba) -> u64 {
    pba.get().saturating_mul(layout.block_size.into())
}

/// The descriptors of a block, each with its group.
fn groups(first: u32, layout: &Layout) -> impl Iterator<Item = (u32, std::ops::Range<usize>)> {
    let layout = *layout;
    let end = first.saturating_add(layout.descs_per_block()).min(layout.groups);
    (first..end).map(move |group| {
        let at = layout.descriptor_offset(group);
        (group, at..at.saturating_add(as_index(layout.desc_size)))
    })
}

/// Are all descriptors of this block possible, with right checksums? Without checksums a backup is
/// no better than what is there, as long as that is possible.
fn are_sound(block: &[u8], first: u32, layout: &Layout) -> bool {
    groups(first, layout).all(|(group, range)| {
        let bytes = block.get(range).unwrap_or_default();
        let decoded = GroupDesc::decode(bytes, group, layout);
        decoded.is_ok_and(|desc| {
            [desc.block_bitmap, desc.inode_bitmap].iter().all(|pba| layout.contains(*pba, 1))
                && layout.contains(desc.inode_table, layout.inode_table_blocks().into())
        })
    })
}

/// Removes the marks of parts that were never written.
fn unmark(block: &mut [u8], first: u32, layout: &Layout) {
    for (group, range) in groups(first, layout) {
        let Some(bytes) = block.get_mut(range) else { continue };
        let mut desc = GroupDesc::decode_unchecked(bytes, layout);
        desc.flags.remove(GroupFlags::INODE_UNINIT | GroupFlags::BLOCK_UNINIT);
        desc.itable_unused = 0;
        desc.encode(group, layout, bytes);
    }
}
