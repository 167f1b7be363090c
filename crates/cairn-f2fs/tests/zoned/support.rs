//! Zoned volumes in memory; functions that open and judge them.

use std::sync::Arc;

use cairn_block::memory::MemoryDevice;
use cairn_block::zoned::ZoneLayout;
use cairn_testkit::judge::{f2fs_alarms, fsck_f2fs_device};

#[path = "../common/judge.rs"]
mod judges;
#[path = "../common/open.rs"]
mod opened;
#[path = "../common/zoned.rs"]
mod zones;

pub use opened::{open, with_zones};
pub use zones::{in_zones as volume, layout};

/// The line of fsck.f2fs about the number of free segments.
pub const FREE_SEGMENTS: &str = "free segment_count matched";

/// As [`layout`]; of each zone in order only `capacity` KiB can be written.
pub fn layout_with_capacity(size: u64, zones: u32, capacity: u64) -> ZoneLayout {
    ZoneLayout { capacity: capacity << 10, ..layout(size, zones) }
}

/// Asserts that fsck.f2fs and the check find nothing in an image.
#[track_caller]
pub fn judge(image: &Arc<MemoryDevice>) {
    let zoned = with_zones(image.clone());
    let zones = zoned.as_zoned().expect("a zoned device").report(0, usize::MAX).unwrap();
    if zones.iter().all(|zone| zone.capacity == zone.len) {
        return judges::judge(image);
    }
    judges::check(image).unwrap();
    // fsck.f2fs does not see zones, and counts unwritable segments as free.
    let verdict = fsck_f2fs_device(image);
    let alarms: Vec<_> =
        f2fs_alarms(&verdict.output).filter(|line| !line.contains(FREE_SEGMENTS)).collect();
    assert!(
        alarms.is_empty() && verdict.output.contains("other corrupted bugs"),
        "{}",
        verdict.output
    );
}
