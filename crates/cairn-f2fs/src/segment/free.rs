//! Finds free segments and sections for the logs.
//!
//! A section is free if all its writable segments are free. The free segments of any other section
//! belong to the log that is in it.

use std::collections::BTreeSet;
use std::ops::Range;

use crate::format::SegNo;

/// A bitmap of segments, and one of sections.
pub(super) struct FreeMap {
    segs_per_sec: u32,
    segments: Bits,
    sections: Bits,
    /// Segments of each section that are not free.
    busy: Vec<u32>,
    /// Segments that do not become free.
    barred: Range<u32>,
    /// Segments that no log may take, because of what the NAT leads to in them.
    avoided: BTreeSet<SegNo>,
}

impl FreeMap {
    /// All `segments` are taken; the first `usable` ones of each section can be released.
    pub(super) fn new(segments: u32, segs_per_sec: u32, usable: u32) -> Self {
        let sections = segments / segs_per_sec;
        let busy = vec![usable; sections as usize];
        let (segments, sections) = (Bits::new(segments), Bits::new(sections));
        let avoided = BTreeSet::new();
        Self { segs_per_sec, segments, sections, busy, barred: 0..0, avoided }
    }

    /// Takes the free segments of this range, and keeps the others from becoming free.
    pub(super) fn bar(&mut self, segments: Range<u32>) {
        for segno in segments.clone().map(SegNo) {
            if self.is_free(segno) {
                self.take(segno);
            }
        }
        self.barred = segments;
    }

    /// Ends that. The caller releases what is free.
    pub(super) fn unbar(&mut self) {
        self.barred = 0..0;
    }

    /// Takes a segment if it is free, and keeps it from becoming free.
    pub(super) fn avoid(&mut self, segno: SegNo) {
        if self.is_free(segno) {
            self.take(segno);
        }
        self.avoided.insert(segno);
    }

    pub(super) fn avoided(&self) -> impl Iterator<Item = SegNo> {
        self.avoided.iter().copied()
    }

    pub(super) fn is_avoided(&self, segno: SegNo) -> bool {
        self.avoided.contains(&segno)
    }

    pub(super) fn is_free(&self, segno: SegNo) -> bool {
        self.segments.test(segno.get())
    }

    /// Marks a segment as free, unless it is barred or avoided. It may be free already.
    pub(super) fn release(&mut self, segno: SegNo) {
        let is_kept = self.barred.contains(&segno.get()) || self.is_avoided(segno);
        if !is_kept && self.segments.set(segno.get()) {
            let section = segno.get() / self.segs_per_sec;
            self.busy[section as usize] -= 1;
            if self.busy[section as usize] == 0 {
                self.sections.set(section);
            }
        }
    }

    /// Takes a free segment.
    pub(super) fn take(&mut self, segno: SegNo) {
        let was_free = self.segments.clear(segno.get());
        assert!(was_free, "segment {segno} is taken twice");
        let section = segno.get() / self.segs_per_sec;
        self.busy[section as usize] += 1;
        self.sections.clear(section);
    }

    /// True if this section is free.
    pub(super) fn is_section_free(&self, section: u32) -> bool {
        self.sections.test(section)
    }

    /// The segment after this one, if it is free and of the same section.
    pub(super) fn next_in_section(&self, segno: SegNo) -> Option<SegNo> {
        let next = segno.get() + 1;
        (!next.is_multiple_of(self.segs_per_sec) && self.segments.test(next)).then_some(SegNo(next))
    }

    /// The first segment of the first free section at or after that of `from`, continuing at the
    /// start.
    pub(super) fn free_section(&self, from: SegNo) -> Option<SegNo> {
        let section = self.sections.next_round(from.get() / self.segs_per_sec)?;
        Some(SegNo(section * self.segs_per_sec))
    }

    /// The first free segment at or after `from`, continuing at the start.
    pub(super) fn any_segment(&self, from: SegNo) -> Option<SegNo> {
        self.segments.next_round(from.get()).map(SegNo)
    }

    pub(super) const fn free_sections(&self) -> u32 {
        self.sections.count
    }

    pub(super) const fn free_segments(&self) -> u32 {
        self.segments.count
    }
}

/// Bits with their number.
struct Bits {
    words: Vec<u64>,
    len: u32,
    count: u32,
}

impl Bits {
    fn new(len: u32) -> Self {
        Self { words: vec![0; len.div_ceil(64) as usize], len, count: 0 }
    }

