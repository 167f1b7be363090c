//! [`Extents`]: disjoint ranges of sectors, each with what is there.

use std::collections::BTreeMap;
use std::ops::Range;

/// What a range has. It belongs to the range's first sector.
pub(crate) trait Piece: Clone {
    /// Without the first sectors.
    fn skip(&mut self, sectors: u64);

    /// True if this continues `before`, a range of so many sectors.
    fn follows(&self, before: &Self, sectors: u64) -> bool;
}

/// Disjoint ranges. What lies in none is the caller's.
#[derive(Clone, Debug)]
pub(crate) struct Extents<P> {
    /// First sector, the sector behind the last one, and what is there.
    runs: BTreeMap<u64, (u64, P)>,
}

impl<P> Default for Extents<P> {
    fn default() -> Self {
        Self { runs: BTreeMap::new() }
    }
}

impl<P: Piece> Extents<P> {
    /// Number of ranges.
    pub(crate) fn len(&self) -> usize {
        self.runs.len()
    }

    /// True if there is none.
    pub(crate) fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// Takes a range out. Calls `removed` with each part that was there.
    pub(crate) fn clear(&mut self, range: Range<u64>, mut removed: impl FnMut(Range<u64>, &P)) {
        if range.is_empty() {
            return;
        }
        // A range that begins before: its head stays, and its tail if it ends behind.
        if let Some((start, (end, piece))) = self.runs.range_mut(..range.start).next_back()
            && *end > range.start
        {
            let (start, old_end) = (*start, *end);
            *end = range.start;
            let mut middle = piece.clone();
            middle.skip(range.start - start);
            removed(range.start..old_end.min(range.end), &middle);
            if old_end > range.end {
                middle.skip(range.end - range.start);
                self.runs.insert(range.end, (old_end, middle));
            }
        }
        while let Some((start, _)) = self.runs.range(range.clone()).next() {
            let start = *start;
            let Some((end, mut piece)) = self.runs.remove(&start) else { break };
            removed(start..end.min(range.end), &piece);
            if end > range.end {
                piece.skip(range.end - start);
                self.runs.insert(range.end, (end, piece));
            }
        }
    }

    /// Puts a range in, which is not in others.
    pub(crate) fn insert(&mut self, range: Range<u64>, piece: P) {
        if let Some((start, (end, before))) = self.runs.range_mut(..range.start).next_back()
            && *end == range.start
            && piece.follows(before, *end - start)
        {
            *end = range.end;
            return;
        }
        self.runs.insert(range.start, (range.end, piece));
    }

    /// The ranges that a range meets, cut to it, in order.
    pub(crate) fn within(&self, range: Range<u64>) -> impl Iterator<Item = (Range<u64>, P)> + '_ {
        let before = self.runs.range(..range.start).next_back();
        let before = before.filter(|(_, (end, _))| *end > range.start);
        let before = before.filter(|_| !range.is_empty());
        let first = before.map_or(range.start, |(start, _)| *start);
        self.runs.range(first..range.end.max(first)).map(move |(start, (end, piece))| {
            let mut piece = piece.clone();
            let from = (*start).max(range.start);
            if from > *start {
                piece.skip(from - start);
            }
            (from..(*end).min(range.end), piece)
        })
    }

    /// All ranges in order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (Range<u64>, &P)> {
        self.runs.iter().map(|(start, (end, piece))| (*start..*end, piece))
    }

    /// The parts of `range` that lie in none.
    pub(crate) fn gaps(&self, range: Range<u64>) -> Vec<Range<u64>> {
        let mut gaps = Vec::new();
        let mut next = range.start;
        for (found, _) in self.within(range.clone()) {
            if found.start > next {
                gaps.push(next..found.start);
            }
            next = found.end;
        }
        if next < range.end {
            gaps.push(next..range.end);
        }
        gaps
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The number of a write, and the sector in it.
    #[derive(Clone, Debug, PartialEq, Eq)]
    struct Mark(u64, u64);

    impl Piece for Mark {
        fn skip(&mut self, sectors: u64) {
            self.1 += sectors;
        }

        fn follows(&self, before: &Self, sectors: u64) -> bool {
            (self.0, self.1) == (before.0, before.1 + sectors)
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(200))]
        #[test]
        fn ranges_are_what_single_sectors_are(
            steps in prop::collection::vec((any::<bool>(), 0..60_u64, 1..20_u64, 0..5_u64), 1..40),
            asked in (0..60_u64, 0..30_u64),
        ) {
            let mut extents = Extents::default();
            let mut sectors: BTreeMap<u64, Mark> = BTreeMap::new();
            for (number, (insert, start, len, skip)) in (0..).zip(steps) {
                let range = start..start + len;
                let mut removed = 0;
                extents.clear(range.clone(), |part, _| removed += part.end - part.start);
                let before = sectors.len() as u64;
                sectors.retain(|sector, _| !range.contains(sector));
                prop_assert_eq!(removed, before - sectors.len() as u64);
                if insert {
                    extents.insert(range.clone(), Mark(number, skip));
                    sectors.extend(range.map(|at| (at, Mark(number, skip + at - start))));
                }
            }
            let range = asked.0..asked.0 + asked.1;
            let mut found = BTreeMap::new();
            for (part, Mark(number, skip)) in extents.within(range.clone()) {
                prop_assert!(!part.is_empty());
                prop_assert!(part.start >= range.start && part.end <= range.end);
                found.extend(part.clone().map(|at| (at, Mark(number, skip + at - part.start))));
            }
            let mut expected = sectors.clone();
            expected.retain(|at, _| range.contains(at));
            let gaps: u64 = extents.gaps(range.clone()).iter().map(|gap| gap.end - gap.start).sum();
            prop_assert_eq!(gaps + expected.len() as u64, asked.1);
            prop_assert_eq!(found, expected);
        }
    }
}
