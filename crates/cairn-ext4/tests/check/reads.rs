//! How a check reads a device.

use std::fs;
use std::sync::Arc;

use cairn_block::memory::MemoryDevice;
use cairn_block::wrap::Stats;
use cairn_testkit::judge::mke2fs;

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