    fn test(&self, bit: u32) -> bool {
        bit < self.len && self.words[(bit / 64) as usize] & (1 << (bit % 64)) != 0
    }

    /// Sets a bit; true if it was clear.
    fn set(&mut self, bit: u32) -> bool {
        let was = self.test(bit);
        if !was {
            self.words[(bit / 64) as usize] |= 1 << (bit % 64);
            self.count += 1;
        }
        !was
    }

    /// Clears a bit; true if it was set.
    fn clear(&mut self, bit: u32) -> bool {
        // The count is changed in a branch, because rustc 1.95 (x86-64, -O) loses
        // `count -= u32::from(was)` if the caller asserts `was`.
        let was = self.test(bit);
        if was {
            self.words[(bit / 64) as usize] &= !(1 << (bit % 64));
            self.count -= 1;
        }
        was
    }

    /// The first set bit at or after `from`, else the first set bit.
    fn next_round(&self, from: u32) -> Option<u32> {
        self.next(from).or_else(|| self.next(0))
    }

    fn next(&self, from: u32) -> Option<u32> {
        let start = (from / 64) as usize;
        let first = self.words.get(start)? & (!0 << (from % 64));
        if first != 0 {
            return Some(start as u32 * 64 + first.trailing_zeros());
        }
        let found = self.words[start + 1..].iter().position(|word| *word != 0)?;
        let index = start + 1 + found;
        Some(index as u32 * 64 + self.words[index].trailing_zeros())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sections_are_free_as_a_whole() {
        let mut map = FreeMap::new(200, 4, 4);
        assert_eq!((map.free_sections(), map.free_section(SegNo(0))), (0, None));
        (100..108).map(SegNo).for_each(|segno| map.release(segno));
        map.release(SegNo(100));
        assert_eq!((map.free_sections(), map.free_segments()), (2, 8));
        assert_eq!(map.free_section(SegNo(101)), Some(SegNo(100)));
        assert_eq!(map.free_section(SegNo(110)), Some(SegNo(100)));
        map.take(SegNo(100));
        assert_eq!((map.free_sections(), map.free_segments()), (1, 7));
        assert_eq!(map.next_in_section(SegNo(100)), Some(SegNo(101)));
        assert_eq!(map.next_in_section(SegNo(103)), None);
        assert_eq!(map.free_section(SegNo(0)), Some(SegNo(104)));
        assert_eq!(map.any_segment(SegNo(108)), Some(SegNo(101)));
        assert!(!map.is_free(SegNo(199)) && map.is_free(SegNo(107)));
    }

    #[test]
    fn barred_segments_are_not_free() {
        let mut map = FreeMap::new(16, 2, 2);
        (4..16).map(SegNo).for_each(|segno| map.release(segno));
        map.bar(8..12);
        map.release(SegNo(9));
        assert_eq!((map.free_sections(), map.free_segments()), (4, 8));
        assert_eq!(map.free_section(SegNo(8)), Some(SegNo(12)));
        map.unbar();
        (8..12).map(SegNo).for_each(|segno| map.release(segno));
        assert_eq!((map.free_sections(), map.free_section(SegNo(8))), (6, Some(SegNo(8))));
    }

    #[test]
    fn segments_that_cannot_be_written_keep_no_section_busy() {
        let mut map = FreeMap::new(16, 4, 3);
        [4, 5, 6].map(SegNo).into_iter().for_each(|segno| map.release(segno));
        assert_eq!(
            (map.free_sections(), map.free_segments(), map.free_section(SegNo(0))),
            (1, 3, Some(SegNo(4)))
        );
        assert!(map.is_section_free(1) && !map.is_section_free(0));
        map.take(SegNo(4));
        assert_eq!(
            (map.next_in_section(SegNo(5)), map.next_in_section(SegNo(6))),
            (Some(SegNo(6)), None)
        );
        assert_eq!((map.free_sections(), map.is_section_free(1)), (0, false));
    }

    #[test]
    fn search_agrees_with_single_bits() {
        let mut bits = Bits::new(300);
        let chosen = [0_u32, 1, 63, 64, 130, 191, 256, 299];
        chosen.iter().for_each(|bit| assert!(bits.set(*bit)));
        for from in 0..300 {
            let right = chosen.iter().find(|bit| **bit >= from).or(chosen.first());
            assert_eq!(bits.next_round(from).as_ref(), right);
        }
        chosen.iter().for_each(|bit| assert!(bits.clear(*bit)));
        assert_eq!((bits.count, bits.next_round(5)), (0, None));
    }
}
