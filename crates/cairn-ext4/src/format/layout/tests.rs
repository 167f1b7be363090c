//! Compares the geometry with that of mke2fs's volumes, and refuses geometries that mke2fs does not
//! make.

use zerocopy::FromZeros;
use zerocopy::little_endian::{U16, U32};

use super::*;
use crate::format::superblock::{MAGIC, RawSuperblock};

pub(crate) fn sample_superblock() -> Superblock {
    let mut raw = RawSuperblock::new_zeroed();
    raw.s_magic = U16::new(MAGIC);
    raw.s_rev_level = U32::new(1);
    raw.s_log_block_size = U32::new(2);
    raw.s_blocks_per_group = U32::new(32768);
    raw.s_inodes_per_group = U32::new(8192);
    raw.s_inodes_count = U32::new(8192 * 10);
    raw.s_first_ino = U32::new(11);
    raw.s_inode_size = U16::new(256);
    raw.s_desc_size = U16::new(64);
    raw.s_checksum_type = 1;
    raw.s_log_groups_per_flex = 4;
    raw.s_reserved_gdt_blocks = U16::new(100);
    let mut superblock = Superblock { raw };
    superblock.set_blocks_count(32768 * 9 + 1000);
    let mut features = Features::default();
    for name in ["64bit", "flex_bg", "sparse_super", "metadata_csum", "extent", "resize_inode"] {
        assert!(features.set_by_name(name, true));
    }
    superblock.set_features(features);
    superblock
}

/// Ten groups of 4 KiB blocks, the last one short.
pub(crate) fn sample() -> Layout {
    Layout::new(&sample_superblock(), u64::MAX).expect("the sample is valid")
}

#[test]
fn groups_and_inodes() {
    let layout = sample();
    assert_eq!(layout.groups, 10);
    assert_eq!(layout.group_blocks(8), 32768);
    assert_eq!(layout.group_blocks(9), 1000);
    assert_eq!(layout.group_and_offset(Pba(32768 * 3 + 5)), Some((3, 5)));
    assert_eq!(layout.group_of(Pba(layout.blocks_count)), None);
    assert_eq!(layout.inode_group(Ino(8193)), Some((1, 0)));
    assert_eq!(layout.ino(1, 0), Ino(8193));
    assert_eq!(layout.inode_group(Ino(0)), None);
    assert_eq!(layout.inode_group(Ino(81921)), None);
    assert_eq!(layout.inode_location(17, Pba(50)), InodeLocation { pba: Pba(51), offset: 256 });
    assert_eq!(layout.inode_table_blocks(), 512);
}

#[test]
fn backups_follow_the_features() {
    let layout = sample();
    let with: Vec<u32> = (0..130).filter(|g| layout.backups(*g)).collect();
    assert_eq!(with, [0, 1, 3, 5, 7, 9, 25, 27, 49, 81, 125]);
    assert_eq!(layout.base_metadata(0), 1 + 1 + 100);
    assert_eq!(layout.base_metadata(2), 0);
    let mut two = layout;
    two.features.compat |= Compat::SPARSE_SUPER2;
    two.backup_groups = [1, 9];
    assert_eq!((0..10).filter(|g| two.backups(*g)).collect::<Vec<_>>(), [0, 1, 9]);
}

#[test]
fn meta_bg_places_descriptors_in_their_metagroup() {
    let mut layout = sample();
    assert_eq!(layout.descriptor_block(5), Pba(1));
    layout.groups = 200;
    layout.blocks_count = 200 * 32768;
    layout.features.incompat |= Incompat::META_BG;
    assert_eq!(layout.descriptor_block(0), Pba(1));
    // Metagroup 1 begins at group 64, which has no superblock.
    assert_eq!(layout.descriptor_block(70), Pba(64 * 32768));
    assert_eq!(layout.descriptor_offset(70), 6 * 64);
    assert_eq!(layout.base_metadata(64), 1);
    assert_eq!(layout.base_metadata(81), 1);
    assert_eq!(layout.base_metadata(127), 1);
}

#[test]
fn impossible_geometry_is_refused() {
    type Break = fn(&mut RawSuperblock);
    let breaks: [(&str, Break); 9] = [
        ("s_log_block_size", |raw| raw.s_log_block_size = U32::new(7)),
        ("s_inode_size", |raw| raw.s_inode_size = U16::new(300)),
        ("s_desc_size", |raw| raw.s_desc_size = U16::new(32)),
        ("s_blocks_per_group", |raw| raw.s_blocks_per_group = U32::new(0)),
        ("s_inodes_per_group", |raw| raw.s_inodes_per_group = U32::new(0)),
        ("s_inodes_count", |raw| raw.s_inodes_count = U32::new(5)),
        ("s_first_data_block", |raw| raw.s_first_data_block = U32::new(1)),
        ("s_first_ino", |raw| raw.s_first_ino = U32::new(2)),
        ("s_reserved_gdt_blocks", |raw| raw.s_reserved_gdt_blocks = U16::new(1025)),
    ];
    for (name, damage) in breaks {
        let mut superblock = sample_superblock();
        damage(&mut superblock.raw);
        let error = Layout::new(&superblock, u64::MAX);
        assert!(
            matches!(error, Err(Corrupt::Superblock { field, .. }) if field == name),
            "{name}: {error:?}"
        );
    }
    let cut = Layout::new(&sample_superblock(), 1 << 20);
    assert!(matches!(cut, Err(Corrupt::TooShort { device: 1_048_576, .. })), "{cut:?}");
    let mut endless = sample_superblock();
    endless.raw.s_blocks_count_hi = U32::new(u32::MAX);
    assert!(matches!(Layout::new(&endless, u64::MAX), Err(Corrupt::TooShort { .. })));
}

#[test]
fn superblock_checksum_covers_every_bit() {
    let mut bytes = sample_superblock().encode();
    assert!(Superblock::decode(&bytes).is_ok());
    for byte in (0..bytes.len()).step_by(7) {
        bytes[byte] ^= 0x10;
        // Only clearing metadata_csum cannot be detected.
        let cleared = !Superblock::decode(&bytes)
            .is_ok_and(|s| s.features().ro_compat(RoCompat::METADATA_CSUM));
        assert!(cleared, "byte {byte}");
        bytes[byte] ^= 0x10;
    }
    assert!(Superblock::decode(&bytes[..100]).is_err());
}
