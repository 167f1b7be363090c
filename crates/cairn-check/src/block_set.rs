//! [`BlockSet`]: a set of blocks, with one bit a block where there are blocks of it.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use cairn_base::memory::NoMemory;

use crate::sparse::Sparse;

const BITS: u64 = 64;

/// A set of blocks of a volume. Several threads may add to it.
#[derive(Debug)]
pub struct BlockSet {
    words: Sparse<AtomicU64>,
    blocks: u64,
}

impl BlockSet {
    /// An empty set for a volume of so many blocks. Regions of 131072 blocks without a member take
    /// 16 bytes, others 16 KiB.
    ///
    /// # Errors
    /// There is no memory for the table of regions.
    pub fn new(blocks: u64) -> Result<Self, NoMemory> {
        Ok(Self { words: Sparse::new(blocks.div_ceil(BITS))?, blocks })
    }

    /// Blocks of the volume.
    #[must_use]
    pub const fn blocks(&self) -> u64 {
        self.blocks
    }

    /// Adds a block. True if it was not in the set; false also beyond the volume.
    pub fn insert(&self, block: u64) -> bool {
        self.insert_range(block, 1, &mut |_, _| ()) == 1
    }

    /// Adds `len` blocks from `start` on, as far as the volume has them. Calls `twice` for each run
    /// of blocks (first, length) that were in the set before. Returns how many were not.
    pub fn insert_range(&self, start: u64, len: u64, twice: &mut dyn FnMut(u64, u64)) -> u64 {
        let mut new = 0_u64;
        for (word, mask) in self.masks(start, len) {
            let Some(cell) = self.words.at(word) else { break };
            let before = cell.fetch_or(mask, Relaxed);
            new = new.saturating_add((mask & !before).count_ones().into());
            runs(mask & before, |at, len| twice(first_of(word).saturating_add(at), len));
        }
        new
    }

    /// Removes blocks.
    pub fn remove_range(&self, start: u64, len: u64) {
        for (word, mask) in self.masks(start, len) {
            if let Some(cell) = self.words.get(word) {
                cell.fetch_and(!mask, Relaxed);
            }
        }
    }

    /// Is the block in the set?
    #[must_use]
    pub fn contains(&self, block: u64) -> bool {
        let word = self.words.get(block.div_euclid(BITS)).map_or(0, |word| word.load(Relaxed));
        block < self.blocks && word >> block.rem_euclid(BITS) & 1 != 0
    }

    /// The number of these blocks that are in the set.
    #[must_use]
    pub fn count_range(&self, start: u64, len: u64) -> u64 {
        let mut count = 0_u64;
        for (word, mask) in self.masks(start, len) {
            let bits = self.words.get(word).map_or(0, |word| word.load(Relaxed));
            count = count.saturating_add((bits & mask).count_ones().into());
        }
        count
    }

    /// The number of all blocks of the set.
    #[must_use]
    pub fn count(&self) -> u64 {
        let each = self.words.iter().map(|(_, word)| u64::from(word.load(Relaxed).count_ones()));
        each.fold(0, u64::saturating_add)
    }

    /// The members among 64 blocks, of which `first` is the first one: bit 0 is `first`. `first`
    /// need not be a multiple of 64.
    #[must_use]
    pub fn bits_at(&self, first: u64) -> u64 {
        let (word, shift) = (first.div_euclid(BITS), first.rem_euclid(BITS));
        let load = |word| self.words.get(word).map_or(0, |word| word.load(Relaxed));
        if shift == 0 {
            return load(word);
        }
        let high = load(word.saturating_add(1)) << BITS.saturating_sub(shift);
        load(word) >> shift | high
    }

    /// The words that hold these blocks, each with the bits of them.
    fn masks(&self, start: u64, len: u64) -> impl Iterator<Item = (u64, u64)> + use<> {
        let end = start.saturating_add(len).min(self.blocks);
        let mut at = start;
        std::iter::from_fn(move || {
            if at >= end {
                return None;
            }
            let (word, shift) = (at.div_euclid(BITS), at.rem_euclid(BITS));
            let count = BITS.saturating_sub(shift).min(end.saturating_sub(at));
            at = at.saturating_add(count);
            let mask = u64::MAX >> BITS.saturating_sub(count);
            Some((word, mask << shift))
        })
    }
}

