//! The table recounted, for assertions in tests.

use super::{Section, Table};
use crate::format::units::BLOCKS_PER_SEGMENT;
use crate::format::{Log, SegNo, bits};

impl Table {
    /// Asserts the invariants of the module.
    pub(in crate::segment) fn check(&self) {
        let mut empty = 0;
        for segno in (0..self.len()).map(SegNo) {
            let map = self.valid_map(segno);
            let valid = bits::count(&map);
            assert_eq!(u32::from(self.valid(segno)), valid);
            let usable = u32::from(self.layout.usable_blocks(segno));
            empty += u32::from(valid == 0 && usable > 0);
            let blocked = self.blocked_map(segno);
            assert_eq!(
                BLOCKS_PER_SEGMENT - bits::count(&blocked),
                self.usable(segno),
                "{segno}: freed and valid"
            );
            let held = self.held_map(segno);
            let freed: Vec<u8> = held.iter().zip(map).map(|(held, valid)| held & !valid).collect();
            if self.free.is_free(segno) {
                assert!(
                    usable > 0 && valid == 0 && bits::count(&freed) == 0 && !self.is_current(segno),
                    "{segno}"
                );
            }
            let listed = Log::ALL.iter().filter(|log| self.partial(**log).contains(&segno)).count();
            let holes = valid > 0 && valid < usable && !self.is_current(segno);
            assert_eq!(listed, usize::from(holes), "{segno}");
        }
        assert_eq!(self.empty, empty);
        let held = self
            .freed
            .values()
            .chain(self.in_flight.values())
            .map(|map| u64::from(bits::count(&**map)));
        assert_eq!(self.held_back(), held.sum::<u64>());
        for (section, counts) in (0..).zip(&self.sections) {
            let first = self.layout.first_segment(section).get();
            let segments = (first..first + self.layout.segs_per_sec).map(SegNo);
            let valid = |nodes: bool| -> u32 {
                let some = segments.clone().filter(|segno| !nodes || self.log(*segno).is_node());
                some.map(|segno| u32::from(self.valid(segno))).sum()
            };
            assert_eq!(
                *counts,
                Section { valid: valid(false), nodes: valid(true) },
                "section {section}"
            );
        }
    }
}
