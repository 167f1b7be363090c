//! What cleaning sees: segments and sections with their use and age.

use super::Segments;
use crate::format::sit::VALID_MAP_SIZE;
use crate::format::{Layout, Log, SegNo};

/// A segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentInfo {
    /// Its number.
    pub segno: SegNo,
    /// Valid blocks.
    pub valid: u16,
    /// The log that filled it.
    pub log: Log,
    /// Mean age of its blocks, in the volume's time.
    pub mtime: u64,
    /// A log is in it.
    pub current: bool,
    /// A log could take it.
    pub free: bool,
}

/// A section: the unit of cleaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SectionInfo {
    /// Its number.
    pub section: u32,
    /// Valid blocks.
    pub valid: u32,
    /// Valid node blocks.
    pub nodes: u32,
    /// Mean of the segments' times.
    pub mtime: u64,
    /// A log is in one of its segments.
    pub current: bool,
    /// All its segments are free.
    pub free: bool,
}

impl Segments {
    /// A segment.
    ///
    /// # Panics
    /// There is none of this number.
    #[must_use]
    pub fn segment(&self, segno: SegNo) -> SegmentInfo {
        let state = self.state.lock();
        info(&state.table, segno)
    }

    /// The valid blocks of a segment, bits from the most significant one.
    ///
    /// # Panics
    /// There is none of this number.
    #[must_use]
    pub fn valid_map(&self, segno: SegNo) -> [u8; VALID_MAP_SIZE] {
        self.state.lock().table.valid_map(segno)
    }

    /// Segments of a section.
    pub fn segments_of(layout: &Layout, section: u32) -> impl Iterator<Item = SegNo> + use<> {
        let first = layout.first_segment(section).get();
        (first..first + layout.segs_per_sec).map(SegNo)
    }

    /// A section.
    ///
    /// # Panics
    /// There is none of this number.
    #[must_use]
    pub fn section(&self, section: u32) -> SectionInfo {
        let state = self.state.lock();
        let mut sum = SectionInfo { section, valid: 0, nodes: 0, mtime: 0, current: false, free: true };
        let mut times: u64 = 0;
        for segno in Self::segments_of(&self.layout, section) {
            let one = info(&state.table, segno);
            sum.valid += u32::from(one.valid);
            sum.nodes += if one.log.is_node() { u32::from(one.valid) } else { 0 };
            sum.current |= one.current;
            sum.free &= one.free;
            times = times.saturating_add(one.mtime);
        }
        sum.mtime = times / u64::from(self.layout.segs_per_sec);
        sum
    }

    /// Sections with valid blocks and without a log, from `from` on and round, at most `most`.
    #[must_use]
    pub fn used_sections(&self, from: u32, most: usize) -> Vec<SectionInfo> {
        let sections = self.layout.sections;
        let from = from % sections;
        let round = (from..sections).chain(0..from);
        round.map(|section| self.section(section)).filter(|info| info.valid > 0 && !info.current).take(most).collect()
    }
}

fn info(table: &super::Table, segno: SegNo) -> SegmentInfo {
    SegmentInfo {
        segno,
        valid: table.valid(segno),
        log: table.log(segno),
        mtime: table.mtime(segno),
        current: table.is_current(segno),
        free: table.free.is_free(segno),
    }
}
