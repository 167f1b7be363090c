//! `check` against fsck.f2fs: nothing is found on sound volumes of every kind, and what fsck.f2fs
//! finds on a damaged one is found.

mod blocks;
mod called_free;
mod chain;
mod clean;
mod clusters;
mod deleted;
mod dentries;
mod faults;
mod features;
mod fields;
mod flags;
mod given_again;
mod given_away;
mod holes;
mod inject;
mod kernel;
mod listed;
mod lost_writes;
mod misread;
mod nameless;
mod names;
mod nodes;
mod numbers;
mod older;
mod owned;
mod packs;
mod places;
mod pointers;
mod quota;
mod readers;
mod reads;
mod repair;
#[path = "../../../cairn-check/tests/common/repair_faults.rs"]
mod repair_faults;
mod rescue;
mod reused;
mod revived;
mod stale;
mod superblocks;
mod sweep;
mod swept;
mod types;
mod volume;

use std::sync::Arc;

use cairn_base::runtime::Runtime;
use cairn_base::runtime::threads::Threads;
use cairn_block::BlockDevice;
use cairn_check::Report;

/// The report on a device.
///
/// # Errors
/// There is no volume.
pub fn check(device: Arc<dyn BlockDevice>) -> cairn_f2fs::Result<Report> {
    let runtime: Arc<dyn Runtime> = Threads::new();
    cairn_f2fs::check::check(device, &runtime, Arc::new(()))
}

/// The findings of a report, one a line.
pub fn lines(report: &Report) -> String {
    report.findings.iter().map(|finding| format!("{finding}\n")).collect()
}

/// The machine of `kernel` runs this test.
#[test]
#[ignore = "runs in the machine"]
fn in_the_machine() {
    cairn_testkit::vm::serve();
}
