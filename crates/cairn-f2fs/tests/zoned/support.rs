//! Zoned volumes in memory, opened and judged.

use std::sync::Arc;

use cairn_base::runtime::threads::Threads;
use cairn_block::memory::MemoryDevice;
use cairn_block::zoned::{ZoneLayout, create_image, open_image};
use cairn_block::{BlockDevice, BlockDeviceExt};
use cairn_f2fs::mkfs::{self, MkfsOptions};
use cairn_testkit::judge::{assert_f2fs_device_clean, f2fs_alarms, fsck_f2fs_device};

#[path = "../common/open.rs"]
mod opened;

pub use opened::open;

const MIB: u64 = 1 << 20;
/// Where the feature bits are in both superblocks, and the bit of zoned volumes.
const FEATURES: [u64; 2] = [1024 + 2180, 4096 + 1024 + 2180];
const BLKZONED: u8 = 2;
/// What fsck.f2fs compares the number of free segments by.
pub const FREE_SEGMENTS: &str = "free segment_count matched";

/// `zones` zones of `size` MiB: conventional ones for the metadata, then those in order.
pub fn layout(size: u64, zones: u32) -> ZoneLayout {
    let conventional = u32::try_from((16 / size).max(4)).unwrap();
    ZoneLayout { max_open: 6, max_active: 6, ..ZoneLayout::new(size * MIB, conventional, zones) }
}

/// As [`layout`]; of each zone in order only `capacity` KiB can be written.
pub fn layout_with_capacity(size: u64, zones: u32, capacity: u64) -> ZoneLayout {
    ZoneLayout { capacity: capacity << 10, ..layout(size, zones) }
}

/// A fresh volume in an image with these zones.
pub fn volume(layout: ZoneLayout) -> Arc<MemoryDevice> {
    let image = Arc::new(MemoryDevice::new(layout.image_size()));
    let zoned = create_image(image.clone(), layout).unwrap();
    let options = MkfsOptions { zoned: true, reserved_sections: Some(8), ..MkfsOptions::default() };
    mkfs::make(Arc::new(zoned), &options, &*Threads::new()).unwrap();
    image
}

/// The image's zones.
pub fn zoned(image: Arc<dyn BlockDevice>) -> Arc<dyn BlockDevice> {
    Arc::new(open_image(&image).unwrap().expect("the image has zones"))
}

/// fsck.f2fs finds nothing in a copy without zones.
#[track_caller]
pub fn judge(device: &dyn BlockDevice) {
    let size = device.geometry().size;
    let copy = MemoryDevice::new(size);
    for at in (0..size / MIB).map(|mib| mib * MIB) {
        copy.write_at(at, device.read_at(at, 1 << 20).unwrap().into_bytes()).unwrap();
    }
    for at in FEATURES {
        let features = copy.read_at(at, 1).unwrap()[0];
        assert_eq!(features & BLKZONED, BLKZONED, "a zoned volume");
        copy.write_at(at, vec![features & !BLKZONED]).unwrap();
    }
    let zones = device.as_zoned().expect("a zoned device").report(0, usize::MAX).unwrap();
    if zones.iter().all(|zone| zone.capacity == zone.len) {
        return assert_f2fs_device_clean(&copy);
    }
    // Without zones segments that cannot be written seem to be free.
    let verdict = fsck_f2fs_device(&copy);
    let alarms: Vec<_> = f2fs_alarms(&verdict.output).filter(|line| !line.contains(FREE_SEGMENTS)).collect();
    assert!(alarms.is_empty() && verdict.output.contains("other corrupted bugs"), "{}", verdict.output);
}
