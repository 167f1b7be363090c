//! [`Plan`]: what a volume will be; the steps to a size, and whether it is possible.

use std::ops::Range;

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
pub(super) struct Plan {
    /// Its superblock; the counts of free space are still the old ones.
    pub(super) superblock: Superblock,
    pub(super) layout: Layout,
}

impl Plan {
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

/// What the contents of a volume need.
struct Needs<'a> {
    layout: &'a Layout,
    groups: &'a GroupTable,
    /// Blocks of files, and those that maps may need.
    files: u64,
    inodes: u64,
}

/// Groups and blocks of a volume.
type Size = (u32, u64);

impl<'a> Needs<'a> {
    fn of(volume: &'a Offline, groups: &'a GroupTable) -> Self {
        let layout = &volume.layout;
        let all: u64 = (0..layout.groups).map(|group| overhead(layout, group)).sum();
        let used = layout.blocks_count - layout.first_data_block - groups.free_blocks_total();
        let files = used.saturating_sub(all);
        let inodes = u64::from(layout.inodes_count) - groups.free_inodes_total();
        Self { layout, groups, files: files + slack(files), inodes }
    }

    /// The smallest volume of `target` blocks or more that one of this size becomes in one step.
    /// Structures of the groups that go need their place until it ends.
    fn next(&self, (count, present): Size, target: u64) -> Option<Size> {
        let layout = self.layout;
        let (mut structures, mut behind) = (layout.first_data_block, 0);
        for group in 0..count {
            let own = overhead(layout, group);
            structures += own;
            behind = metadata_end(layout, self.groups, group).max(behind);
            let first = layout.group_first_block(group).get();
            let most = present.min(first + u64::from(layout.group_blocks(group)));
            let inodes = u64::from(group + 1) * u64::from(layout.inodes_per_group);
            if inodes < self.inodes || most < target || structures + self.files > most {
                continue;
            }
            let others = structures_before(layout, self.groups, group + 1..count, most);
            let end = (structures + self.files + others)
                .max(behind)
                .max(first + own + LEAST_LAST_GROUP)
                .max(target);
            if end <= most {
                return Some((group + 1, end));
            }
        }
        None
    }

    /// The steps to the smallest volume of `target` blocks or more.
    fn steps(&self, target: u64) -> Vec<u64> {
        let mut steps = Vec::new();
        let mut at = (self.layout.groups, self.layout.blocks_count);
        while at.1 > target
            && let Some(next) = self.next(at, target)
            && next.1 < at.1
        {
            steps.push(next.1);
            at = next;
        }
        steps
    }

    /// Blocks of the smallest volume of `target` blocks or more.
    fn least(&self, target: u64) -> u64 {
        self.steps(target).last().copied().unwrap_or(self.layout.blocks_count)
    }

    /// The size of a volume of this many blocks, or a few less; `None` if it is not possible.
    fn possible(&self, volume: &Offline, blocks: u64) -> Result<Option<u64>> {
        if blocks < self.least(0) {
            return Ok(None);
        }
        let planned = Plan::of(volume, blocks)?.layout.blocks_count;
        Ok((self.least(planned) == planned).then_some(planned))
    }

    /// A size for a message: the smallest one of this many blocks or more, as a round number if
    /// that is possible.
    fn written(&self, volume: &Offline, blocks: u64) -> Result<String> {
        let bytes = blocks.saturating_mul(self.layout.block_size.into());
        let round = bytes.next_multiple_of(1 << 20);
        let rounded = round / u64::from(self.layout.block_size);
        let is_smaller = rounded < self.layout.blocks_count;
        let is_possible = is_smaller && self.possible(volume, rounded)?.is_some();
        Ok(written_size(if is_possible { round } else { bytes }))
    }
}

/// Blocks before `end` with structures of these groups.
fn structures_before(layout: &Layout, table: &GroupTable, groups: Range<u32>, end: u64) -> u64 {
    let of = |group: u32| {
        let desc = table.group(group).lock().desc.clone();
        let before = end.saturating_sub(desc.inode_table.get());
        before.min(layout.inode_table_blocks().into())
            + u64::from(desc.block_bitmap.get() < end)
            + u64::from(desc.inode_bitmap.get() < end)
    };
    groups.map(of).sum()
}

/// Blocks of the smallest volume that this one can become.
///
/// # Errors
/// The volume is damaged.
pub(in crate::resize) fn least(volume: &Offline) -> Result<u64> {
    Ok(Needs::of(volume, &volume.groups()?).least(0))
}

/// The steps to a volume of this many blocks, or a few less.
///
/// # Errors
/// The volume cannot become as small.
pub(in crate::resize) fn steps(volume: &Offline, blocks: u64) -> Result<Vec<u64>> {
    let groups = volume.groups()?;
    let needs = Needs::of(volume, &groups);
    if let Some(planned) = needs.possible(volume, blocks)? {
        return Ok(needs.steps(planned));
    }
    let size = needs.written(volume, needs.least(blocks))?;
    Err(Error::Refused(format!("its files do not fit in this size: give {size} or more, or min")))
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
