//! Volumes in images with zones.

use std::sync::Arc;

use cairn_base::runtime::threads::Threads;
use cairn_block::memory::MemoryDevice;
use cairn_block::zoned::{ZoneLayout, create_image};
use cairn_f2fs::mkfs::{self, MkfsOptions};

const MIB: u64 = 1 << 20;

/// `zones` zones of `size` MiB: conventional ones for the metadata, then sequential ones.
pub fn layout(size: u64, zones: u32) -> ZoneLayout {
    let conventional = u32::try_from((16 / size).max(4)).unwrap();
    ZoneLayout { max_open: 6, max_active: 6, ..ZoneLayout::new(size * MIB, conventional, zones) }
}

/// A fresh volume in an image with these zones.
pub fn in_zones(layout: ZoneLayout) -> Arc<MemoryDevice> {
    let image = Arc::new(MemoryDevice::new(layout.image_size()));
    let zoned = create_image(image.clone(), layout).unwrap();
    let options = MkfsOptions { zoned: true, reserved_sections: Some(8), ..MkfsOptions::default() };
    mkfs::make(Arc::new(zoned), &options, &*Threads::new()).unwrap();
    image
}
