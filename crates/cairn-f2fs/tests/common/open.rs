//! Opens volumes, for all suites that write.

use std::sync::Arc;

use cairn_base::runtime::threads::Threads;
use cairn_block::BlockDevice;
use cairn_block::zoned::open_image;
use cairn_f2fs::{F2fs, MountOptions};

/// The device of a volume: the given one, or the zones of the image in it.
pub fn with_zones(device: Arc<dyn BlockDevice>) -> Arc<dyn BlockDevice> {
    if device.as_zoned().is_some() {
        return device;
    }
    let zoned = open_image(&device).expect("the table of zones is whole");
    zoned.map_or(device, |zoned| Arc::new(zoned))
}

/// Opens a volume that must open and be writable.
#[track_caller]
pub fn open(device: Arc<dyn BlockDevice>, options: &str) -> Arc<F2fs> {
    let options = MountOptions::parse(options).expect("valid options");
    let fs = F2fs::open(with_zones(device), Threads::new(), &options).expect("the volume opens");
    assert_eq!(fs.read_only_reason(), None);
    fs
}
