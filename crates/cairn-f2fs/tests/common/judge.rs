//! The judges of a volume in memory: fsck.f2fs, and Cairn's own check.

use std::sync::Arc;

use cairn_base::runtime::Runtime;
use cairn_base::runtime::threads::Threads;
use cairn_block::BlockDevice;
use cairn_block::memory::MemoryDevice;
use cairn_block::zoned::open_image;
use cairn_testkit::judge::assert_f2fs_device_clean;

/// Records of earlier errors, which a volume keeps after tests with faults.
const RECORDS: [&str; 2] = ["f2fs.checkpoint.flags", "f2fs.superblock.errors"];

/// Cairn's check finds nothing, or the error has what it finds.
pub fn check(image: &MemoryDevice) -> Result<(), String> {
    let device: Arc<dyn BlockDevice> = Arc::new(image.fork());
    let device = match open_image(&device).map_err(|error| error.to_string())? {
        Some(zoned) => Arc::new(zoned),
        None => device,
    };
    let runtime: Arc<dyn Runtime> = Threads::new();
    let report = cairn_f2fs::check::check(device, &runtime, Arc::new(()))
        .map_err(|error| error.to_string())?;
    let findings = report.findings.iter().filter(|found| !RECORDS.contains(&found.kind.code));
    let found: String = findings.map(|finding| format!("{finding}\n")).collect();
    if found.is_empty() { Ok(()) } else { Err(found) }
}

/// Asserts that neither of them finds anything.
#[track_caller]
pub fn judge(image: &MemoryDevice) {
    assert_f2fs_device_clean(image);
    if let Err(found) = check(image) {
        panic!("fsck.f2fs finds nothing, but the check does:\n{found}");
    }
}
