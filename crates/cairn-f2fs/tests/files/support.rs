//! Volumes of mkfs.f2fs in memory, opened and judged.

use std::sync::Arc;

use cairn_base::runtime::threads::Threads;
use cairn_block::BlockDevice;
use cairn_block::memory::MemoryDevice;
use cairn_f2fs::{F2fs, MountOptions};
use cairn_testkit::crash::{read_image, write_image};
use cairn_testkit::judge::{assert_f2fs_clean, mkfs_f2fs};

/// Extra attributes, inode checksums and the rest of what mkfs.f2fs can switch on and Cairn maintains.
pub const FEATURES: &[&str] =
    &["-O", "extra_attr,inode_checksum,flexible_inline_xattr,inode_crtime,lost_found,sb_checksum"];

/// A fresh volume.
pub fn volume(size: u64, args: &[&str]) -> Arc<MemoryDevice> {
    let file = tempfile::NamedTempFile::new().unwrap();
    mkfs_f2fs(file.path(), size, args);
    Arc::new(read_image(file.path()).unwrap())
}

/// Opens a volume that must open.
#[track_caller]
pub fn open(device: Arc<dyn BlockDevice>, options: &str) -> Arc<F2fs> {
    let options = MountOptions::parse(options).expect("valid options");
    let fs = F2fs::open(device, Threads::new(), &options).expect("the volume opens");
    assert_eq!(fs.read_only_reason(), None);
    fs
}

/// Opens a volume to be read only.
#[track_caller]
pub fn look(device: Arc<dyn BlockDevice>) -> Arc<F2fs> {
    let options = MountOptions::parse("ro").expect("valid options");
    F2fs::open(device, Threads::new(), &options).expect("the volume opens")
}

/// Asserts that fsck.f2fs finds nothing.
#[track_caller]
pub fn judge(device: &MemoryDevice) {
    let file = tempfile::NamedTempFile::new().unwrap();
    write_image(device, file.path()).unwrap();
    assert_f2fs_clean(file.path());
}

/// True if the long runs were asked for.
pub fn deep() -> bool {
    std::env::var_os("CAIRN_DEEP").is_some_and(|value| value == "1")
}
