//! [`Ledger`]: writes that the server has answered and no flush has covered.
//!
//! A server that ends may lose them. They are kept, in the order of their answers, until a flush
//! that was sent after their answers has succeeded.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;

use cairn_block::Bytes;

/// What one entry takes besides its data.
const OVERHEAD: u64 = 128;

/// The bytes of a write; none if they are zeros that the server makes.
pub(super) type Data = Option<Arc<[Bytes]>>;

/// One answered write.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub(super) offset: u64,
    pub(super) len: u64,
    pub(super) data: Data,
}

impl Entry {
    pub(super) fn range(&self) -> Range<u64> {
        self.offset..self.offset.saturating_add(self.len)
    }

    /// From one byte of the device to another, both in its range.
    fn part(&self, start: u64, end: u64) -> Self {
        let mut skip = start - self.offset;
        let mut left = end - start;
        let data = self.data.as_ref().map(|data| {
            let mut pieces = Vec::new();
            for piece in data.iter() {
                let len = piece.len() as u64;
                let from = skip.min(len);
                let until = (from + left).min(len);
                skip -= from;
                left -= until - from;
                // Both are within a buffer in memory.
                pieces.extend((from < until).then(|| piece.slice(from as usize..until as usize)));
            }
            pieces.into()
        });
        Self { offset: start, len: end - start, data }
    }

    fn weight(&self) -> u64 {
        OVERHEAD + if self.data.is_some() { self.len } else { 0 }
    }
}

/// Ranges, by start, that neither touch nor overlap.
type Ranges = BTreeMap<u64, u64>;

/// The parts of `range` that lie in none of `taken`.
fn gaps(taken: &Ranges, range: Range<u64>) -> Vec<(u64, u64)> {
    let mut found = Vec::new();
    let mut at = range.start;
    let before = taken.range(..range.start).next_back();
    for (start, end) in before.into_iter().chain(taken.range(range.clone())) {
        if *start > at {
            found.push((at, *start));
        }
        at = at.max(*end);
    }
    if at < range.end {
        found.push((at, range.end));
    }
    found
}

/// Adds `range` to `taken`.
fn cover(taken: &mut Ranges, range: Range<u64>) {
    let (mut start, mut end) = (range.start, range.end);
    // The last range that begins in or before it, as long as it reaches it.
    while let Some((other, until)) = taken.range(..=end).next_back().map(|(a, b)| (*a, *b))
        && until >= start
    {
        taken.remove(&other);
        (start, end) = (start.min(other), end.max(until));
    }
    taken.insert(start, end);
}

/// The entries, and what they weigh.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    entries: VecDeque<Entry>,
    weight: u64,
    /// Entries that were covered, ever.
    covered: u64,
}

impl Ledger {
    /// Takes an answered write.
    pub(super) fn push(&mut self, entry: Entry) {
        self.weight += entry.weight();
        self.entries.push_back(entry);
    }

    /// The number of entries so far. A flush that is sent now covers all of them.
    pub(super) fn mark(&self) -> u64 {
        self.covered + self.entries.len() as u64
    }

    /// A flush that was sent at `mark` has succeeded. Returns what need not be kept, so that the
    /// caller frees it where no lock is held.
    pub(super) fn cover(&mut self, mark: u64) -> Vec<Entry> {
        let count = mark.saturating_sub(self.covered);
        let count = usize::try_from(count).unwrap_or(usize::MAX).min(self.entries.len());
        let gone: Vec<Entry> = self.entries.drain(..count).collect();
        self.covered += gone.len() as u64;
        self.weight -= gone.iter().map(Entry::weight).sum::<u64>();
        gone
    }

    /// True if an entry from before `mark` is there.
    pub(super) fn holds_before(&self, mark: u64) -> bool {
        self.covered < mark && !self.entries.is_empty()
    }

    /// Bytes of memory that the entries hold.
    pub(super) const fn weight(&self) -> u64 {
        self.weight
    }

    /// What must be written again: the newest bytes of each place, each place once.
    pub(super) fn newest(&self) -> Vec<Entry> {
        let mut taken = BTreeMap::new();
        let mut newest = Vec::new();
        for entry in self.entries.iter().rev() {
            for (start, end) in gaps(&taken, entry.range()) {
                newest.push(entry.part(start, end));
            }
            cover(&mut taken, entry.range());
        }
        newest
    }

    /// Forgets everything.
    pub(super) fn clear(&mut self) -> Vec<Entry> {
        self.cover(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn entry(offset: u64, len: usize) -> Entry {
        let data: Arc<[Bytes]> = vec![Bytes::from(vec![1; len])].into();
        Entry { offset, len: len as u64, data: Some(data) }
    }

    proptest! {
        /// Against a device of bytes.
        #[test]
        fn the_newest_bytes_of_each_place_are_kept(
            writes in proptest::collection::vec((0_u64..50, 1_usize..12, any::<bool>()), 0..30),
        ) {
            let (mut ledger, mut model) = (Ledger::default(), vec![None; 64]);
            for (number, (offset, len, zeros)) in writes.into_iter().enumerate() {
                let value = if zeros { 0 } else { number as u8 + 1 };
                let half = Bytes::from(vec![value; len]);
                let data = [half.slice(..len / 2), half.slice(len / 2..)].into();
                let data = (!zeros).then_some(data);
                ledger.push(Entry { offset, len: len as u64, data });
                model[offset as usize..][..len].fill(Some(value));
            }
            let mut written = vec![None; 64];
            for Entry { offset, len, data } in ledger.newest() {
                let bytes = data.map_or(vec![0; len as usize], |data| data.concat());
                prop_assert_eq!(bytes.len() as u64, len);
                for (at, byte) in bytes.into_iter().enumerate() {
                    let place = &mut written[offset as usize + at];
                    prop_assert_eq!(place.replace(byte), None, "a place is written once");
                }
            }
            prop_assert_eq!(written, model);
        }
    }

    #[test]
    fn a_flush_covers_what_was_answered_before_it_was_sent() {
        let mut ledger = Ledger::default();
        ledger.push(entry(0, 10));
        let early = ledger.mark();
        ledger.push(entry(10, 20));
        ledger.push(Entry { offset: 5, len: 1 << 30, data: None });
        let late = ledger.mark();
        assert_eq!(ledger.weight(), 30 + 3 * OVERHEAD);
        assert_eq!(ledger.cover(early).len(), 1);
        let newest = ledger.newest();
        assert_eq!((newest.len(), newest[0].range()), (1, 5..5 + (1 << 30)));
        // A flush that was sent earlier is answered later.
        assert_eq!(ledger.cover(early).len(), 0);
        assert_eq!(ledger.cover(late).len(), 2);
        assert_eq!((ledger.weight(), ledger.mark()), (0, 3));
        ledger.push(entry(0, 1));
        assert_eq!((ledger.clear().len(), ledger.weight()), (1, 0));
    }
}
