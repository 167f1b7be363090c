//! Cairn's check, and e2fsck beside it.

use std::path::Path;
use std::sync::Arc;

use cairn_base::runtime::threads::Threads;
use cairn_block::file::{FileDevice, OpenOptions};
use cairn_check::Report;

/// Checks an image.
pub fn check_image(image: &Path) -> cairn_ext4::Result<Report> {
    let options = OpenOptions { lock: false, ..OpenOptions::read() };
    let device = FileDevice::open(image, options).expect("the image opens");
    cairn_ext4::check::check(Arc::new(device), Threads::new(), Arc::new(()))
}

/// The findings, one a line; or why there is no report.
pub fn lines(report: &cairn_ext4::Result<Report>) -> String {
    match report {
        Ok(report) => report.findings.iter().map(|finding| format!("{finding}\n")).collect(),
        Err(error) => format!("error: {error}\n"),
    }
}

/// Asserts that neither of them finds anything.
#[track_caller]
pub fn assert_clean(image: &Path) {
    cairn_testkit::judge::assert_clean(image);
    let report = check_image(image);
    let text = lines(&report);
    assert!(text.is_empty(), "cairn check {}:\n{text}", image.display());
}
