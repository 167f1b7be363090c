//! The geometry of a volume. Its numbers are validated once, so that later arithmetic needs no
//! checks.
//!
//! Invariants: sizes are powers of two; every group number below `groups` has a first block inside
//! the volume; products of any of the numbers fit their types.

use cairn_base::checksum::crc32c;
use cairn_base::units::as_index;
use cairn_base::{Ino, Pba};
use cairn_vfs::ReservedFor;

use super::features::{Compat, Features, Incompat, RoCompat};
use super::superblock::{OFFSET, Superblock};
use crate::checksum::MetadataChecksum;
use crate::corrupt::Corrupt;

mod geometry;

use geometry::{
    GroupGeometry, VolumeGeometry, check, cluster_bits, desc_size, group_geometry, inode_geometry,
    min_extra_isize, volume_geometry, want_extra_isize,
};

/// Inode numbers of the specification.
pub(crate) mod inodes {
    use cairn_base::Ino;

    /// The list of bad blocks.
    pub(crate) const BAD: Ino = Ino(1);
    /// The root directory.
    pub const ROOT: Ino = Ino(2);
    /// The boot loader, if it is a file.
    pub(crate) const BOOT_LOADER: Ino = Ino(5);
    /// Owner of the reserved descriptor blocks.
    pub(crate) const RESIZE: Ino = Ino(7);
    /// The journal.
    pub(crate) const JOURNAL: Ino = Ino(8);
    /// First inode of files on volumes of revision 0, and the default.
    pub(crate) const FIRST: u32 = crate::format::superblock::OLD_FIRST_INODE;
}

/// `s_creator_os`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Creator {
    /// Linux.
    Linux,
    /// The Hurd. Its inodes have a translator in place of Linux's version, and an author in place
    /// of the checksum.
    Hurd,
    /// Another system. Its inodes are like Linux's without the checksum.
    Other,
}

impl Creator {
    const fn of(number: u32) -> Self {
        match number {
            0 => Self::Linux,
            1 => Self::Hurd,
            _ => Self::Other,
        }
    }
}

/// The place of an inode's record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct InodeLocation {
    /// Its block.
    pub pba: Pba,
    /// Byte offset in the block.
    pub offset: usize,
}

/// The validated geometry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    /// Bytes of a block: 1 KiB to 64 KiB.
    pub block_size: u32,
    /// log2 of `block_size`.
    pub block_bits: u32,
    /// Blocks of the volume.
    pub blocks_count: u64,
    /// First block of group 0: 1 with blocks of 1 KiB, otherwise 0.
    pub first_data_block: u64,
    /// Blocks of a group. The last group may be shorter.
    pub blocks_per_group: u32,
    /// log2 of the blocks of a cluster; 0 without bigalloc.
    pub cluster_bits: u32,
    /// Bits of a block bitmap that are in use.
    pub clusters_per_group: u32,
    /// Inodes of a group.
    pub inodes_per_group: u32,
    /// Bytes of an inode record.
    pub inode_size: u32,
    /// Bytes of fields beyond the first 128 in new inodes, and in older ones when they are written.
    pub want_extra_isize: u16,
    /// Minimum of these bytes, if the preferred number is not possible.
    pub min_extra_isize: u16,
    /// Bytes of a group descriptor.
    pub desc_size: u32,
    /// Number of groups.
    pub groups: u32,
    /// Blocks reserved for root and `reserved_for` (`s_r_blocks_count`).
    pub root_reserved_blocks: u64,
    /// The user and the group who may use the reserved blocks, beside root (`s_def_resuid`,
    /// `s_def_resgid`).
    pub reserved_for: ReservedFor,
    /// Blocks of a RAID's chunk on one disk (`s_raid_stride`); 0 if unknown.
    pub stride: u32,
    /// Blocks of a RAID's stripe over all data disks (`s_raid_stripe_width`); 0 if unknown.
    pub stripe_width: u32,
    /// First inode that files may use.
    pub first_ino: u32,
    /// Inodes of the volume.
    pub inodes_count: u32,
    /// log2 of the groups of a flexible group; 0 without flex_bg.
    pub log_groups_per_flex: u32,
    /// Descriptor blocks reserved for growth.
    pub reserved_gdt_blocks: u32,
    /// The inode of the journal; 0 if there is none.
    pub journal_ino: Ino,
    /// The system that created the volume, which determines the meaning of some bytes of an inode.
    pub creator: Creator,
    /// First metagroup that contains its own descriptors.
    pub first_meta_bg: u32,
    /// Groups with a backup superblock (sparse_super2).
    pub backup_groups: [u32; 2],
    /// Seed of the checksums.
    pub checksum: MetadataChecksum,
    /// UUID of the volume, the seed of older descriptor checksums.
    pub uuid: [u8; 16],
    /// Feature flags.
    pub features: Features,
}

