//! Sizes and places of all structures of a new volume.

use cairn_base::Pba;
use zerocopy::FromZeros;
use zerocopy::little_endian::{U16, U32};

use super::features;
use super::identity::Identity;
use super::journal;
use super::options::MkfsOptions;
use super::output::Output;
use super::ranges::Ranges;
use super::sizes;
use super::sizes::refuse;
use crate::error::{Error, Result};
use crate::format::features::{Compat, Features, Incompat, RoCompat};
use crate::format::group_desc::{GroupDesc, GroupFlags};
use crate::format::layout::{Layout, inodes};
use crate::format::superblock::{
    CHECKSUM_CRC32C, DYNAMIC_REVISION, FLAG_SIGNED_HASH, MAGIC, RawSuperblock, STATE_VALID,
    Superblock,
};

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
/// Default mount options of mke2fs.conf: user_xattr and acl.
const MOUNT_OPTIONS: u32 = 0x4 | 0x8;
/// log2 of the groups whose metadata is contiguous.
const LOG_GROUPS_PER_FLEX: u8 = 4;
const EXTRA_ISIZE: u16 = 32;

/// The size classes of mke2fs.conf: largest size in bytes, block size, bytes for each inode.
const SIZE_CLASSES: &[(u64, u32, u64)] = &[
    (3 * MIB, 1024, 8192),
    (512 * MIB, 1024, 4096),
    (4096 * GIB, 4096, 16384),
    (16384 * GIB, 4096, 32768),
];
const HUGE: (u32, u64) = (4096, 65536);

/// The volume as decided so far.
pub(super) struct Plan {
    pub(super) superblock: Superblock,
    pub(super) layout: Layout,
    pub(super) used: Ranges,
    pub(super) descs: Vec<GroupDesc>,
    pub(super) journal_blocks: u64,
    /// The last inode in use. All inodes before it are in use, too.
    pub(super) used_inodes: u32,
}

impl Plan {
    /// Decides features and sizes. `beside` are features that may be asked for although mounts do
    /// not maintain them.
    pub(super) fn new(
        options: &MkfsOptions,
        device_bytes: u64,
        identity: &Identity,
        beside: Features,
    ) -> Result<Self> {
        let bytes = options.size.unwrap_or(device_bytes);
        if bytes > device_bytes {
            return refuse(format!(
                "the device has {device_bytes} bytes, not {bytes}: give a smaller size"
            ));
        }
        let mut features = features::choose(&options.features, beside)?;
        let class = SIZE_CLASSES
            .iter()
            .find(|class| bytes < class.0)
            .map_or(HUGE, |class| (class.1, class.2));
        let block_size = options.block_size.unwrap_or(class.0);
        if !block_size.is_power_of_two() || !(1024..=65536).contains(&block_size) {
            return refuse(format!(
                "blocks of {block_size} bytes are not possible: give a power of two from 1024 to \
                 65536, such as 4096"
            ));
        }
        let inode_size = options.inode_size.unwrap_or(256);
        if !inode_size.is_power_of_two() || !(128..=block_size).contains(&inode_size) {
            return refuse(format!(
                "inodes of {inode_size} bytes are not possible: give a power of two from 128 to \
                 the block size ({block_size}), such as 256"
            ));
        }
        features::check_inode_size(&mut features, inode_size);
        let journal_blocks =
            journal_blocks(options, &mut features, bytes / u64::from(block_size), block_size)?;
        let mut superblock = skeleton(options, features, identity, block_size, inode_size)?;
        // As mke2fs: not more inodes than blocks, unless they are asked for.
        let ratio = options.inode_ratio.unwrap_or(class.1.max(block_size.into()));
        sizes::set(&mut superblock, options, bytes / u64::from(block_size), ratio)?;
        let layout = Layout::new(&superblock, bytes).map_err(|why| {
            Error::Option(format!(
                "these sizes do not fit together: {why}: give another size or other features"
            ))
        })?;
        let used_inodes = inodes::FIRST - 1;
        Ok(Self {
            superblock,
            layout,
            used: Ranges::default(),
            descs: Vec::new(),
            journal_blocks,
            used_inodes,
        })
    }

    /// Allocates superblocks and descriptors, then bitmaps and inode tables by flexible group.
    pub(super) fn place_tables(&mut self) -> Result<()> {
        self.place_tables_from(0)
    }

    /// The same of the groups from `start` on.
    pub(super) fn place_tables_from(&mut self, start: u32) -> Result<()> {
        let layout = self.layout;
        for group in start..layout.groups {
            let base = layout.base_metadata(group);
            if base > 0 {
                self.used.take(layout.group_first_block(group).get(), base.into());
            }
        }
        let size = layout.groups_per_flex();
        let mut first = start;
        while first < layout.groups {
            let end = layout.flex_start(first).saturating_add(size).min(layout.groups);
            self.place_flex(first, end)?;
            first = end;
        }
        Ok(())
    }

