//! Fresh volumes in memory.

use std::sync::Arc;

use cairn_base::Ino;
use cairn_block::memory::MemoryDevice;
use cairn_block::{BlockDevice, BlockDeviceExt};
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

/// Arguments for a volume with the features of Android whose directories all ignore case. An inode
/// has no checksum there, so that its flag can be set.
pub const FOLDED: &[&str] = &["-O", "extra_attr,encrypt,verity,casefold", "-C", "utf8"];
const ROOT: Ino = Ino(3);
/// The highest byte of `i_flags`, and the flag of a directory that ignores case.
pub const CASEFOLD: (u64, u8) = (83, 0x40);

const BLOCK: u64 = 4096;
/// Where the footer of a node is.
const FOOTER_AT: u64 = 4072;

/// Sets bits of a byte in all versions of an inode on an unmounted volume.
pub fn set_bits(device: &MemoryDevice, ino: Ino, (at, bits): (u64, u8)) {
    let number = u32::try_from(ino.0).unwrap().to_le_bytes();
    let own = [number, number].concat();
    let mut found = 0;
    for block in (0..device.geometry().size).step_by(BLOCK as usize) {
        if device.read_at(block + FOOTER_AT, 8).unwrap()[..] == own[..] {
            let old = device.read_at(block + at, 1).unwrap()[0];
            device.write_at(block + at, vec![old | bits]).unwrap();
            found += 1;
        }
    }
    assert!(found > 0, "{ino:?} has a node");
}

/// A fresh volume made by mkfs.f2fs, or [`ZONED`], or [`FOLDED`].
pub fn volume(size: u64, args: &[&str]) -> Arc<MemoryDevice> {
    if args == ZONED {
        let zones = (size >> 20).div_ceil(ZONE).max(ZONES);
        return in_zones(layout(ZONE, u32::try_from(zones).unwrap()));
    }
    let made = Arc::new(f2fs_in_memory(size, args));
    if args == FOLDED {
        set_bits(&made, ROOT, CASEFOLD);
    }
    made
}
