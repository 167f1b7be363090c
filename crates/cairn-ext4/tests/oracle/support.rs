//! Volumes in memory; functions that open and judge them.

use std::path::Path;
use std::sync::Arc;

use cairn_base::runtime::threads::Threads;
use cairn_block::BlockDevice;
use cairn_block::file::{FileDevice, OpenOptions};
use cairn_block::memory::MemoryDevice;
use cairn_ext4::{Ext4, MountOptions};
use cairn_testkit::crash::{read_image, write_image};
use cairn_testkit::judge::mke2fs;

use crate::checked::assert_clean;

/// Folio sizes of buffered I/O: the default, the baseline, and others.
pub const GRAINS: &[&str] =
    &["buffered_iomap,max_folio=2M", "nobuffered_iomap", "max_folio=4K", "max_folio=64K"];

/// One list of options from two.
pub fn with_grain(options: &str, grain: &str) -> String {
    format!("{options},{grain}")
}

/// A fresh volume made by mke2fs.
pub fn volume(size: u64, args: &[&str]) -> Arc<MemoryDevice> {
    let file = tempfile::NamedTempFile::new().unwrap();
    mke2fs(file.path(), size, args);
    Arc::new(read_image(file.path()).unwrap())
}

/// Opens a volume that must open.
#[track_caller]
pub fn open(device: &Arc<MemoryDevice>, options: &str) -> Arc<Ext4> {
    try_open(device.clone(), options).expect("the volume opens")
}

/// Opens the volume in a file, which must open.
#[track_caller]
pub fn open_image(image: &Path, options: &str) -> Arc<Ext4> {
    let device = FileDevice::open(image, OpenOptions::write()).expect("the image opens");
    try_open(Arc::new(device), options).expect("the volume opens")
}

/// Opens a device that may be no volume.
pub fn try_open(device: Arc<dyn BlockDevice>, options: &str) -> cairn_ext4::Result<Arc<Ext4>> {
    let options = MountOptions::parse(options).expect("valid options");
    Ext4::open(device, Arc::new(Threads::new()), &options)
}

/// Asserts that e2fsck finds nothing on an unmounted volume.
#[track_caller]
pub fn judge(device: &MemoryDevice) {
    let file = tempfile::NamedTempFile::new().unwrap();
    write_image(device, file.path()).unwrap();
    assert_clean(file.path());
}