    fn place_flex(&mut self, first: u32, end: u32) -> Result<()> {
        let layout = self.layout;
        let from = layout.group_first_block(first).get();
        // Without flex_bg each group has its own metadata.
        let to = layout.group_first_block(end - 1).get() + u64::from(layout.group_blocks(end - 1));
        let groups = end - first;
        let table = u64::from(layout.inode_table_blocks());
        let full = || {
            Error::Option("the inode tables do not fit in the groups: ask for fewer inodes".into())
        };
        let mut place = |count, groups| -> Result<Vec<Pba>> {
            (0..groups).map(|_| self.used.take_run(count, from, to).ok_or_else(full)).collect()
        };
        let block_bitmaps = place(1, groups)?;
        let inode_bitmaps = place(1, groups)?;
        let tables = place(table, groups)?;
        for (block_bitmap, (inode_bitmap, inode_table)) in
            block_bitmaps.into_iter().zip(inode_bitmaps.into_iter().zip(tables))
        {
            self.descs.push(GroupDesc {
                block_bitmap,
                inode_bitmap,
                inode_table,
                free_blocks: 0,
                free_inodes: layout.inodes_per_group,
                used_dirs: 0,
                itable_unused: 0,
                flags: GroupFlags::empty(),
                block_bitmap_csum: 0,
                inode_bitmap_csum: 0,
            });
        }
        Ok(())
    }

    /// Zeroes the inode tables.
    pub(super) fn zero_tables(&self, output: &mut Output) -> Result<()> {
        let blocks = u64::from(self.layout.inode_table_blocks());
        self.descs.iter().try_for_each(|desc| output.zeros(desc.inode_table, blocks))
    }

    /// Allocates blocks for a file, in runs from the group on.
    pub(super) fn take(&mut self, count: u64, group: u32) -> Result<Vec<(Pba, u64)>> {
        let layout = &self.layout;
        let (from, end) = (layout.group_first_block(group).get(), layout.blocks_count);
        let start = layout.first_data_block;
        let whole =
            self.used.take_run(count, from, end).or_else(|| self.used.take_run(count, start, end));
        if let Some(pba) = whole {
            return Ok(vec![(pba, count)]);
        }
        let runs = self
            .used
            .take_many(count, from, end)
            .or_else(|| self.used.take_many(count, start, end));
        runs.ok_or_else(|| {
            Error::Option(
                "the volume is too small for its journal and directories: give a larger \
                size, such as 64M"
                    .into(),
            )
        })
    }
}

fn journal_blocks(
    options: &MkfsOptions,
    features: &mut Features,
    blocks: u64,
    block_size: u32,
) -> Result<u64> {
    if !features.compat(Compat::HAS_JOURNAL) {
        return Ok(0);
    }
    let journal = match options.journal_size {
        None => journal::default_blocks(blocks),
        size => journal::blocks(blocks, block_size, size)?,
    };
    if journal == 0 {
        features::drop_journal(features);
    }
    Ok(journal.into())
}

/// The fields of the superblock that do not depend on the number of groups.
fn skeleton(
    options: &MkfsOptions,
    features: Features,
    identity: &Identity,
    block_size: u32,
    inode_size: u32,
) -> Result<Superblock> {
    let mut raw = RawSuperblock::new_zeroed();
    raw.s_magic = U16::new(MAGIC);
    raw.s_rev_level = U32::new(DYNAMIC_REVISION);
    raw.s_state = U16::new(STATE_VALID);
    raw.s_errors = U16::new(1);
    raw.s_max_mnt_count = U16::new(u16::MAX);
    raw.s_log_block_size = U32::new(block_size.trailing_zeros() - 10);
    raw.s_log_cluster_size = raw.s_log_block_size;
    raw.s_first_data_block = U32::new(u32::from(block_size == 1024));
    raw.s_first_ino = U32::new(inodes::FIRST);
    // Only the block size 65536 would not fit, and Linux does not accept it as inode size.
    raw.s_inode_size = U16::new(
        u16::try_from(inode_size).map_err(|_| Error::Option("inode size above 32768".into()))?,
    );
    raw.s_uuid = *identity.uuid.as_bytes();
    for (word, bytes) in
        raw.s_hash_seed.iter_mut().zip(identity.hash_seed.as_bytes().as_chunks::<4>().0)
    {
        *word = U32::from_bytes(*bytes);
    }
    raw.s_def_hash_version = 1;
    raw.s_flags = U32::new(FLAG_SIGNED_HASH);
    raw.s_default_mount_opts = U32::new(MOUNT_OPTIONS);
    let [a, b, c, d, high, ..] = identity.now.seconds.to_le_bytes();
    let low = U32::from_bytes([a, b, c, d]);
    (raw.s_mkfs_time, raw.s_wtime, raw.s_lastcheck) = (low, low, low);
    (raw.s_mkfs_time_hi, raw.s_wtime_hi, raw.s_lastcheck_hi) = (high, high, high);
    if let Some(label) = &options.label {
        let place = raw.s_volume_name.get_mut(..label.len());
        let place = place.ok_or_else(|| {
            Error::Option(format!("label {label:?} has {} bytes: give at most 16", label.len()))
        })?;
        place.copy_from_slice(label.as_bytes());
    }
    if features.incompat(Incompat::BITS_64) {
        raw.s_desc_size = U16::new(64);
    }
    if features.incompat(Incompat::FLEX_BG) {
        raw.s_log_groups_per_flex = LOG_GROUPS_PER_FLEX;
    }
    if features.ro_compat(RoCompat::EXTRA_ISIZE) && inode_size > 128 {
        raw.s_min_extra_isize = U16::new(EXTRA_ISIZE);
        raw.s_want_extra_isize = U16::new(EXTRA_ISIZE);
    }
    if features.ro_compat(RoCompat::METADATA_CSUM) {
        raw.s_checksum_type = CHECKSUM_CRC32C;
    }
    if features.incompat(Incompat::CSUM_SEED) {
        raw.s_checksum_seed = U32::new(cairn_base::checksum::crc32c(!0, identity.uuid.as_bytes()));
    }
    let mut superblock = Superblock { raw };
    superblock.set_features(features);
    Ok(superblock)
}
