//! How many blocks, groups, inodes and reserved blocks a new volume has.

use cairn_base::options::written_size;
use zerocopy::little_endian::{U16, U32};

use super::options::MkfsOptions;
use crate::error::{Error, Result};
use crate::format::features::{Compat, Incompat};
use crate::format::layout::{Layout, inodes};
use crate::format::superblock::Superblock;

const MIB: u64 = 1 << 20;
/// A last group is dropped if it has fewer blocks than this beside its metadata.
const LEAST_LAST_GROUP: u64 = 50;
/// In blocks.
const SMALLEST_VOLUME: u64 = 64;

pub(super) fn refuse<T>(why: impl Into<String>) -> Result<T> {
    Err(Error::Option(why.into()))
}

/// Sets all sizes of a volume of `blocks` blocks with an inode for each `ratio` bytes.
pub(super) fn set(
    superblock: &mut Superblock,
    options: &MkfsOptions,
    blocks: u64,
    ratio: u64,
) -> Result<()> {
    set_counts(superblock, options, blocks, ratio)?;
    set_reserved_descriptors(superblock);
    spread_descriptors(superblock);
    drop_short_group(superblock)?;
    set_reserved_blocks(superblock, options)
}

fn block_size(superblock: &Superblock) -> u64 {
    1024 << superblock.raw.s_log_block_size.get()
}

fn groups(superblock: &Superblock) -> u64 {
    let data = superblock.blocks_count() - u64::from(superblock.raw.s_first_data_block.get());
    data.div_ceil(superblock.raw.s_blocks_per_group.get().into())
}

fn set_counts(
    superblock: &mut Superblock,
    options: &MkfsOptions,
    blocks: u64,
    ratio: u64,
) -> Result<()> {
    let block_size = block_size(superblock);
    let limit = if superblock.features().incompat(Incompat::BITS_64) {
        1 << 48
    } else {
        u64::from(u32::MAX)
    };
    if blocks < SMALLEST_VOLUME {
        let least = written_size(SMALLEST_VOLUME * block_size);
        return refuse(format!("too small for ext4: give a size of at least {least}"));
    }
    if blocks > limit {
        let most = written_size(limit.next_power_of_two().saturating_mul(block_size));
        return refuse(format!(
            "too large for ext4 with blocks of {}: give a size below {most}",
            written_size(block_size)
        ));
    }
    superblock.set_blocks_count(blocks);
    let per_group = u32::try_from(block_size * 8).unwrap_or(u32::MAX).min(65528);
    superblock.raw.s_blocks_per_group = U32::new(per_group);
    superblock.raw.s_clusters_per_group = U32::new(per_group);
    if !(1024..=64 * MIB).contains(&ratio) {
        return refuse(format!(
            "an inode for each {ratio} bytes is not possible: give 1024 to {} bytes, such as 16384",
            64 * MIB
        ));
    }
    let wanted = options
        .inodes
        .map_or(blocks * block_size / ratio, u64::from)
        .max(u64::from(inodes::FIRST) + 1);
    let groups = groups(superblock);
    // Table blocks and bitmap bytes are filled completely.
    let per_block = block_size / u64::from(superblock.raw.s_inode_size.get());
    let step = if per_block.is_multiple_of(8) { per_block } else { per_block * 8 / gcd(per_block) };
    let mut inodes_per_group =
        wanted.div_ceil(groups).next_multiple_of(step).max(step.next_multiple_of(16));
    let most = (block_size * 8).min(65528);
    if options.inodes.is_none() {
        // A ratio is approximate: bitmaps and the width of inode numbers limit it.
        let most = most.min(u64::from(u32::MAX) / groups);
        inodes_per_group = inodes_per_group.min(most / step * step).max(step);
    }
    if inodes_per_group > most || inodes_per_group * groups > u64::from(u32::MAX) {
        let most = most.min(u64::from(u32::MAX) / groups) / step * step * groups;
        return refuse(format!(
            "{wanted} inodes are not possible in this volume: give {step} to {most}"
        ));
    }
    superblock.raw.s_inodes_per_group =
        U32::new(u32::try_from(inodes_per_group).unwrap_or(u32::MAX));
    Ok(())
}

/// Greatest common divisor of 8 and a power of two.
const fn gcd(power: u64) -> u64 {
    if power < 8 { power } else { 8 }
}

/// Spreads the descriptors over the volume (meta_bg) where they and the blocks reserved for more
/// would take more than three quarters of a group with a copy, as mke2fs does: from 192 TiB
/// on, or from 0.7 TiB with blocks of 1 KiB.
fn spread_descriptors(superblock: &mut Superblock) {
    let mut features = superblock.features();
    let desc_size = if features.incompat(Incompat::BITS_64) { 64 } else { 32 };
    let blocks = (groups(superblock) * desc_size).div_ceil(block_size(superblock));
    let taken = blocks + u64::from(superblock.raw.s_reserved_gdt_blocks.get());
    let per_group = u64::from(superblock.raw.s_blocks_per_group.get());
    if features.incompat(Incompat::META_BG) || taken <= per_group / 4 * 3 {
        return;
    }
    features.incompat |= Incompat::META_BG;
    features.compat.remove(Compat::RESIZE_INODE);
    superblock.raw.s_reserved_gdt_blocks = U16::new(0);
    superblock.set_features(features);
}

