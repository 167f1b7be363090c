//! [`Bits`]: one bit for each block of a folio. Up to 64 bits are stored without a heap allocation.

use std::ops::Range;

const WORD: u32 = u64::BITS;

/// A fixed number of bits, which are clear in the beginning.
#[derive(Clone, Debug)]
pub(crate) struct Bits(Words);

#[derive(Clone, Debug)]
enum Words {
    One(u64),
    Many(Box<[u64]>),
}

/// The part of `range` inside word `index`, as a mask.
fn mask(range: &Range<u32>, index: u32) -> u64 {
    let base = index * WORD;
    let from = range.start.saturating_sub(base);
    let to = range.end.saturating_sub(base).min(WORD);
    if from >= to {
        return 0;
    }
    (u64::MAX >> (WORD - (to - from))) << from
}

impl Bits {
    pub(crate) fn new(bits: u32) -> Self {
        if bits <= WORD {
            return Self(Words::One(0));
        }
        Self(Words::Many(vec![0; bits.div_ceil(WORD) as usize].into_boxed_slice()))
    }

    fn words(&self) -> &[u64] {
        match &self.0 {
            Words::One(word) => std::slice::from_ref(word),
            Words::Many(words) => words,
        }
    }

    fn words_mut(&mut self) -> &mut [u64] {
        match &mut self.0 {
            Words::One(word) => std::slice::from_mut(word),
            Words::Many(words) => words,
        }
    }

    /// Changes the words that `range` touches, each with its mask.
    fn update(&mut self, range: &Range<u32>, mut change: impl FnMut(&mut u64, u64)) {
        if range.is_empty() {
            return;
        }
        let words = self.words_mut();
        for index in range.start / WORD..=(range.end - 1) / WORD {
            change(&mut words[index as usize], mask(range, index));
        }
    }

    pub(crate) fn set(&mut self, range: Range<u32>) {
        self.update(&range, |word, mask| *word |= mask);
    }

    pub(crate) fn clear(&mut self, range: Range<u32>) {
        self.update(&range, |word, mask| *word &= !mask);
    }

    pub(crate) fn get(&self, bit: u32) -> bool {
        self.words()[(bit / WORD) as usize] >> (bit % WORD) & 1 == 1
    }

    pub(crate) fn any(&self) -> bool {
        self.words().iter().any(|word| *word != 0)
    }

    /// Number of bits of `range` that are clear both here and in `other`.
    pub(crate) fn count_clear_in_both(&self, other: &Self, range: Range<u32>) -> u32 {
        self.words()
            .iter()
            .zip(other.words())
            .zip(0..)
            .map(|((a, b), index)| (mask(&range, index) & !(a | b)).count_ones())
            .sum()
    }

    /// The first set bit of `range`.
    pub(crate) fn next_set(&self, range: Range<u32>) -> Option<u32> {
        self.find(range, |word| word)
    }

    /// The first clear bit of `range`.
    pub(crate) fn next_clear(&self, range: Range<u32>) -> Option<u32> {
        self.find(range, |word| !word)
    }

    fn find(&self, range: Range<u32>, of: impl Fn(u64) -> u64) -> Option<u32> {
        if range.is_empty() {
            return None;
        }
        let words = self.words();
        (range.start / WORD..=(range.end - 1) / WORD).find_map(|index| {
            let found = of(words[index as usize]) & mask(&range, index);
            (found != 0).then(|| index * WORD + found.trailing_zeros())
        })
    }

    /// The first run of bits within `range` that are set here and clear in `without`.
    pub(crate) fn next_run_without(&self, without: &Self, range: Range<u32>) -> Option<Range<u32>> {
        let mut from = range.start;
        loop {
            let start = self.next_set(from..range.end)?;
            if without.get(start) {
                from = without.next_clear(start..range.end)?;
                continue;
            }
            let end = self.next_clear(start..range.end).unwrap_or(range.end);
            let end = without.next_set(start..end).unwrap_or(end);
            return Some(start..end);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_set_cleared_and_found_across_words() {
        for bits in [64, 300] {
            let mut map = Bits::new(bits);
            map.set(10..60);
            map.clear(20..30);
            assert_eq!((map.next_set(0..bits), map.next_clear(10..bits)), (Some(10), Some(20)));
            assert_eq!((map.next_set(20..bits), map.next_clear(30..60)), (Some(30), None));
            assert!(!map.get(29) && map.get(30) && map.get(59) && !map.get(60));
        }
        let mut map = Bits::new(300);
        map.set(60..200);
        assert_eq!(
            (map.next_clear(60..300), map.next_set(0..60), map.next_set(200..300)),
            (Some(200), None, None)
        );
        map.clear(60..200);
        assert!(!map.any());
    }

    #[test]
    fn runs_leave_out_what_another_map_has() {
        let (mut dirty, mut busy) = (Bits::new(200), Bits::new(200));
        dirty.set(5..150);
        busy.set(0..10);
        busy.set(100..120);
        assert_eq!(dirty.next_run_without(&busy, 0..200), Some(10..100));
        assert_eq!(dirty.next_run_without(&busy, 100..200), Some(120..150));
        assert_eq!(dirty.next_run_without(&busy, 100..110), None);
        assert_eq!(dirty.count_clear_in_both(&busy, 0..200), 50);
    }
}
