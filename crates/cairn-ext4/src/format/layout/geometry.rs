//! Checks the numbers of a superblock against each other and the device.

use crate::corrupt::Corrupt;
use crate::format::features::{Features, Incompat, RoCompat};
use crate::format::superblock::{DYNAMIC_REVISION, OLD_FIRST_INODE, OLD_INODE_SIZE, Superblock};

/// Most groups of a volume that Cairn opens (512 TiB with blocks of 4 KiB). It bounds the memory
/// for a hostile superblock.
const MAX_GROUPS: u64 = 1 << 22;
/// Smallest group of mke2fs.
const MIN_BLOCKS_PER_GROUP: u32 = 256;

/// Sizes that all groups have.
pub(super) struct GroupGeometry {
    pub blocks_per_group: u32,
    pub clusters_per_group: u32,
    pub inodes_per_group: u32,
}

/// Size of the volume.
pub(super) struct VolumeGeometry {
    pub blocks_count: u64,
    pub first_data_block: u64,
    pub groups: u32,
    pub inodes_count: u32,
}

pub(super) fn group_geometry(
    superblock: &Superblock,
    block_size: u32,
    inode_size: u32,
    cluster_bits: u32,
) -> Result<GroupGeometry, Corrupt> {
    let raw = &superblock.raw;
    let blocks_per_group = raw.s_blocks_per_group.get();
    let clusters_per_group = blocks_per_group >> cluster_bits;
    let fits =
        clusters_per_group <= block_size.saturating_mul(8) && clusters_per_group.is_multiple_of(8);
    let sane = blocks_per_group >= MIN_BLOCKS_PER_GROUP
        && fits
        && clusters_per_group << cluster_bits == blocks_per_group;
    check(
        "s_blocks_per_group",
        blocks_per_group.into(),
        sane,
        "not a multiple of 8 from 256 to the bitmap's bits",
    )?;
    let inodes_per_group = raw.s_inodes_per_group.get();
    let sane = (block_size.strict_div(inode_size)..=block_size.saturating_mul(8))
        .contains(&inodes_per_group);
    check(
        "s_inodes_per_group",
        inodes_per_group.into(),
        sane,
        "not from one table block to the bitmap's bits",
    )?;
    Ok(GroupGeometry { blocks_per_group, clusters_per_group, inodes_per_group })
}

/// Checks the size of the volume. [`group_geometry`] has checked the sizes of a group before.
pub(super) fn volume_geometry(
    superblock: &Superblock,
    block_bits: u32,
    cluster_bits: u32,
    device_bytes: u64,
) -> Result<VolumeGeometry, Corrupt> {
    let raw = &superblock.raw;
    let (blocks_per_group, inodes_per_group) =
        (raw.s_blocks_per_group.get(), raw.s_inodes_per_group.get());
    let blocks_count = superblock.blocks_count();
    let first_data_block = u64::from(raw.s_first_data_block.get());
    let expected = u64::from(block_bits == 10 && cluster_bits == 0);
    check(
        "s_first_data_block",
        first_data_block,
        first_data_block == expected,
        "not 1 with 1 KiB blocks or not 0 with larger",
    )?;
    check(
        "s_blocks_count",
        blocks_count,
        blocks_count > first_data_block.saturating_add(7),
        "too few blocks for a filesystem",
    )?;
    if blocks_count > device_bytes >> block_bits {
        return Err(Corrupt::TooShort {
            volume: blocks_count.saturating_mul(1 << block_bits),
            device: device_bytes,
        });
    }
    let groups = blocks_count.saturating_sub(first_data_block).div_ceil(blocks_per_group.into());
    check("s_blocks_count", blocks_count, groups <= MAX_GROUPS, "more than 4194304 groups")?;
    let groups = u32::try_from(groups).unwrap_or(u32::MAX);
    let inodes = u64::from(groups).saturating_mul(inodes_per_group.into());
    let inodes_count = raw.s_inodes_count.get();
    check(
        "s_inodes_count",
        inodes_count.into(),
        inodes == inodes_count.into(),
        "not groups times s_inodes_per_group",
    )?;
    Ok(VolumeGeometry { blocks_count, first_data_block, groups, inodes_count })
}

pub(super) fn check(
    field: &'static str,
    value: u64,
    right: bool,
    problem: &'static str,
) -> Result<(), Corrupt> {
    if right { Ok(()) } else { Err(Corrupt::Superblock { field, value, problem }) }
}

pub(super) fn inode_geometry(
    superblock: &Superblock,
    block_size: u32,
) -> Result<(u32, u32), Corrupt> {
    if superblock.raw.s_rev_level.get() < DYNAMIC_REVISION {
        return Ok((OLD_INODE_SIZE.into(), OLD_FIRST_INODE));
    }
    let size = u32::from(superblock.raw.s_inode_size.get());
    let sane = size.is_power_of_two() && (128..=block_size).contains(&size);
    check("s_inode_size", size.into(), sane, "not a power of two from 128 to the block size")?;
    let first = superblock.raw.s_first_ino.get();
    check("s_first_ino", first.into(), first >= OLD_FIRST_INODE, "below 11")?;
    Ok((size, first))
}

pub(super) fn desc_size(superblock: &Superblock, block_size: u32) -> Result<u32, Corrupt> {
    if !superblock.features().incompat(Incompat::BITS_64) {
        return Ok(32);
    }
    let size = u32::from(superblock.raw.s_desc_size.get());
    let sane = size.is_power_of_two() && (64..=block_size.min(1024)).contains(&size);
    check("s_desc_size", size.into(), sane, "not a power of two from 64 to 1024")?;
    Ok(size)
}

pub(super) fn cluster_bits(superblock: &Superblock, features: Features) -> Result<u32, Corrupt> {
    if !features.ro_compat(RoCompat::BIGALLOC) {
        return Ok(0);
    }
    let log = superblock.raw.s_log_cluster_size.get();
    let bits = log.checked_sub(superblock.raw.s_log_block_size.get()).filter(|bits| *bits <= 16);
    bits.ok_or(Corrupt::Superblock {
        field: "s_log_cluster_size",
        value: log.into(),
        problem: "not from the block size to 65536 blocks",
    })
}

pub(super) fn want_extra_isize(superblock: &Superblock, inode_size: u32) -> u16 {
    let room = u16::try_from(inode_size.saturating_sub(128)).unwrap_or(0);
    let (want, least) =
        (superblock.raw.s_want_extra_isize.get(), superblock.raw.s_min_extra_isize.get());
    // 32 bytes hold every field known today. They replace an invalid stored value.
    let default = 32.min(room);
    let wish = want.max(least);
    if wish <= room && wish >= default && wish.is_multiple_of(4) { wish } else { default }
}

pub(super) fn min_extra_isize(superblock: &Superblock, inode_size: u32) -> u16 {
    let least = superblock.raw.s_min_extra_isize.get();
    if least.is_multiple_of(4) { least.min(want_extra_isize(superblock, inode_size)) } else { 0 }
}
