//! Runs a check, and compares it with e2fsck.

use std::path::Path;
use std::sync::Arc;

use cairn_base::runtime::threads::Threads;
use cairn_block::BlockDevice;
use cairn_block::file::{FileDevice, OpenOptions};
use cairn_check::Report;
use cairn_testkit::judge::{Verdict, e2fsck_check};

/// Checks a device.
pub fn check(device: Arc<dyn BlockDevice>) -> cairn_ext4::Result<Report> {
    cairn_ext4::check::check(device, Threads::new(), Arc::new(()))
}

/// Checks an image.
pub fn check_image(image: &Path) -> cairn_ext4::Result<Report> {
    let options = OpenOptions { write: false, lock: false, create_size: None };
    check(Arc::new(FileDevice::open(image, options).expect("the image opens")))
}

/// The findings, one a line; or why there is no report.
pub fn lines(report: &cairn_ext4::Result<Report>) -> String {
    match report {
        Ok(report) => report.findings.iter().map(|finding| format!("{finding}\n")).collect(),
        Err(error) => format!("error: {error}\n"),
    }
}

/// Asserts that a check finds nothing.
#[track_caller]
pub fn assert_sound(image: &Path, what: &str) {
    let report = check_image(image);
    let text = lines(&report);
    assert!(report.is_ok_and(|report| report.count() == 0), "{what}:\n{text}");
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