impl Layout {
    /// The seed of the hashes of attributes' values that have inodes of their own. Volumes without
    /// checksums have one, too.
    #[must_use]
    pub(crate) fn value_seed(&self) -> u32 {
        self.checksum.seed().unwrap_or_else(|| crc32c(!0, &self.uuid))
    }

    /// Validates the geometry of a superblock. The volume must fit `device_bytes`.
    ///
    /// # Errors
    /// [`Corrupt::Superblock`] names the first invalid field.
    pub(crate) fn new(superblock: &Superblock, device_bytes: u64) -> Result<Self, Corrupt> {
        let (raw, features) = (&superblock.raw, superblock.features());
        let log = raw.s_log_block_size.get();
        check("s_log_block_size", log.into(), log <= 6, "above 6 (64 KiB)")?;
        let (block_bits, block_size) = (log.strict_add(10), 1024_u32 << log);
        let (inode_size, first_ino) = inode_geometry(superblock, block_size)?;
        let desc_size = desc_size(superblock, block_size)?;
        let cluster_bits = cluster_bits(superblock, features)?;
        let GroupGeometry { blocks_per_group, clusters_per_group, inodes_per_group } =
            group_geometry(superblock, block_size, inode_size, cluster_bits)?;
        let VolumeGeometry { blocks_count, first_data_block, groups, inodes_count } =
            volume_geometry(superblock, block_bits, cluster_bits, device_bytes)?;
        check("s_first_ino", first_ino.into(), first_ino <= inodes_count, "beyond the last inode")?;
        let flex = if features.incompat(Incompat::FLEX_BG) {
            u32::from(raw.s_log_groups_per_flex)
        } else {
            0
        };
        check("s_log_groups_per_flex", flex.into(), flex < 32, "above 31")?;
        let reserved_gdt_blocks = u32::from(raw.s_reserved_gdt_blocks.get());
        check(
            "s_reserved_gdt_blocks",
            reserved_gdt_blocks.into(),
            reserved_gdt_blocks <= block_size / 4,
            "above a quarter block",
        )?;
        if features.incompat(Incompat::META_BG) {
            let first = raw.s_first_meta_bg.get();
            let most = groups.div_ceil(block_size.strict_div(desc_size));
            check(
                "s_first_meta_bg",
                first.into(),
                first <= most,
                "beyond the blocks of group descriptors",
            )?;
        }
        Ok(Self {
            block_size,
            block_bits,
            blocks_count,
            first_data_block,
            blocks_per_group,
            cluster_bits,
            clusters_per_group,
            inodes_per_group,
            inode_size,
            want_extra_isize: want_extra_isize(superblock, inode_size),
            min_extra_isize: min_extra_isize(superblock, inode_size),
            desc_size,
            groups,
            root_reserved_blocks: superblock.reserved_blocks().min(blocks_count),
            reserved_for: ReservedFor {
                uid: u32::from(raw.s_def_resuid.get()) | u32::from(raw.s_def_resuid_hi.get()) << 16,
                gid: u32::from(raw.s_def_resgid.get()) | u32::from(raw.s_def_resgid_hi.get()) << 16,
            },
            stride: raw.s_raid_stride.get().into(),
            stripe_width: raw.s_raid_stripe_width.get(),
            first_ino,
            inodes_count,
            log_groups_per_flex: flex,
            reserved_gdt_blocks,
            journal_ino: Ino(raw.s_journal_inum.get().into()),
            creator: Creator::of(raw.s_creator_os.get()),
            first_meta_bg: raw.s_first_meta_bg.get(),
            backup_groups: [raw.s_backup_bgs[0].get(), raw.s_backup_bgs[1].get()],
            checksum: superblock.metadata_checksum(),
            uuid: raw.s_uuid,
            features,
        })
    }

