//! Changes of the table by a checkpoint: at its snapshot, and when it has completed.

#![cfg_attr(
    not(test),
    deny(
        clippy::indexing_slicing,
        clippy::as_conversions,
        clippy::arithmetic_side_effects,
        clippy::unwrap_used,
        clippy::expect_used
    )
)]

use super::Table;
use crate::format::SegNo;

impl Table {
    /// A checkpoint takes its snapshot: the present state is in flight from now on.
    pub(in crate::segment) fn snapshot(&mut self) {
        assert!(
            self.in_flight.is_empty() && self.in_flight_left.is_empty(),
            "one checkpoint at a time"
        );
        self.in_flight = std::mem::take(&mut self.freed);
        self.in_flight_left = std::mem::take(&mut self.left);
        self.in_flight_blocks = std::mem::take(&mut self.freed_blocks);
        self.dirty.clear();
    }

    /// The checkpoint in flight has completed: blocks freed before its snapshot can be written now.
    pub(in crate::segment) fn committed(&mut self) {
        let touched: Vec<SegNo> = self.in_flight.drain().map(|(segno, _)| segno).collect();
        self.in_flight_blocks = 0;
        for segno in touched.into_iter().chain(std::mem::take(&mut self.in_flight_left)) {
            if self.is_untouched(segno) {
                self.free.release(segno);
            }
        }
    }

    /// True if the segment has no log, and no valid block now or at the last checkpoint.
    pub(in crate::segment) fn is_untouched(&self, segno: SegNo) -> bool {
        let held = self.freed.contains_key(&segno) || self.in_flight.contains_key(&segno);
        let left = self.left.contains(&segno) || self.in_flight_left.contains(&segno);
        self.valid(segno) == 0 && !self.is_current(segno) && !held && !left
    }

    /// With `keep` (checkpoints are disabled), all blocks that are valid now stay unchanged until
    /// checkpoints are enabled again.
    pub(in crate::segment) fn keep_all(&mut self, keep: bool) {
        let maps = || (0..self.len()).map(|segno| self.valid_map(SegNo(segno))).collect();
        self.kept = keep.then(|| (maps(), self.valid_total()));
    }
}
