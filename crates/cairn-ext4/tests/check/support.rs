//! Runs a check, and compares it with e2fsck.

use std::path::Path;
use std::sync::Arc;

use cairn_base::checksum::crc32c;
use cairn_base::runtime::threads::Threads;
use cairn_block::memory::MemoryDevice;
use cairn_block::{BlockDevice, BlockDeviceExt};
use cairn_check::{Kind, Report};
use cairn_testkit::judge::{Verdict, e2fsck_check};

use crate::checked::{check_image, lines};

/// Checks a device.
pub fn check(device: Arc<dyn BlockDevice>) -> cairn_ext4::Result<Report> {
    cairn_ext4::check::check(device, Threads::new(), Arc::new(()))
}

/// True if the check has something to say. `e2fsck -n` calls a volume clean whose superblock
/// records errors that are not there any more, or that was left in use without a journal.
pub fn flags(report: &cairn_ext4::Result<Report>) -> bool {
    let marks = ["ext4.superblock.errors", "ext4.superblock.unclean"];
    let is_damage = |kind: &Kind| !marks.contains(&kind.code);
    !matches!(report, Ok(report) if !report.counts.iter().any(|(kind, _)| is_damage(kind)))
}

/// What two judges say of an image, if they differ.
pub fn difference(image: &Path) -> Option<(Verdict, String)> {
    let verdict = e2fsck_check(image);
    let report = check_image(image);
    (verdict.is_clean() == flags(&report)).then(|| (verdict, lines(&report)))
}

/// Changes the first superblock, and computes its checksum.
pub fn edit_superblock(device: &MemoryDevice, edit: impl FnOnce(&mut [u8])) {
    let mut bytes = device.read_at(1024, 1024).unwrap().to_vec();
    edit(&mut bytes);
    let sum = crc32c(!0, &bytes[..1020]);
    bytes[1020..].copy_from_slice(&sum.to_le_bytes());
    device.write_at(1024, bytes).unwrap();
}
