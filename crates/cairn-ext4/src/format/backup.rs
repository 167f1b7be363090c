//! Backups of the superblock and the group descriptors: where they can be, and which of them are
//! valid.
//!
//! A block that looks like a superblock may be left from an older volume, or be a part of a file.
//! So a backup is valid only if it names its own group ([`BackupLocation`]), and describes a volume
//! that has a backup there and fits the device.

use cairn_base::units::{as_index, as_u64};
use std::collections::BTreeSet;

use cairn_base::Pba;
use zerocopy::FromBytes;

use super::layout::Layout;
use super::superblock::{RawSuperblock, Superblock};
use crate::corrupt::Corrupt;

/// A possible place of a backup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BackupLocation {
    /// Bytes of a block.
    pub block_size: u32,
    /// The group; never 0.
    pub group: u32,
    /// The first block of the group.
    pub block: Pba,
}

impl BackupLocation {
    /// Byte offset on the volume.
    #[must_use]
    pub(crate) const fn offset(&self) -> u64 {
        self.block.get().saturating_mul(as_u64(as_index(self.block_size)))
    }

    /// Decodes the backup.
    ///
    /// # Errors
    /// The bytes are not a superblock, are damaged, belong to another group, or do not fit the
    /// device.
    pub(crate) fn decode(
        &self,
        bytes: &[u8],
        device_bytes: u64,
    ) -> Result<(Superblock, Layout), Corrupt> {
        let superblock = Superblock::decode(bytes)?;
        let wrong = |field, value| {
            Err(Corrupt::Superblock { field, value, problem: "not that of the backup's place" })
        };
        let number = superblock.raw.s_block_group_nr.get();
        if u32::from(number) != self.group & 0xffff {
            return wrong("s_block_group_nr", number.into());
        }
        let layout = Layout::new(&superblock, device_bytes)?;
        if layout.block_size != self.block_size {
            return wrong("s_log_block_size", superblock.raw.s_log_block_size.get().into());
        }
        let there = self.group < layout.groups && layout.backups(self.group);
        if !there || layout.superblock_block(self.group) != self.block {
            return wrong("s_blocks_per_group", layout.blocks_per_group.into());
        }
        Ok((superblock, layout))
    }

    /// The backup that begins at byte `offset`, by its own description. `None` if its geometry has
    /// no group there.
    #[must_use]
    pub(crate) fn at(offset: u64, bytes: &[u8]) -> Option<Self> {
        let geometry = Geometry::from_superblock(bytes)?;
        let block = offset
            .checked_div(geometry.block_size.into())
            .filter(|_| offset.is_multiple_of(geometry.block_size.into()))?;
        let (first, per_group) = (geometry.first_block(), u64::from(geometry.blocks_per_group));
        let in_groups =
            block.checked_sub(first).filter(|blocks| blocks.is_multiple_of(per_group))?;
        let group =
            u32::try_from(in_groups.checked_div(per_group)?).ok().filter(|group| *group > 0)?;
        Some(Self { block_size: geometry.block_size, group, block: Pba(block) })
    }
}

/// The part of a volume's geometry that gives the start of its groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Geometry {
    block_size: u32,
    blocks_per_group: u32,
    bigalloc: bool,
}

impl Geometry {
    /// mke2fs's default: as many blocks in a group as a bitmap has bits.
    const fn standard(log: u32) -> Self {
        Self { block_size: 1024 << log, blocks_per_group: 8192 << log, bigalloc: false }
    }

    /// The geometry in the bytes of a superblock, which may be damaged otherwise.
    fn from_superblock(bytes: &[u8]) -> Option<Self> {
        let (raw, _) = RawSuperblock::read_from_prefix(bytes).ok()?;
        let log = raw.s_log_block_size.get();
        let blocks_per_group = raw.s_blocks_per_group.get();
        let bigalloc = raw.s_log_cluster_size.get() != log;
        (log <= 6 && blocks_per_group >= 256).then(|| Self {
            block_size: 1024 << log,
            blocks_per_group,
            bigalloc,
        })
    }

    fn first_block(&self) -> u64 {
        u64::from(self.block_size == 1024 && !self.bigalloc)
    }

    /// The groups of a volume that can have backups: 1 and the powers of 3, 5 and 7; 2 (without
    /// sparse_super); the last group (sparse_super2), or the one before if the last is too short.
    fn locations(self, device_bytes: u64) -> impl Iterator<Item = BackupLocation> {
        let (first, per_group) = (self.first_block(), u64::from(self.blocks_per_group));
        let blocks =
            device_bytes.checked_div(self.block_size.into()).unwrap_or(0).saturating_sub(first);
        let groups = u32::try_from(blocks.div_ceil(per_group)).unwrap_or(u32::MAX);
        let powers = [3_u32, 5, 7]
            .into_iter()
            .flat_map(|base| (0..).map_while(move |n| base.checked_pow(n)));
        let others = [2, groups.saturating_sub(2), groups.saturating_sub(1)];
        let numbers: BTreeSet<u32> =
            powers.chain(others).filter(|group| (1..groups).contains(group)).collect();
        let location = move |group| BackupLocation {
            block_size: self.block_size,
            group,
            block: Pba(u64::from(group).saturating_mul(per_group).saturating_add(first)),
        };
        numbers.into_iter().map(location)
    }
}