    /// True if the volume was made for the Hurd, whose inodes have no room for its features.
    #[must_use]
    pub(crate) fn has_no_room_of_hurd(&self) -> bool {
        let features = [Incompat::BITS_64, Incompat::EA_INODE];
        let has = features.into_iter().any(|feature| self.features.incompat(feature));
        self.creator == Creator::Hurd && has
    }

    /// True if the group has a superblock or its backup. Group 0 always has.
    #[must_use]
    pub(crate) fn backups(&self, group: u32) -> bool {
        if group == 0 {
            return true;
        }
        if self.features.compat(Compat::SPARSE_SUPER2) {
            return self.backup_groups.contains(&group);
        }
        let sparse = self.features.ro_compat(RoCompat::SPARSE_SUPER);
        !sparse || group == 1 || [3, 5, 7].iter().any(|base| is_power_of(group, *base))
    }

    /// Block of the superblock backup in a group that has one. The primary superblock is at byte
    /// 1024.
    #[must_use]
    pub(crate) fn superblock_block(&self, group: u32) -> Pba {
        if group == 0 { Pba(OFFSET >> self.block_bits) } else { self.group_first_block(group) }
    }

    /// Descriptors of a block.
    #[must_use]
    pub(crate) const fn descs_per_block(&self) -> u32 {
        self.block_size.strict_div(self.desc_size)
    }

    /// The metagroup of a group: those whose descriptors share a block.
    const fn metagroup(&self, group: u32) -> u32 {
        group.strict_div(self.descs_per_block())
    }

    const fn inodes_per_block(&self) -> u32 {
        self.block_size.strict_div(self.inode_size)
    }

    /// Blocks of group descriptors.
    #[must_use]
    pub(crate) const fn descriptor_blocks(&self) -> u32 {
        self.groups.div_ceil(self.descs_per_block())
    }

    pub(super) const fn first_metagroup(&self) -> u32 {
        if self.features.incompat(Incompat::META_BG) { self.first_meta_bg } else { u32::MAX }
    }

    /// Block that holds the primary descriptor of a group.
    #[must_use]
    pub(crate) fn descriptor_block(&self, group: u32) -> Pba {
        let index = self.metagroup(group);
        if index < self.first_metagroup() {
            return Pba((OFFSET >> self.block_bits).strict_add(1).strict_add(index.into()));
        }
        let first = index.strict_mul(self.descs_per_block());
        let after_super = u64::from(self.backups(first));
        // With clusters of 1 KiB, block 0 is the boot block and the superblock is in block 1.
        let boot = u64::from(first == 0 && self.block_size == 1024 && self.first_data_block == 0);
        Pba(self.group_first_block(first).get().strict_add(after_super).strict_add(boot))
    }

    /// Byte offset of a group's descriptor in its block.
    #[must_use]
    pub(crate) const fn descriptor_offset(&self, group: u32) -> usize {
        as_index(group.strict_rem(self.descs_per_block())).strict_mul(as_index(self.desc_size))
    }

    /// Blocks of the descriptor table that meta_bg does not spread over the volume.
    #[must_use]
    pub(crate) fn contiguous_descriptor_blocks(&self) -> u32 {
        self.descriptor_blocks().min(self.first_metagroup())
    }

    /// Superblock and descriptor blocks at the start of a group.
    #[must_use]
    pub(crate) fn base_metadata(&self, group: u32) -> u32 {
        let backup = self.backups(group);
        let metagroup = self.metagroup(group);
        // With clusters of 1 KiB the group contains the boot block.
        let boot = u32::from(group == 0 && self.block_size == 1024 && self.first_data_block == 0);
        if metagroup < self.first_metagroup() {
            if !backup {
                return 0;
            }
            let descriptors =
                self.contiguous_descriptor_blocks().strict_add(self.reserved_gdt_blocks);
            return boot.strict_add(1).strict_add(descriptors);
        }
        boot.strict_add(backup.into()).strict_add(self.holds_metagroup_descriptors(group).into())
    }

    /// With meta_bg the first two groups and the last group of a metagroup have a copy of its
    /// descriptor block.
    #[must_use]
    pub(crate) const fn holds_metagroup_descriptors(&self, group: u32) -> bool {
        let place = group.strict_rem(self.descs_per_block());
        place == 0 || place == 1 || place == self.descs_per_block().strict_sub(1)
    }

