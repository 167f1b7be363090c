//! How a check reads a device.

use std::fs;
use std::sync::Arc;

use cairn_block::memory::MemoryDevice;
use cairn_block::wrap::Stats;
use cairn_block::{BlockDevice, BlockDeviceExt, Geometry};
use cairn_check::repair::Scope;
use cairn_testkit::judge::mke2fs;

use crate::checked::lines;
use crate::repaired::plan;
use crate::support::check;

#[test]
fn blocks_that_follow_each_other_are_read_together() {
    let dir = tempfile::tempdir().unwrap();
    let (tree, image) = (dir.path().join("tree"), dir.path().join("image"));
    for number in 0..600 {
        fs::create_dir_all(tree.join(format!("{}/directory {number}", number % 20))).unwrap();
    }
    mke2fs(&image, 64 << 20, &["-t", "ext4", "-d", tree.to_str().unwrap()]);
    let device = MemoryDevice::from_image(&fs::read(&image).unwrap());
    let stats = Arc::new(Stats::new(Arc::new(device)));
    let report = check(stats.clone()).unwrap();
    assert_eq!((report.count(), report.usage.directories), (0, 622));
    let found = stats.snapshot();
    assert!(found.reads < 100, "{} reads", found.reads);
    assert!(found.read_bytes < 12 << 20, "{} bytes", found.read_bytes);
}

/// A volume on a disk with blocks of 4,096 bytes, of which no part can be read, is checked as on any
/// other disk.
#[test]
fn a_device_with_large_blocks_is_no_obstacle() {
    let dir = tempfile::tempdir().unwrap();
    let image = dir.path().join("image");
    mke2fs(&image, 24 << 20, &["-t", "ext4", "-b", "4096"]);
    let bytes = fs::read(&image).unwrap();
    // A sound volume; one without its superblock; one whose superblock has a wrong checksum, a wrong
    // bit, or another revision.
    let damages: [(usize, &[u8]); 5] =
        [(0, &[]), (0, &[0x5a; 4096]), (2044, &[1, 2, 3, 4]), (1080, &[0x52]), (1100, &[0])];
    for (at, damage) in damages {
        let mut bytes = bytes.clone();
        bytes[at..at + damage.len()].copy_from_slice(damage);
        let small = MemoryDevice::from_image(&bytes);
        let large = Geometry { logical_block: 4096, ..small.geometry() };
        let large = MemoryDevice::with_geometry(large);
        large.load(0, &bytes);
        assert!(large.read_at(1024, 1024).is_err());
        let [one, other] =
            [&small, &large].map(|device| cairn_ext4::check::has_superblock(device).unwrap());
        assert_eq!(one, other, "byte {at}");
        let [one, other] = [&small, &large].map(|device| check(Arc::new(device.fork())));
        assert_eq!(lines(&one), lines(&other), "byte {at}");
        let [one, other] = [small, large].map(|device| match plan(device, Scope::All) {
            Ok(plan) => plan.steps.kept().iter().map(ToString::to_string).collect(),
            Err(error) => error.to_string(),
        });
        assert_eq!(one, other, "byte {at}");
    }
}
