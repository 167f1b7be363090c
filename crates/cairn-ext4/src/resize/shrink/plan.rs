//! [`Plan`]: what a volume will be, and whether that is possible.

use cairn_base::options::written_size;
use zerocopy::little_endian::{U16, U32};

use crate::error::{Error, Result};
use crate::format::features::{Compat, Incompat};
use crate::format::layout::Layout;
use crate::format::superblock::Superblock;
use crate::groups::GroupTable;
use crate::offline::Offline;
use crate::resize::geometry::{LEAST_LAST_GROUP, set_counts};

/// Blocks that maps may need beyond what they have: this many, and one in 256.
const SLACK: u64 = 32;

/// A smaller volume.
pub(in crate::resize) struct Plan {
    /// Its superblock; the counts of free space are still the old ones.
    pub(super) superblock: Superblock,
    pub(super) layout: Layout,
}

fn refuse<T>(why: impl Into<String>) -> Result<T> {
    Err(Error::Refused(why.into()))
}

impl Plan {
    /// Plans a volume of this many blocks, or a few less.
    ///
    /// # Errors
    /// The volume cannot become as small, or not at all.
    pub(in crate::resize) fn new(volume: &Offline, blocks: u64) -> Result<Self> {
        let groups = volume.groups()?;
        let least = least_blocks(volume, &groups, false);
        let too_small = || {
            let bytes = least.saturating_mul(volume.layout.block_size.into());
            let bytes = written_size(bytes.next_multiple_of(1 << 20));
            refuse(format!("its files do not fit in this size: give {bytes} or more, or min"))
        };
        if blocks < least {
            return too_small();
        }
        let plan = Self::of(volume, blocks)?;
        match plan.check(volume, &groups) {
            true => Ok(plan),
            false => too_small(),
        }
    }

    /// Plans a step, for which there may be no room.
    ///
    /// # Errors
    /// The volume cannot have this size.
    pub(super) fn of(volume: &Offline, blocks: u64) -> Result<Self> {
        let superblock = smaller(&volume.dated(), &volume.layout, blocks);
        let layout = Layout::new(&superblock, u64::MAX)?;
        let last = layout.groups - 1;
        let short = u64::from(layout.group_blocks(last));
        if last > 0 && short < overhead(&layout, last) + LEAST_LAST_GROUP {
            return Self::of(volume, blocks - short);
        }
        Ok(Self { superblock, layout })
    }

    /// True if the structures of all groups that stay lie before the end.
    fn check(&self, volume: &Offline, groups: &GroupTable) -> bool {
        (0..self.layout.groups)
            .all(|group| metadata_end(&volume.layout, groups, group) <= self.layout.blocks_count)
    }
}

/// Blocks of a group's structures.
fn overhead(layout: &Layout, group: u32) -> u64 {
    u64::from(layout.base_metadata(group)) + 2 + u64::from(layout.inode_table_blocks())
}

/// The block behind the bitmaps and the inode table of a group.
fn metadata_end(layout: &Layout, groups: &GroupTable, group: u32) -> u64 {
    let desc = groups.group(group).lock().desc.clone();
    let table = desc.inode_table.get() + u64::from(layout.inode_table_blocks());
    table.max(desc.block_bitmap.get() + 1).max(desc.inode_bitmap.get() + 1)
}

/// Blocks that maps may need.
fn slack(files: u64) -> u64 {
    SLACK + files / 256
}

/// Blocks of the smallest volume that holds the files. `at_once`: and the structures of groups that
/// go, where they lie before its end, because these become free only when it is cut.
fn least_blocks(volume: &Offline, groups: &GroupTable, at_once: bool) -> u64 {
    let layout = &volume.layout;
    let all: u64 = (0..layout.groups).map(|group| overhead(layout, group)).sum();
    let used = layout.blocks_count - layout.first_data_block - groups.free_blocks_total();
    let files = used.saturating_sub(all);
    let files = files + slack(files);
    let inodes = u64::from(layout.inodes_count) - groups.free_inodes_total();
    let (mut structures, mut behind) = (layout.first_data_block, 0);
    for group in 0..layout.groups {
        structures += overhead(layout, group);
        behind = metadata_end(layout, groups, group).max(behind);
        let first = layout.group_first_block(group).get();
        let most = first + u64::from(layout.group_blocks(group));
        let has_inodes = u64::from(group + 1) * u64::from(layout.inodes_per_group) >= inodes;
        if !has_inodes || structures + files > most {
            continue;
        }
        let others = if at_once { structures_behind(layout, groups, group, most) } else { 0 };
        let end = (structures + files + others)
            .max(behind)
            .max(first + overhead(layout, group) + LEAST_LAST_GROUP);
        if end <= most {
            return end;
        }
    }
    layout.blocks_count
}

/// Blocks before `end` with structures of the groups behind `group`.
fn structures_behind(layout: &Layout, groups: &GroupTable, group: u32, end: u64) -> u64 {
    let of = |group: u32| {
        let desc = groups.group(group).lock().desc.clone();
        let table = end.saturating_sub(desc.inode_table.get());
        table.min(layout.inode_table_blocks().into())
            + u64::from(desc.block_bitmap.get() < end)
            + u64::from(desc.inode_bitmap.get() < end)
    };
    (group + 1..layout.groups).map(of).sum()
}

/// Blocks of the smallest volume that this one can become.
///
/// # Errors
/// The volume is damaged.
pub(in crate::resize) fn least(volume: &Offline) -> Result<u64> {
    Ok(least_blocks(volume, &volume.groups()?, false))
}

/// The next step towards a volume of this many blocks.
///
/// # Errors
/// As [`least`].
pub(super) fn step(volume: &Offline, blocks: u64) -> Result<u64> {
    let groups = volume.groups()?;
    let least = least_blocks(volume, &groups, true).max(blocks);
    // Earlier steps have used up a part of what is left to maps.
    let used = volume.layout.blocks_count.saturating_sub(groups.free_blocks_total());
    Ok(if least - blocks <= slack(used) { blocks } else { least })
}

/// The superblock of the volume with this many blocks.
fn smaller(superblock: &Superblock, old: &Layout, blocks: u64) -> Superblock {
    let mut superblock = superblock.clone();
    let per_group = u64::from(old.blocks_per_group);
    let groups = (blocks - old.first_data_block).div_ceil(per_group);
    let groups = u32::try_from(groups).unwrap_or(u32::MAX);
    set_counts(&mut superblock, old, groups, blocks);
    let raw = &mut superblock.raw;
    // Blocks of descriptors become reserved ones, as far as the inode of these has place. The
    // others are free after the cut.
    let descriptors = groups.div_ceil(old.descs_per_block());
    let removed = old.descriptor_blocks() - descriptors;
    if removed > 0 && old.features.compat(Compat::RESIZE_INODE) {
        let reserved = (old.reserved_gdt_blocks + removed).min(old.block_size / 4);
        raw.s_reserved_gdt_blocks = U16::new(u16::try_from(reserved).unwrap_or(u16::MAX));
    }
    if old.features.incompat(Incompat::META_BG) {
        raw.s_first_meta_bg = U32::new(old.first_meta_bg.min(descriptors));
    }
    if old.features.compat(Compat::SPARSE_SUPER2) {
        raw.s_backup_bgs = old
            .backup_groups
            .map(U32::new)
            .map(|group| if group.get() < groups { group } else { U32::new(0) });
    }
    superblock
}
