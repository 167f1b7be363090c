//! Bitmaps, descriptors and superblocks of a new volume.

use cairn_base::{Pba, bitmap};
use zerocopy::little_endian::{U16, U32};

use super::output::Output;
use super::plan::Plan;
use crate::error::Result;
use crate::format::group_desc::{GroupDesc, GroupFlags};
use crate::format::superblock::{OFFSET, SIZE};
use crate::groups::zones::pad;

/// Writes all of them, the primary superblock last.
pub(super) fn write(plan: &mut Plan, output: &mut Output) -> Result<()> {
    let mut free = 0;
    for group in 0..plan.layout.groups {
        block_bitmap(plan, output, group)?;
        inode_bitmap(plan, output, group)?;
        free += u64::from(plan.descs[group as usize].free_blocks);
    }
    plan.superblock.set_free_blocks(free);
    let inodes = plan.layout.inodes_count - plan.used_inodes;
    plan.superblock.raw.s_free_inodes_count = U32::new(inodes);
    // Descriptors overlap earlier writes, so they begin a new batch.
    output.send()?;
    descriptors(plan, output)?;
    superblocks(plan, output)
}

pub(super) fn block_bitmap(plan: &mut Plan, output: &mut Output, group: u32) -> Result<()> {
    let layout = plan.layout;
    let first = layout.group_first_block(group).get();
    let blocks = layout.group_blocks(group);
    let mut bits = vec![0; layout.block_size as usize];
    for (start, end) in plan.used.used(first, first + u64::from(blocks)) {
        // Both lie in the group.
        bitmap::set_range(&mut bits, (start - first) as usize, (end - start) as usize);
    }
    let used = bitmap::count_set(&bits, 0, blocks as usize);
    let desc = &mut plan.descs[group as usize];
    desc.free_blocks = blocks - u32::try_from(used).expect("at most the group's blocks");
    // The bitmap is left uninitialised only in a group with superblock and descriptors alone, for
    // which every reader computes the same bitmap.
    let bare = used == layout.base_metadata(group) as usize && group + 1 < layout.groups;
    if layout.features.has_group_checksums() && bare {
        desc.flags |= GroupFlags::BLOCK_UNINIT;
        return Ok(());
    }
    pad(&mut bits, blocks);
    desc.block_bitmap_csum = GroupDesc::block_bitmap_checksum(&bits, &layout).unwrap_or(0);
    let place = desc.block_bitmap;
    output.blocks(place, bits)
}

pub(super) fn inode_bitmap(plan: &mut Plan, output: &mut Output, group: u32) -> Result<()> {
    let layout = plan.layout;
    let before = u64::from(group) * u64::from(layout.inodes_per_group);
    let used = u64::from(plan.used_inodes).saturating_sub(before);
    let used = u32::try_from(used).unwrap_or(u32::MAX).min(layout.inodes_per_group);
    let desc = &mut plan.descs[group as usize];
    desc.free_inodes = layout.inodes_per_group - used;
    if layout.features.has_group_checksums() {
        desc.itable_unused = desc.free_inodes;
        desc.flags |= GroupFlags::INODE_ZEROED;
        if used == 0 {
            desc.flags |= GroupFlags::INODE_UNINIT;
            return Ok(());
        }
    }
    let mut bits = vec![0; layout.block_size as usize];
    bitmap::set_range(&mut bits, 0, used as usize);
    pad(&mut bits, layout.inodes_per_group);
    desc.inode_bitmap_csum = GroupDesc::inode_bitmap_checksum(&bits, &layout).unwrap_or(0);
    let place = desc.inode_bitmap;
    output.blocks(place, bits)
}

fn descriptors(plan: &Plan, output: &mut Output) -> Result<()> {
    let layout = &plan.layout;
    let per_block = layout.descs_per_block();
    let backups: Vec<u32> = (1..layout.groups).filter(|group| layout.backups(*group)).collect();
    for first in (0..layout.groups).step_by(per_block as usize) {
        let end = first.saturating_add(per_block).min(layout.groups);
        let mut block = vec![0; layout.block_size as usize];
        for group in first..end {
            let at = layout.descriptor_offset(group);
            plan.descs[group as usize].encode(
                group,
                layout,
                &mut block[at..at + layout.desc_size as usize],
            );
        }
        let primary = layout.descriptor_block(first);
        if layout.is_meta_bg(first) {
            for group in (first + 1..end).filter(|group| layout.holds_metagroup_descriptors(*group))
            {
                let behind = u64::from(layout.backups(group));
                output
                    .blocks(Pba(layout.group_first_block(group).get() + behind), block.clone())?;
            }
        } else {
            for group in &backups {
                let index = u64::from(first / per_block);
                output.blocks(
                    Pba(layout.group_first_block(*group).get() + 1 + index),
                    block.clone(),
                )?;
            }
        }
        output.blocks(primary, block)?;
    }
    Ok(())
}

fn superblocks(plan: &mut Plan, output: &mut Output) -> Result<()> {
    let layout = plan.layout;
    for group in (1..layout.groups).filter(|group| layout.backups(*group)) {
        // The field has 16 bits; readers accept 65535 for larger numbers.
        plan.superblock.raw.s_block_group_nr = U16::new(u16::try_from(group).unwrap_or(u16::MAX));
        let mut block = vec![0; layout.block_size as usize];
        block[..SIZE].copy_from_slice(&plan.superblock.encode());
        output.blocks(layout.superblock_block(group), block)?;
    }
    plan.superblock.raw.s_block_group_nr = U16::new(0);
    let mut block = vec![0; layout.block_size as usize];
    let at = usize::try_from(OFFSET % u64::from(layout.block_size)).expect("a small offset");
    block[at..at + SIZE].copy_from_slice(&plan.superblock.encode());
    output.finish(layout.superblock_block(0), block)
}