impl Layout {
    /// The backup of a descriptor block, by the block's index: with the superblock's backup in
    /// `group`, or (meta_bg) in the second group of its metagroup. `None` if there is none.
    #[must_use]
    pub(crate) fn descriptor_block_copy(&self, index: u32, group: u32) -> Option<Pba> {
        let copy = if index < self.first_metagroup() {
            self.group_first_block(group).get().checked_add(1)?.checked_add(index.into())?
        } else {
            let second = index.checked_mul(self.descs_per_block())?.checked_add(1)?;
            if second >= self.groups {
                return None;
            }
            self.group_first_block(second).get().checked_add(self.backups(second).into())?
        };
        self.contains(Pba(copy), 1).then_some(Pba(copy))
    }
}

/// Every possible place of a backup on a device: for the geometry in the bytes of the first
/// superblock, `first`, and for those of mke2fs. There are fewer than 400.
#[must_use]
pub(crate) fn locations(first: &[u8], device_bytes: u64) -> Vec<BackupLocation> {
    // The smallest block size comes last, because its groups of 8 MiB are many.
    let standard = [2, 0, 1, 3, 4, 5, 6].map(Geometry::standard);
    let mut locations: Vec<BackupLocation> = Vec::new();
    for geometry in Geometry::from_superblock(first).into_iter().chain(standard) {
        for location in geometry.locations(device_bytes) {
            if !locations.contains(&location) {
                locations.push(location);
            }
        }
    }
    locations
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::layout::tests::sample_superblock;

    const DEVICE: u64 = 10 * (128 << 20);

    fn copy_of(group: u16) -> Superblock {
        let mut superblock = sample_superblock();
        superblock.raw.s_block_group_nr = group.into();
        superblock
    }

    #[test]
    fn the_places_are_those_of_mke2fs() {
        let found: Vec<(u32, u64)> =
            locations(&[], DEVICE).iter().map(|at| (at.block_size, at.block.get())).collect();
        // The list of `mke2fs -n`; 8 and 9 are for sparse_super2.
        for group in [1, 3, 5, 7, 9] {
            assert!(found.contains(&(4096, group * 32768)), "{group}");
        }
        assert!(
            [8193, 24577, 40961, 57345, 73729].iter().all(|block| found.contains(&(1024, *block)))
        );
        assert!(!found.iter().any(|(size, block)| u64::from(*size) * block >= DEVICE));
        assert!(locations(&[], u64::MAX).len() < 400);
        assert!(locations(&[0; 1024], 0).is_empty());
    }

    #[test]
    fn a_group_size_of_the_user_is_known_from_what_is_left_of_the_first() {
        let mut superblock = sample_superblock();
        superblock.raw.s_blocks_per_group = 8192.into();
        superblock.raw.s_magic = 0.into();
        let bytes = superblock.encode();
        assert!(locations(&bytes, DEVICE).iter().any(|at| at.block == Pba(8192) && at.group == 1));
    }

    #[test]
    fn a_copy_counts_only_in_its_place() {
        let location = BackupLocation { block_size: 4096, group: 3, block: Pba(3 * 32768) };
        let bytes = copy_of(3).encode();
        let (_, layout) = location.decode(&bytes, DEVICE).expect("it is the copy of group 3");
        assert_eq!(layout.groups, 10);
        assert_eq!(BackupLocation::at(3 << 27, &bytes), Some(location));
        assert_eq!(BackupLocation::at((3 << 27) + 4096, &bytes), None);
        assert_eq!(BackupLocation::at(0, &bytes), None);
        // The backup of another group, or the first superblock, inside a file.
        for other in [0, 1, 5] {
            assert!(location.decode(&copy_of(other).encode(), DEVICE).is_err(), "{other}");
        }
        // A group without a backup.
        let location = BackupLocation { block_size: 4096, group: 2, block: Pba(2 * 32768) };
        assert!(location.decode(&copy_of(2).encode(), DEVICE).is_err());
        // Another block size, and another group size.
        let location = BackupLocation { block_size: 2048, group: 3, block: Pba(6 * 32768) };
        assert!(location.decode(&bytes, DEVICE).is_err());
        let location = BackupLocation { block_size: 4096, group: 3, block: Pba(3 * 8192) };
        assert!(location.decode(&bytes, DEVICE).is_err());
        // A device that is too small, and a flipped bit.
        let location = BackupLocation { block_size: 4096, group: 3, block: Pba(3 * 32768) };
        assert!(location.decode(&bytes, DEVICE / 2).is_err());
        let mut flipped = bytes;
        flipped[200] ^= 1;
        assert!(location.decode(&flipped, DEVICE).is_err());
    }
}
