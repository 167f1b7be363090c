//! The group table of volumes that mkfs creates.

use cairn_base::runtime::simulated::Simulated;
use cairn_block::memory::MemoryDevice;
use cairn_block::{BlockDevice, BlockDeviceExt};
use cairn_cache::budget::Budget;

use super::*;
use crate::format::superblock::{OFFSET, SIZE, Superblock};
use crate::mkfs::{MkfsOptions, make};

/// A new volume and its table.
pub(crate) fn volume(
    size: u64,
    options: &MkfsOptions,
) -> (Arc<BufferCache>, Arc<GroupTable>, Arc<Layout>) {
    let device: Arc<dyn BlockDevice> = Arc::new(MemoryDevice::new(size));
    make(device.clone(), options, &*Simulated::new(1)).expect("mkfs");
    let bytes = device.read_at(OFFSET, SIZE).expect("superblock");
    let layout =
        Arc::new(Layout::new(&Superblock::decode(&bytes).expect("valid"), size).expect("valid"));
    let buffers = BufferCache::new(device, layout.block_size, Budget::new(64 << 20));
    let groups = Arc::new(GroupTable::open(&buffers, &layout, &[]).expect("valid descriptors"));
    (buffers, groups, layout)
}

#[test]
fn counters_agree_with_bitmaps_and_implied_bitmaps() {
    for features in ["", "^flex_bg", "meta_bg", "^metadata_csum", "sparse_super2"] {
        let options = MkfsOptions {
            features: vec![features.into()],
            block_size: Some(1024),
            ..Default::default()
        };
        let (_, groups, layout) = volume(100 << 20, &options);
        let mut total = 0;
        for number in 0..groups.len() {
            let mut state = groups.group(number).lock();
            let desc = state.desc.free_blocks;
            let map = groups.load_map(number, &mut state).expect("bitmap agrees").expect("sound");
            assert_eq!(map.free(), desc, "group {number} with {features:?}");
            total += u64::from(desc);
        }
        assert_eq!(groups.free_blocks_total(), total);
        assert_eq!(groups.free_inodes_total() + 12, u64::from(layout.inodes_count));
        assert_eq!(groups.directories_total(), 2);
    }
}

#[test]
fn metadata_is_told_from_file_blocks() {
    let (_, groups, layout) = volume(100 << 20, &MkfsOptions::default());
    assert!(groups.is_metadata(layout.superblock_block(0), 1));
    assert!(groups.is_metadata(groups.inode_table(5), 1));
    assert!(
        groups.is_metadata(Pba(layout.group_first_block(1).get() - 1), 2),
        "a backup superblock follows"
    );
    assert!(!groups.is_metadata(Pba(layout.group_first_block(2).get() + 100), 1000));
    assert!(groups.inode_in_use(Ino(2)).expect("readable"));
    assert!(!groups.inode_in_use(Ino(100)).expect("readable"));
    assert!(groups.inode_in_use(Ino(0)).is_err());
}

#[test]
fn a_damaged_descriptor_or_bitmap_is_named() {
    let (buffers, groups, layout) = volume(16 << 20, &MkfsOptions::default());
    let bitmap = groups.group(0).lock().desc.block_bitmap;
    buffers
        .device()
        .write_at(bitmap.get() * u64::from(layout.block_size), vec![0; 1024])
        .expect("write");
    let mut state = groups.group(0).lock();
    let error = groups.load_map(0, &mut state).expect_err("damaged");
    assert!(
        matches!(
            error,
            crate::Error::Corrupt(Corrupt::Checksum { what: "block bitmap", place: 0, .. })
        ),
        "{error}"
    );
    drop(state);
    let place = layout.descriptor_block(0).get() * u64::from(layout.block_size);
    buffers.device().write_at(place, vec![0xff; 1024]).expect("write");
    let fresh = BufferCache::new(buffers.device().clone(), layout.block_size, Budget::new(1 << 20));
    assert!(GroupTable::open(&fresh, &layout, &[]).is_err());
}
