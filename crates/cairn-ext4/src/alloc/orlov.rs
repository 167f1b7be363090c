//! Orlov's placement of directories. Top-level directories are spread over the volume. Others stay
//! near their parent, unless its neighbourhood is fuller than the average. The unit is a flexible
//! group.
//!
//! The counts may be slightly old, because the choice is only a preference.

use std::sync::atomic::Ordering;

use crate::format::layout::Layout;
use crate::groups::GroupTable;

/// The counts of a unit of groups.
#[derive(Clone, Copy, Default)]
struct Load {
    directories: u64,
    free_inodes: u64,
    free_blocks: u64,
}

fn load_of(groups: &GroupTable, unit: u32) -> Load {
    let size = groups.layout().groups_per_flex();
    let first = unit.saturating_mul(size);
    let mut load = Load::default();
    for number in first..first.saturating_add(size).min(groups.len()) {
        let group = groups.group(number);
        load.directories += u64::from(group.used_dirs.load(Ordering::Relaxed));
        load.free_inodes += u64::from(group.free_inodes.load(Ordering::Relaxed));
        load.free_blocks += u64::from(group.free_blocks.load(Ordering::Relaxed));
    }
    load
}

/// The preferred group of a new directory.
pub(super) fn directory_group(
    groups: &GroupTable,
    parent_group: u32,
    top_level: bool,
    random: u64,
) -> u32 {
    let layout = groups.layout();
    let size = layout.groups_per_flex();
    let units = groups.len().div_ceil(size);
    let unit_count = u64::from(units);
    let average = Load {
        directories: groups.directories_total() / unit_count,
        free_inodes: groups.free_inodes_total() / unit_count,
        free_blocks: groups.free_blocks_total() / unit_count,
    };
    let home = parent_group / size;
    let chosen = if top_level {
        spread(groups, units, &average, random)
    } else {
        cluster(groups, layout, units, home, &average)
    };
    let unit = chosen.unwrap_or(home);
    let first = unit * size;
    let end = first.saturating_add(size).min(groups.len());
    // In the parent's unit its own group comes first.
    let start = if unit == home { parent_group } else { first };
    (start..end)
        .chain(first..start)
        .find(|number| groups.group(*number).free_inodes.load(Ordering::Relaxed) > 0)
        .unwrap_or(start)
}

/// The unit with the fewest directories among those with at least average room.
fn spread(groups: &GroupTable, units: u32, average: &Load, random: u64) -> Option<u32> {
    let start = u32::try_from(random % u64::from(units)).unwrap_or(0);
    (start..units)
        .chain(0..start)
        .map(|unit| (unit, load_of(groups, unit)))
        .filter(|(_, load)| {
            load.free_inodes > 0
                && load.free_inodes >= average.free_inodes
                && load.free_blocks >= average.free_blocks
        })
        .min_by_key(|(_, load)| load.directories)
        .map(|(unit, _)| unit)
}

/// The first unit from the parent's on that is not much fuller than the average, or else one with
/// average room.
fn cluster(
    groups: &GroupTable,
    layout: &Layout,
    units: u32,
    home: u32,
    average: &Load,
) -> Option<u32> {
    let size = u64::from(layout.groups_per_flex());
    let inodes = u64::from(layout.inodes_per_group) * size;
    let blocks = u64::from(layout.blocks_per_group) * size;
    let most_directories = average.directories + inodes / 16;
    let least_inodes = average.free_inodes.saturating_sub(inodes / 4).max(1);
    let least_blocks = average.free_blocks.saturating_sub(blocks / 4);
    let order = || (home..units).chain(0..home);
    let good = order().find(|unit| {
        let load = load_of(groups, *unit);
        load.directories < most_directories
            && load.free_inodes >= least_inodes
            && load.free_blocks >= least_blocks
    });
    good.or_else(|| {
        order().find(|unit| load_of(groups, *unit).free_inodes >= average.free_inodes.max(1))
    })
}

/// The order in which groups are searched for an inode: the preferred one, its flexible group, all
/// others.
pub(super) fn candidates(layout: &Layout, first: u32) -> impl Iterator<Item = u32> {
    let start = layout.flex_start(first);
    let end = start.saturating_add(layout.groups_per_flex()).min(layout.groups);
    let near = (first..end).chain(start..first);
    near.chain(end..layout.groups).chain(0..start)
}