    /// True if the metagroup contains its own descriptors (meta_bg).
    #[must_use]
    pub(crate) const fn is_meta_bg(&self, group: u32) -> bool {
        self.metagroup(group) >= self.first_metagroup()
    }

    /// Group of a block. `None` if no group contains the block.
    #[must_use]
    pub(crate) fn group_of(&self, pba: Pba) -> Option<u32> {
        let offset = pba.get().checked_sub(self.first_data_block)?;
        if pba.get() >= self.blocks_count {
            return None;
        }
        u32::try_from(offset.strict_div(self.blocks_per_group.into())).ok()
    }

    /// Group of a block, and the block's index in it.
    #[must_use]
    pub(crate) fn group_and_offset(&self, pba: Pba) -> Option<(u32, u32)> {
        let group = self.group_of(pba)?;
        let offset = pba.get().strict_sub(self.group_first_block(group).get());
        Some((group, u32::try_from(offset).ok()?))
    }

    /// First block of a group.
    #[must_use]
    pub(crate) fn group_first_block(&self, group: u32) -> Pba {
        Pba(u64::from(group)
            .strict_mul(self.blocks_per_group.into())
            .strict_add(self.first_data_block))
    }

    /// Blocks of a group. The last group may be shorter.
    #[must_use]
    pub(crate) fn group_blocks(&self, group: u32) -> u32 {
        let left = self.blocks_count.saturating_sub(self.group_first_block(group).get());
        u32::try_from(left.min(self.blocks_per_group.into())).unwrap_or(self.blocks_per_group)
    }

    /// Bits of a group's block bitmap: blocks, or clusters with bigalloc.
    #[must_use]
    pub(crate) fn group_clusters(&self, group: u32) -> u32 {
        self.group_blocks(group).div_ceil(1 << self.cluster_bits)
    }

    /// True if the volume contains `count` blocks from `start` on.
    #[must_use]
    pub(crate) fn contains(&self, start: Pba, count: u64) -> bool {
        let end = start.get().checked_add(count);
        start.get() >= self.first_data_block && end.is_some_and(|end| end <= self.blocks_count)
    }

    /// Blocks of one group's inode table.
    #[must_use]
    pub(crate) const fn inode_table_blocks(&self) -> u32 {
        self.inodes_per_group.div_ceil(self.inodes_per_block())
    }

    /// Group and index of an inode. `None` for 0 and numbers beyond the last.
    #[must_use]
    pub(crate) fn inode_group(&self, ino: Ino) -> Option<(u32, u32)> {
        let number =
            u32::try_from(ino.get()).ok().filter(|n| *n <= self.inodes_count)?.checked_sub(1)?;
        Some((number.strict_div(self.inodes_per_group), number.strict_rem(self.inodes_per_group)))
    }

    /// Number of the inode at `index` of a group.
    #[must_use]
    pub(crate) fn ino(&self, group: u32, index: u32) -> Ino {
        let before = u64::from(group).strict_mul(self.inodes_per_group.into());
        Ino(before.strict_add(index.into()).strict_add(1))
    }

    /// The place of the inode at `index` of a group whose table begins at `table`.
    #[must_use]
    pub(crate) fn inode_location(&self, index: u32, table: Pba) -> InodeLocation {
        let per_block = self.inodes_per_block();
        let offset = as_index(index.strict_rem(per_block)).strict_mul(as_index(self.inode_size));
        let pba = Pba(table.get().saturating_add(index.strict_div(per_block).into()));
        InodeLocation { pba, offset }
    }

    /// First group of the flexible group of `group`.
    #[must_use]
    pub(crate) const fn flex_start(&self, group: u32) -> u32 {
        group >> self.log_groups_per_flex << self.log_groups_per_flex
    }

    /// Groups of a flexible group; 1 without flex_bg.
    #[must_use]
    pub(crate) const fn groups_per_flex(&self) -> u32 {
        1 << self.log_groups_per_flex
    }
}

fn is_power_of(mut n: u32, base: u32) -> bool {
    while n > 1 && n.is_multiple_of(base) {
        n = n.strict_div(base);
    }
    n == 1
}

#[cfg(test)]
pub(crate) mod tests;
