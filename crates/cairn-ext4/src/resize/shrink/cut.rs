//! The cut: one transaction after which the volume ends earlier.
//!
//! Structures of the groups that go may lie in groups that stay (flex_bg): their blocks become
//! free. So do blocks of descriptors that go, where the inode of the reserved ones has no place for
//! them.

use std::collections::BTreeMap;

use cairn_base::units::as_index;
use cairn_base::{Pba, bitmap};
use cairn_block::BlockDevice;
use zerocopy::little_endian::U32;

use super::plan::Plan;
use crate::error::Result;
use crate::format::group_desc::{GroupDesc, GroupFlags};
use crate::format::layout::Layout;
use crate::groups::GroupTable;
use crate::groups::zones::pad;
use crate::offline::{Blocks, Offline, Switch, UNCHANGED};
use crate::resize::descriptors::Descriptors;
use crate::resize::reserved;

/// Ends the volume as planned. Nothing of a file is behind the end any more. `None` if the volume
/// has no journal, and no room for a record of the change: it is as it was.
///
/// # Errors
/// The volume is damaged, or the device failed.
pub(super) fn cut(mut volume: Offline, plan: &Plan) -> Result<Option<Offline>> {
    let groups = volume.groups()?;
    let mut superblock = plan.superblock.clone();
    let taken = backup(&volume.layout, &plan.layout, &groups)?;
    if let Some((group, _)) = taken {
        let lost = superblock.raw.s_backup_bgs.iter_mut().find(|group| group.get() == 0);
        lost.into_iter().for_each(|place| *place = U32::new(group));
    }
    let new = Layout::new(&superblock, u64::MAX)?;
    let mut descriptors = Descriptors::read(&volume, &new)?;
    // What a session without a journal has changed.
    let dirty = volume.buffers.dirty();
    let mut changes: Blocks =
        dirty.iter().map(|buffer| (buffer.pba(), buffer.image().to_vec())).collect();
    let mut freed = freed(&volume.layout, &new, &groups);
    // Its bitmap ends earlier.
    freed.entry(new.groups - 1).or_default();
    freed
        .extend(taken.filter(|taken| !freed.contains_key(&taken.0)).map(|taken| (taken.0, vec![])));
    for (group, runs) in &freed {
        let taken = taken.filter(|taken| taken.0 == *group).map_or(0, |taken| taken.1);
        let desc = shortened(&new, &groups, *group, (runs, taken), &mut changes)?;
        descriptors.put(*group, &desc);
    }
    let (mut free_blocks, mut free_inodes) = (0, 0);
    for group in 0..new.groups {
        let desc = descriptors.get(group, &new)?;
        free_blocks += u64::from(desc.free_blocks);
        free_inodes += desc.free_inodes;
    }
    reserved::change(&volume, &new, &mut changes)?;
    descriptors.add_to(&mut changes);
    superblock.set_free_blocks(free_blocks);
    superblock.raw.s_free_inodes_count = U32::new(free_inodes);
    superblock.raw.s_jnl_blocks = volume.superblock.raw.s_jnl_blocks;
    superblock.raw.s_journal_inum = volume.superblock.raw.s_journal_inum;
    superblock.raw.s_jnl_backup_type = volume.superblock.raw.s_jnl_backup_type;
    if let Some((group, _)) = taken {
        // Its blocks are free until the change.
        descriptors.write_backups(&volume, &superblock, group..group + 1)?;
    }
    if volume.journal.is_some() {
        volume.commit(changes, superblock.clone())?;
    } else {
        let switch = Switch::prepare(&volume, superblock.clone(), changes)?;
        if !switch.is_recorded() {
            return Ok(None);
        }
        switch.make(&mut volume, UNCHANGED)?;
    }
    descriptors.write_backups(&volume, &superblock, 1..new.groups)?;
    volume.device.flush()?;
    volume.reopen().map(Some)
}

/// A group for the backup that goes (sparse_super2), and its blocks for it: the last one but the
/// first two where these are free. Without one the volume has a backup less.
fn backup(old: &Layout, new: &Layout, groups: &GroupTable) -> Result<Option<(u32, u32)>> {
    if old.backup_groups == new.backup_groups {
        return Ok(None);
    }
    for group in (2..new.groups).rev().filter(|group| !new.backups(*group)) {
        let mut with = *new;
        with.backup_groups = [group, group];
        let needed = with.base_metadata(group);
        let state = groups.group(group).lock();
        let bits = groups.block_bitmap(group, &state)?;
        if needed <= new.group_blocks(group)
            && bitmap::next_set(&bits, 0, as_index(needed)).is_none()
        {
            return Ok(Some((group, needed)));
        }
    }
    Ok(None)
}

/// Runs of blocks in the groups that stay that belonged to groups that go.
fn freed(old: &Layout, new: &Layout, groups: &GroupTable) -> BTreeMap<u32, Vec<(u32, u32)>> {
    let mut freed: BTreeMap<u32, Vec<(u32, u32)>> = BTreeMap::new();
    for group in new.groups..old.groups {
        let desc = groups.group(group).lock().desc.clone();
        let tables =
            (0..old.inode_table_blocks()).map(|block| desc.inode_table.get() + u64::from(block));
        let all = [desc.block_bitmap.get(), desc.inode_bitmap.get()].into_iter().chain(tables);
        for pba in all.filter(|pba| *pba < new.blocks_count) {
            if let Some((number, bit)) = new.group_and_offset(Pba(pba)) {
                freed.entry(number).or_default().push((bit, 1));
            }
        }
    }
    let descriptors =
        |of: &Layout| of.contiguous_descriptor_blocks().saturating_add(of.reserved_gdt_blocks);
    let (before, after) = (descriptors(old), descriptors(new));
    for group in (0..new.groups).filter(|group| before > after && new.backups(*group)) {
        let first = new.superblock_block(group).get() + 1 + u64::from(after);
        if let Some((number, bit)) = new.group_and_offset(Pba(first)) {
            freed.entry(number).or_default().push((bit, before - after));
        }
    }
    freed
}

/// The descriptor of a group whose bitmap changes: some runs become free, and so many blocks at its
/// start in use.
fn shortened(
    new: &Layout,
    groups: &GroupTable,
    group: u32,
    (freed, taken): (&[(u32, u32)], u32),
    changes: &mut Blocks,
) -> Result<GroupDesc> {
    let state = groups.group(group).lock();
    let mut bits = groups.block_bitmap(group, &state)?;
    let mut desc = state.desc.clone();
    for (bit, len) in freed {
        bitmap::clear_range(&mut bits, as_index(*bit), as_index(*len));
    }
    bitmap::set_range(&mut bits, 0, as_index(taken));
    let blocks = new.group_blocks(group);
    pad(&mut bits, new.group_clusters(group));
    let used = bitmap::count_set(&bits, 0, as_index(blocks));
    desc.free_blocks = blocks.saturating_sub(u32::try_from(used).unwrap_or(blocks));
    desc.flags.remove(GroupFlags::BLOCK_UNINIT);
    desc.block_bitmap_csum = GroupDesc::block_bitmap_checksum(&bits, new).unwrap_or(0);
    changes.insert(desc.block_bitmap, bits);
    Ok(desc)
}
