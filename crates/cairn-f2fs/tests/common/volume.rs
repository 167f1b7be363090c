//! Fresh volumes in memory.

use std::sync::Arc;

use cairn_block::memory::MemoryDevice;
use cairn_testkit::judge::f2fs_in_memory;

#[path = "zoned.rs"]
mod zoned;

use zoned::{in_zones, layout};

/// Arguments for an image with zones, which Cairn makes: mkfs.f2fs needs a zoned device of the
/// kernel.
pub const ZONED: &[&str] = &["-m"];
/// MiB per zone, and the least number of zones with room for files.
const ZONE: u64 = 2;
const ZONES: u64 = 40;

/// A fresh volume made by mkfs.f2fs, or [`ZONED`].
pub fn volume(size: u64, args: &[&str]) -> Arc<MemoryDevice> {
    if args == ZONED {
        let zones = (size >> 20).div_ceil(ZONE).max(ZONES);
        return in_zones(layout(ZONE, u32::try_from(zones).unwrap()));
    }
    Arc::new(f2fs_in_memory(size, args))
}
