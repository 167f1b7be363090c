//! [`Ledger`]: writes that the server has answered and no flush has covered.
//!
//! A server that ends may lose them. They are kept, in the order of their answers, until a flush
//! that was sent after their answers has succeeded.

use std::collections::VecDeque;
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

    fn weight(&self) -> u64 {
        OVERHEAD + if self.data.is_some() { self.len } else { 0 }
    }
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

    /// Everything, to be written again in this order.
    pub(super) fn entries(&self) -> Vec<Entry> {
        self.entries.iter().cloned().collect()
    }

    /// Forgets everything.
    pub(super) fn clear(&mut self) -> Vec<Entry> {
        self.cover(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(offset: u64, len: usize) -> Entry {
        let data: Arc<[Bytes]> = vec![Bytes::from(vec![1; len])].into();
        Entry { offset, len: len as u64, data: Some(data) }
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
        assert_eq!(ledger.entries().iter().map(|entry| entry.offset).collect::<Vec<_>>(), [10, 5]);
        // A flush that was sent earlier is answered later.
        assert_eq!(ledger.cover(early).len(), 0);
        assert_eq!(ledger.cover(late).len(), 2);
        assert_eq!((ledger.weight(), ledger.mark()), (0, 3));
        ledger.push(entry(0, 1));
        assert_eq!((ledger.clear().len(), ledger.weight()), (1, 0));
    }
}