/// Reserves descriptor blocks for growth to 1024 times the size, at most those of one pointer
/// block.
fn set_reserved_descriptors(superblock: &mut Superblock) {
    if !superblock.features().compat(Compat::RESIZE_INODE) {
        return;
    }
    let first = u64::from(superblock.raw.s_first_data_block.get());
    let most = superblock.blocks_count().saturating_mul(1024).min(u64::from(u32::MAX));
    let desc_size = if superblock.features().incompat(Incompat::BITS_64) { 64 } else { 32 };
    let per_block = block_size(superblock) / desc_size;
    let final_groups = (most - first).div_ceil(superblock.raw.s_blocks_per_group.get().into());
    let now = groups(superblock).div_ceil(per_block);
    let reserved =
        final_groups.div_ceil(per_block).saturating_sub(now).min(block_size(superblock) / 4);
    superblock.raw.s_reserved_gdt_blocks = U16::new(u16::try_from(reserved).unwrap_or(0));
}

/// Drops a last group that has room for little more than its own metadata.
fn drop_short_group(superblock: &mut Superblock) -> Result<()> {
    let groups = set_groups(superblock)?;
    let layout = probe_layout(superblock)?;
    let last = groups - 1;
    let overhead =
        u64::from(layout.base_metadata(last)) + 2 + u64::from(layout.inode_table_blocks());
    let blocks = u64::from(layout.group_blocks(last));
    if blocks >= overhead + LEAST_LAST_GROUP {
        return Ok(());
    }
    if last == 0 {
        return refuse(
            "the volume is too small, its metadata would take all of it: give a larger size, such \
             as 64M",
        );
    }
    superblock.set_blocks_count(superblock.blocks_count() - blocks);
    set_groups(superblock).map(drop)
}

/// Sets the fields that depend on the number of groups.
fn set_groups(superblock: &mut Superblock) -> Result<u32> {
    let count = groups(superblock);
    let Ok(count) = u32::try_from(count) else { return refuse("too many groups") };
    superblock.raw.s_inodes_count = U32::new(count * superblock.raw.s_inodes_per_group.get());
    if superblock.features().compat(Compat::SPARSE_SUPER2) && count > 1 {
        let last = if count > 2 { count - 1 } else { 0 };
        superblock.raw.s_backup_bgs = [U32::new(1), U32::new(last)];
    }
    Ok(count)
}

fn probe_layout(superblock: &Superblock) -> Result<Layout> {
    Layout::new(superblock, u64::MAX).map_err(|why| {
        Error::Option(format!(
            "these sizes do not fit together: {why}: give another size or other features"
        ))
    })
}

fn set_reserved_blocks(superblock: &mut Superblock, options: &MkfsOptions) -> Result<()> {
    let percent = options.reserved_percent.unwrap_or(5.0);
    if !(0.0..=50.0).contains(&percent) {
        return refuse(format!("{percent} percent cannot be reserved: give 0 to 50, such as 5"));
    }
    // The precision suffices for a percentage.
    superblock.set_reserved_blocks((superblock.blocks_count() as f64 * percent / 100.0) as u64);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::identity::Identity;
    use super::super::plan::Plan;
    use super::*;
    use crate::format::features::Features;

    /// The largest volumes, and small blocks with many groups: descriptors fill whole groups, and
    /// inode numbers have 32 bits.
    #[test]
    fn descriptors_of_large_volumes_are_spread() {
        const TIB: u64 = 1 << 40;
        for (bytes, block_size, is_spread) in [
            (180 * TIB, 4096, false),
            (200 * TIB, 4096, true),
            (256 * TIB, 4096, true),
            (500 * TIB, 4096, true),
            (TIB / 2, 1024, false),
            (TIB, 1024, true),
        ] {
            let options = MkfsOptions { block_size: Some(block_size), ..MkfsOptions::default() };
            let identity =
                Identity::new(&options, &*cairn_base::runtime::simulated::Simulated::new(1));
            let mut plan = Plan::new(&options, bytes, &identity, Features::default()).unwrap();
            // A group with a backup has room for its tables.
            if plan.layout.groups < 200_000 {
                plan.place_tables().unwrap();
            }
            let features = plan.superblock.features();
            assert_eq!(features.incompat(Incompat::META_BG), is_spread, "{bytes}");
            assert_eq!(features.compat(Compat::RESIZE_INODE), !is_spread, "{bytes}");
            assert_eq!(plan.superblock.blocks_count(), bytes / u64::from(block_size));
        }
    }
}
