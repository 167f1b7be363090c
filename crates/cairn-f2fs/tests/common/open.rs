//! Opening a volume for a test, in all suites that write.

use std::sync::Arc;

use cairn_base::runtime::threads::Threads;
use cairn_block::BlockDevice;
use cairn_f2fs::{F2fs, MountOptions};

/// Opens a volume that must open and be writable.
#[track_caller]
pub fn open(device: Arc<dyn BlockDevice>, options: &str) -> Arc<F2fs> {
    let options = MountOptions::parse(options).expect("valid options");
    let fs = F2fs::open(device, Threads::new(), &options).expect("the volume opens");
    assert_eq!(fs.read_only_reason(), None);
    fs
}
