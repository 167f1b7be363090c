//! How a check and a mount read a device.

use std::sync::Arc;

use cairn_block::wrap::Stats;

use crate::check;
use crate::volume::{End, MIB, open, worked};

#[test]
fn blocks_that_follow_each_other_are_read_together() {
    let device = worked(96 * MIB, &[], End::Cut);
    let stats = Arc::new(Stats::new(device.clone()));
    assert_eq!(check(stats.clone()).unwrap().count(), 0);
    let found = stats.snapshot();
    assert!(found.reads < 400, "{} reads of a check", found.reads);
    // Three segments of 512 nodes each have no summary, because the volume was not closed.
    let stats = Arc::new(Stats::new(device));
    drop(open(stats.clone(), ""));
    let found = stats.snapshot();
    assert!(found.reads < 300, "{} reads of a mount", found.reads);
}