fn first_of(word: u64) -> u64 {
    word.saturating_mul(BITS)
}

/// Calls `each` with the first bit and the length of each run of ones.
fn runs(mut bits: u64, mut each: impl FnMut(u64, u64)) {
    let mut at = 0_u64;
    while bits != 0 {
        let skip = bits.trailing_zeros();
        let len = (bits >> skip).trailing_ones();
        at = at.saturating_add(skip.into());
        each(at, len.into());
        at = at.saturating_add(len.into());
        bits = bits.checked_shr(skip.saturating_add(len)).unwrap_or(0);
    }
}

impl BlockSet {
    /// Fills `bitmap` with the members from `first` on, as bitmaps lie on disks: bit 0 of byte 0 is
    /// `first`, and so on. Blocks beyond the volume are zeros.
    pub fn write_bitmap(&self, first: u64, bitmap: &mut [u8]) {
        let mut at = first;
        for chunk in bitmap.chunks_mut(8) {
            for (to, from) in chunk.iter_mut().zip(self.bits_at(at).to_le_bytes()) {
                *to = from;
            }
            at = at.saturating_add(BITS);
        }
    }

    /// The first member at or behind `from`.
    #[must_use]
    pub fn next(&self, from: u64) -> Option<u64> {
        let mut at = from;
        loop {
            let word = self.words.next_made(at.div_euclid(BITS))?;
            at = at.max(first_of(word));
            let bits = self.bits_at(at);
            if bits != 0 {
                return Some(at.saturating_add(bits.trailing_zeros().into()));
            }
            at = first_of(at.div_euclid(BITS).saturating_add(1));
        }
    }

    /// Bytes of the set's memory, about.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        let made = cairn_base::units::as_u64(self.words.iter().count());
        made.saturating_mul(BITS.div_euclid(8))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #[test]
        fn it_is_a_set(
            ops in prop::collection::vec((0_u64..400_000, 0_u64..300, any::<bool>()), 1..40)
        ) {
            let blocks = 399_999;
            let set = BlockSet::new(blocks).unwrap();
            let mut model = BTreeSet::new();
            for (start, len, insert) in ops {
                let range = start..(start + len).min(blocks);
                if insert {
                    let mut twice = BTreeSet::new();
                    let mut note = |at, len| twice.extend(at..at + len);
                    let new = set.insert_range(start, len, &mut note);
                    let known: BTreeSet<_> = range.clone().filter(|n| model.contains(n)).collect();
                    prop_assert_eq!(new, range.clone().count() as u64 - known.len() as u64);
                    prop_assert_eq!(twice, known);
                    model.extend(range);
                } else {
                    set.remove_range(start, len);
                    range.for_each(|n| { model.remove(&n); });
                }
                prop_assert_eq!(set.count(), model.len() as u64);
                prop_assert_eq!(set.next(start), model.range(start..).next().copied());
                let mut bitmap = [0; 33];
                set.write_bitmap(start, &mut bitmap);
                for bit in 0..bitmap.len() * 8 {
                    let is = cairn_base::bitmap::test(&bitmap, bit);
                    prop_assert_eq!(is, model.contains(&(start + bit as u64)));
                }
                let counted = model.range(start..start + 777).count() as u64;
                prop_assert_eq!(set.count_range(start, 777), counted);
                prop_assert_eq!(set.contains(start), model.contains(&start));
            }
        }
    }

    #[test]
    fn an_empty_volume_of_a_tebibyte_takes_little() {
        let set = BlockSet::new(1 << 28).unwrap();
        assert!(set.insert(1 << 27) && !set.insert(1 << 27) && !set.insert(1 << 28));
        assert_eq!(set.bytes(), 16 << 10);
        assert_eq!(set.next(0), Some(1 << 27));
    }
}
