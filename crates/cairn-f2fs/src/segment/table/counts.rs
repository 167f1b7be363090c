//! Totals of the table.

use super::Table;
use crate::format::Log;

impl Table {
    /// Segments without valid blocks that no log is in: `free_segment_count`.
    pub(in crate::segment) fn free_segment_count(&self) -> u32 {
        let current =
            self.current.iter().flatten().filter(|segno| self.valid(**segno) == 0).count();
        self.empty.strict_sub(u32::try_from(current).unwrap_or(u32::MAX))
    }

    /// Unused blocks in segments that are neither empty nor current: of data, and of nodes.
    pub(in crate::segment) fn holes(&self) -> [u64; 2] {
        let of = |logs: [Log; 3]| {
            let segments = logs.into_iter().flat_map(|log| self.partial(log));
            segments
                .map(|segno| {
                    u64::from(self.layout.usable_blocks(*segno).saturating_sub(self.valid(*segno)))
                })
                .sum()
        };
        [of(Log::DATA), of(Log::NODE)]
    }

    /// Those of them in data segments that may be written now.
    pub(in crate::segment) fn writable_holes(&self) -> u64 {
        let segments = Log::DATA.into_iter().flat_map(|log| self.partial(log));
        segments.map(|segno| u64::from(self.usable(*segno))).sum()
    }

    /// Blocks in use that stay as they are while checkpoints are disabled: new contents get another
    /// block, and the old one is not free.
    pub(in crate::segment) fn still_kept(&self) -> u64 {
        self.kept.as_ref().map_or(0, |(_, kept)| kept.saturating_sub(self.held_back()))
    }
}
