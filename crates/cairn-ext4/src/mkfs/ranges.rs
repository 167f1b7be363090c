//! [`Ranges`]: the blocks in use on a planned volume. A large volume has few ranges.

use std::collections::BTreeMap;

use cairn_base::Pba;

/// Disjoint ranges in use: start, and block after the last one.
#[derive(Debug, Default)]
pub(super) struct Ranges(BTreeMap<u64, u64>);

impl Ranges {
    /// Allocates a range, which must be free.
    pub(super) fn take(&mut self, start: u64, count: u64) {
        let (mut start, mut end) = (start, start + count);
        if let Some((before, behind)) = self.0.range(..=start).next_back().map(|(s, e)| (*s, *e)) {
            assert!(behind <= start, "a block is planned once");
            if behind == start {
                self.0.remove(&before);
                start = before;
            }
        }
        if let Some((next, behind)) = self.0.range(start..).next().map(|(s, e)| (*s, *e)) {
            assert!(end <= next, "a block is planned once");
            if end == next {
                self.0.remove(&next);
                end = behind;
            }
        }
        self.0.insert(start, end);
    }

    /// Free ranges from `from` to `end`, in order.
    pub(super) fn gaps(&self, from: u64, end: u64) -> Vec<(u64, u64)> {
        let mut at = from;
        let mut gaps = Vec::new();
        if let Some((_, behind)) = self.0.range(..=from).next_back() {
            at = at.max(*behind);
        }
        for (start, behind) in self.0.range(from..end) {
            if *start > at {
                gaps.push((at, *start));
            }
            at = at.max(*behind);
        }
        if at < end {
            gaps.push((at, end));
        }
        gaps
    }

    /// Allocates the first free run of `count` blocks in the range.
    pub(super) fn take_run(&mut self, count: u64, from: u64, end: u64) -> Option<Pba> {
        let (start, _) =
            self.gaps(from, end).into_iter().find(|(start, behind)| behind - start >= count)?;
        self.take(start, count);
        Some(Pba(start))
    }

    /// Allocates `count` blocks from `from` on, in as few runs as possible.
    pub(super) fn take_many(&mut self, count: u64, from: u64, end: u64) -> Option<Vec<(Pba, u64)>> {
        let mut left = count;
        let mut runs = Vec::new();
        for (start, behind) in self.gaps(from, end) {
            let len = left.min(behind - start);
            runs.push((Pba(start), len));
            left -= len;
            if left == 0 {
                runs.iter().for_each(|(start, len)| self.take(start.get(), *len));
                return Some(runs);
            }
        }
        None
    }

    /// Ranges in use within `from..end`.
    pub(super) fn used(&self, from: u64, end: u64) -> impl Iterator<Item = (u64, u64)> {
        let before = self.0.range(..from).next_back().filter(|(_, behind)| **behind > from);
        let all = before.into_iter().chain(self.0.range(from..end));
        all.map(move |(start, behind)| ((*start).max(from), (*behind).min(end)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_merge_and_gaps_are_found() {
        let mut ranges = Ranges::default();
        ranges.take(10, 5);
        ranges.take(20, 5);
        ranges.take(15, 5);
        assert_eq!(ranges.0.len(), 1);
        assert_eq!(ranges.gaps(0, 40), [(0, 10), (25, 40)]);
        assert_eq!(ranges.gaps(12, 30), [(25, 30)]);
        assert_eq!(ranges.take_run(11, 0, 40), Some(Pba(25)));
        assert_eq!(ranges.take_many(12, 0, 40), Some(vec![(Pba(0), 10), (Pba(36), 2)]));
        assert_eq!(ranges.used(5, 38).collect::<Vec<_>>(), [(5, 38)]);
        assert_eq!(ranges.take_many(3, 0, 40), None);
    }
}
