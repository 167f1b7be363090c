//! The free blocks of one group, in memory: a bitmap of the blocks that must not be allocated.
//!
//! A bit is set for a block that is in use on disk, allocated in memory, or freed by a transaction
//! that is not durable. A search scans words and takes about a microsecond. The upper bound of the
//! longest run avoids searches that cannot succeed.
//!
//! Locking: the group's lock.

use cairn_base::bitmap;

use super::stripe::Alignment;

/// A free run at the goal that is shorter than the request is used only from this length on,
/// because the rest of the group may have a longer one.
const GOOD_RUN: u32 = 64;

/// A bitmap of the blocks that must not be allocated.
#[derive(Debug)]
pub(crate) struct FreeMap {
    busy: Vec<u8>,
    bits: u32,
    free: u32,
    longest: u32,
}

impl FreeMap {
    /// Creates the map from a bitmap. Bits from `bits` on are ignored.
    #[must_use]
    pub(crate) fn new(busy: Vec<u8>, bits: u32) -> Self {
        assert!(busy.len() * 8 >= bits as usize, "a bitmap covers its group");
        let used = bitmap::count_set(&busy, 0, bits as usize);
        // It is at most `bits`.
        let free = bits - used as u32;
        Self { busy, bits, free, longest: free }
    }

    /// Number of free blocks.
    #[must_use]
    pub(crate) const fn free(&self) -> u32 {
        self.free
    }

    /// Upper bound of the longest free run.
    #[must_use]
    pub(crate) const fn longest(&self) -> u32 {
        self.longest
    }

    /// True if the block can be allocated.
    #[must_use]
    pub(crate) fn is_free(&self, bit: u32) -> bool {
        bit < self.bits && !bitmap::test(&self.busy, bit as usize)
    }

    /// Removes a free run.
    pub(crate) fn take(&mut self, start: u32, len: u32) {
        let (from, count) = self.checked(start, len);
        assert_eq!(bitmap::count_set(&self.busy, from, count), 0, "blocks are given out once");
        bitmap::set_range(&mut self.busy, from, count);
        self.free -= len;
        self.longest = self.longest.min(self.free);
    }

    /// Adds a run.
    pub(crate) fn add(&mut self, start: u32, len: u32) {
        let (from, count) = self.checked(start, len);
        assert_eq!(
            bitmap::count_set(&self.busy, from, count),
            count,
            "only taken blocks are given back"
        );
        bitmap::clear_range(&mut self.busy, from, count);
        self.free += len;
        // The run may join its neighbours. The next search of the whole group makes the bound
        // exact.
        self.longest = self.free;
    }

    fn checked(&self, start: u32, len: u32) -> (usize, usize) {
        assert!(
            start.checked_add(len).is_some_and(|end| end <= self.bits),
            "runs lie inside their group"
        );
        (start as usize, len as usize)
    }

    /// The free run that contains `from`, or the next one before `end`.
    fn run_from(&self, from: u32, end: u32) -> Option<(u32, u32)> {
        let start = bitmap::next_clear(&self.busy, from as usize, end as usize)?;
        let behind = bitmap::next_set(&self.busy, start, end as usize).unwrap_or(end as usize);
        Some((start as u32, (behind - start) as u32))
    }

    /// The run at `goal`, if it is free and long enough for a request of `want` blocks.
    #[must_use]
    pub(crate) fn at(&self, goal: u32, want: u32) -> Option<(u32, u32)> {
        if !self.is_free(goal) {
            return None;
        }
        let (start, len) = self.run_from(goal, self.bits)?;
        (len >= want.min(GOOD_RUN)).then_some((start, len.min(want)))
    }

    /// The first run of `want` blocks from `goal` on, then from the start of the group, or else the
    /// longest run.
    #[must_use]
    pub(crate) fn find(&mut self, goal: u32, want: u32) -> Option<(u32, u32)> {
        let mut best: Option<(u32, u32)> = None;
        let goal = if goal < self.bits { goal } else { 0 };
        for (mut from, end) in [(goal, self.bits), (0, self.bits)] {
            while let Some((start, len)) = self.run_from(from, end) {
                if len >= want {
                    return Some((start, want));
                }
                if best.is_none_or(|(_, longest)| len > longest) {
                    best = Some((start, len));
                }
                from = start + len;
            }
            if goal == 0 {
                break;
            }
        }
        // The whole group was searched.
        self.longest = best.map_or(0, |(_, len)| len);
        best
    }

    /// As [`FreeMap::find`], for aligned runs. It does not change the bound.
    #[must_use]
    pub(crate) fn find_aligned(
        &self,
        goal: u32,
        want: u32,
        alignment: Alignment,
    ) -> Option<(u32, u32)> {
        let goal = if goal < self.bits { goal } else { 0 };
        let runs =
            [(goal, self.bits), (0, self.bits)].into_iter().take(if goal == 0 { 1 } else { 2 });
        let mut best: Option<(u32, u32)> = None;
        for (mut from, end) in runs {
            while let Some((start, len)) = self.run_from(from, end) {
                match alignment.within((start, len), want) {
                    Some(run) if run.1 >= want => return Some(run),
                    Some(run) if best.is_none_or(|(_, longest)| run.1 > longest) => {
                        best = Some(run)
                    }
                    _ => {}
                }
                from = start + len;
            }
        }
        best
    }

    /// Free runs that have a block in `from..end`, in order. The first one begins at `from` or
    /// later; the last one may end behind `end`.
    pub(crate) fn runs(&self, from: u32, end: u32) -> impl Iterator<Item = (u32, u32)> {
        let end = end.min(self.bits);
        let mut next = from;
        std::iter::from_fn(move || {
            let start = bitmap::next_clear(&self.busy, next as usize, end as usize)? as u32;
            let run = self.run_from(start, self.bits)?;
            next = run.0 + run.1;
            Some(run)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(busy: &[u32], bits: u32) -> FreeMap {
        let mut bytes = vec![0; 16];
        busy.iter().for_each(|bit| {
            bitmap::set(&mut bytes, *bit as usize);
        });
        FreeMap::new(bytes, bits)
    }

    #[test]
    fn first_fit_behind_the_goal_then_before_it_then_the_longest() {
        let mut map = map(&[0, 10, 20, 50], 100);
        assert_eq!(map.free(), 96);
        assert_eq!(map.find(15, 20), Some((21, 20)));
        assert_eq!(map.find(60, 45), Some((51, 45)));
        assert_eq!(map.find(60, 49), Some((51, 49)));
        assert_eq!(map.find(60, 90), Some((51, 49)));
        assert_eq!(map.longest(), 49);
        assert_eq!(map.at(11, 9), Some((11, 9)));
        assert_eq!(map.at(11, 12), None);
        assert_eq!(map.at(10, 1), None);
    }

    #[test]
    fn runs_are_taken_and_given_once() {
        let mut map = map(&[], 64);
        map.take(10, 20);
        assert_eq!(map.free(), 44);
        assert_eq!(map.runs(0, 64).collect::<Vec<_>>(), [(0, 10), (30, 34)]);
        assert_eq!(map.runs(5, 40).collect::<Vec<_>>(), [(5, 5), (30, 34)]);
        assert_eq!(map.runs(12, 30).next(), None);
        map.add(10, 20);
        assert_eq!(map.find(0, 64), Some((0, 64)));
        assert!(std::panic::catch_unwind(move || map.add(1, 1)).is_err());
    }
}
