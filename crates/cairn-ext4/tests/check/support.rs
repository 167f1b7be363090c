//! Runs a check, and compares it with e2fsck.

use std::path::Path;
use std::sync::Arc;

use cairn_base::runtime::threads::Threads;
use cairn_block::BlockDevice;
use cairn_check::Report;
use cairn_testkit::judge::{Verdict, e2fsck_check};

use crate::checked::{check_image, lines};

/// Checks a device.
pub fn check(device: Arc<dyn BlockDevice>) -> cairn_ext4::Result<Report> {
    cairn_ext4::check::check(device, Threads::new(), Arc::new(()))
}

/// True if the check has something to say.
pub fn flags(report: &cairn_ext4::Result<Report>) -> bool {
    !matches!(report, Ok(report) if report.count() == 0)
}

/// What two judges say of an image, if they differ.
pub fn difference(image: &Path) -> Option<(Verdict, String)> {
    let verdict = e2fsck_check(image);
    let report = check_image(image);
    (verdict.is_clean() == flags(&report)).then(|| (verdict, lines(&report)))
}
