//! Volumes of mkfs.f2fs in memory; functions that open and judge them.

use std::sync::Arc;

use cairn_base::runtime::threads::Threads;
use cairn_block::BlockDevice;
use cairn_f2fs::{F2fs, MountOptions};

#[path = "../common/volume.rs"]
mod fresh;
#[path = "../common/judge.rs"]
mod judges;
#[path = "../common/open.rs"]
mod opened;

pub use fresh::{FOLDED, ZONED, volume};
pub use judges::{check, judge};
pub use opened::{open, with_zones};

/// The optional features that mkfs.f2fs can set and Cairn writes: extra attributes, inode checksums
/// and others.
pub const FEATURES: &[&str] =
    &["-O", "extra_attr,inode_checksum,flexible_inline_xattr,inode_crtime,lost_found,sb_checksum"];

/// Opens a volume to be read only.
#[track_caller]
pub fn look(device: Arc<dyn BlockDevice>) -> Arc<F2fs> {
    let options = MountOptions::parse("ro").expect("valid options");
    F2fs::open(device, Threads::new(), &options).expect("the volume opens")
}
