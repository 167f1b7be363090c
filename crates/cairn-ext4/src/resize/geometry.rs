//! The superblock of a grown volume, and what a volume cannot become.

use cairn_base::options::written_size;
use zerocopy::little_endian::{U16, U32};

use crate::error::{Error, Result};
use crate::format::features::{Compat, Incompat};
use crate::format::layout::Layout;
use crate::format::superblock::Superblock;

/// A last group is not made if it has fewer blocks than this beside its metadata, as by mke2fs.
pub(super) const LEAST_LAST_GROUP: u64 = 50;

fn refuse<T>(why: String) -> Result<T> {
    Err(Error::Refused(why))
}

/// The superblock of the volume with this many blocks, or a few less; its counts of free space are
/// still those of the old one.
///
/// # Errors
/// It cannot be as large.
pub(super) fn grown(superblock: &Superblock, old: &Layout, blocks: u64) -> Result<Superblock> {
    let limit =
        if old.features.incompat(Incompat::BITS_64) { 1 << 48 } else { u64::from(u32::MAX) };
    if blocks > limit {
        return too_large(limit, old, "without the feature 64bit");
    }
    let mut new = superblock.clone();
    set_blocks(&mut new, old, blocks)?;
    let layout = Layout::new(&new, u64::MAX)?;
    let last = layout.groups - 1;
    let overhead =
        u64::from(layout.base_metadata(last)) + 2 + u64::from(layout.inode_table_blocks());
    let short = u64::from(layout.group_blocks(last));
    if last >= old.groups && short < overhead + LEAST_LAST_GROUP {
        set_blocks(&mut new, old, blocks - short)?;
    }
    Ok(new)
}

fn too_large<T>(most: u64, old: &Layout, why: &str) -> Result<T> {
    let most = written_size(most.saturating_mul(old.block_size.into()));
    refuse(format!("{why} the volume can have at most {most}: give that size or a smaller one"))
}

/// Sets the numbers of blocks and inodes.
pub(super) fn set_counts(superblock: &mut Superblock, old: &Layout, groups: u32, blocks: u64) {
    // Users keep the same part of the volume.
    let reserved = u128::from(superblock.reserved_blocks()) * u128::from(blocks);
    let reserved = reserved / u128::from(superblock.blocks_count().max(1));
    superblock.set_reserved_blocks(u64::try_from(reserved).unwrap_or(0));
    superblock.set_blocks_count(blocks);
    let raw = &mut superblock.raw;
    raw.s_inodes_count = U32::new(groups * old.inodes_per_group);
    // Linux counts it anew.
    raw.s_overhead_clusters = U32::new(0);
}

/// Sets what follows from the number of blocks.
fn set_blocks(superblock: &mut Superblock, old: &Layout, blocks: u64) -> Result<()> {
    let per_group = u64::from(old.blocks_per_group);
    let groups = (blocks - old.first_data_block).div_ceil(per_group);
    let most = u64::from(u32::MAX / old.inodes_per_group);
    if groups > most {
        let most = old.first_data_block + most * per_group;
        return too_large(most, old, "with 2^32 inodes");
    }
    let groups = u32::try_from(groups).unwrap_or(u32::MAX);
    set_counts(superblock, old, groups, blocks);
    let blocks_of = |groups: u32| groups.div_ceil(old.descs_per_block());
    let before = old.contiguous_descriptor_blocks();
    let reserved =
        if old.features.compat(Compat::RESIZE_INODE) { old.reserved_gdt_blocks } else { 0 };
    let mut features = superblock.features();
    let contiguous = if features.incompat(Incompat::META_BG) {
        blocks_of(groups).min(old.first_meta_bg)
    } else if blocks_of(groups) > before + reserved {
        // The descriptors of further groups lie in these groups, as in volumes that Linux grows.
        features.incompat |= Incompat::META_BG;
        features.compat.remove(Compat::RESIZE_INODE);
        superblock.raw.s_first_meta_bg = U32::new(before + reserved);
        superblock.set_features(features);
        before + reserved
    } else {
        blocks_of(groups)
    };
    let added = contiguous.saturating_sub(before);
    if added > 0 {
        let left = u16::try_from(reserved.saturating_sub(added)).unwrap_or(0);
        superblock.raw.s_reserved_gdt_blocks = U16::new(left);
    }
    Ok(())
}
