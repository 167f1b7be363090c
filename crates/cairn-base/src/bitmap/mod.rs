//! Bitmaps as they lie on disk: bit `n` is bit `n % 8` (least significant first) of byte `n / 8`.
//!
//! All functions work on plain slices, word by word where they cover ranges. A bit or range beyond
//! the map is the caller's bug and panics, as slice indexing does: validate numbers from disk
//! against the map's length first.

const WORD_BITS: usize = u64::BITS as usize;

/// Is the bit set?
#[must_use]
pub fn test(map: &[u8], bit: usize) -> bool {
    map[bit / 8] & mask(bit) != 0
}

/// Sets the bit; returns what it was.
pub fn set(map: &mut [u8], bit: usize) -> bool {
    let byte = &mut map[bit / 8];
    let was = *byte & mask(bit) != 0;
    *byte |= mask(bit);
    was
}

/// Clears the bit; returns what it was.
pub fn clear(map: &mut [u8], bit: usize) -> bool {
    let byte = &mut map[bit / 8];
    let was = *byte & mask(bit) != 0;
    *byte &= !mask(bit);
    was
}

/// Sets `len` bits from `start`.
pub fn set_range(map: &mut [u8], start: usize, len: usize) {
    fill(map, start, len, true);
}

/// Clears `len` bits from `start`.
pub fn clear_range(map: &mut [u8], start: usize, len: usize) {
    fill(map, start, len, false);
}

/// The first set bit in `from..end`.
#[must_use]
pub fn next_set(map: &[u8], from: usize, end: usize) -> Option<usize> {
    check(map, end);
    find(|word| load(map, word), from, end)
}

/// The first clear bit in `from..end`.
#[must_use]
pub fn next_clear(map: &[u8], from: usize, end: usize) -> Option<usize> {
    check(map, end);
    find(|word| !load(map, word), from, end)
}

/// The first bit in `from..end` that is clear in both maps.
#[must_use]
pub fn next_clear_in_both(map: &[u8], other: &[u8], from: usize, end: usize) -> Option<usize> {
    check(map, end);
    check(other, end);
    find(|word| !(load(map, word) | load(other, word)), from, end)
}

/// How many of the `len` bits from `start` are set.
#[must_use]
pub fn count_set(map: &[u8], start: usize, len: usize) -> usize {
    let end = start + len;
    check(map, end);
    let mut count = 0;
    let mut bit = start;
    while bit < end {
        let word = bit / WORD_BITS;
        let next = end.min((word + 1) * WORD_BITS);
        let ones = load(map, word) & span(bit % WORD_BITS, next - bit);
        count += ones.count_ones() as usize;
        bit = next;
    }
    count
}

const fn mask(bit: usize) -> u8 {
    1 << (bit % 8)
}

fn check(map: &[u8], end: usize) {
    assert!(end <= map.len() * 8, "bit range ends at {end}, bitmap has {} bits", map.len() * 8);
}

/// `len` ones from bit `start` of a word; `start + len` is at most 64.
const fn span(start: usize, len: usize) -> u64 {
    if len == WORD_BITS { u64::MAX } else { ((1 << len) - 1) << start }
}

/// The map's word number `word`; bits beyond the map's end are zero.
fn load(map: &[u8], word: usize) -> u64 {
    let rest = &map[word * 8..];
    match rest.first_chunk::<8>() {
        Some(bytes) => u64::from_le_bytes(*bytes),
        None => rest.iter().rev().fold(0, |value, byte| value << 8 | u64::from(*byte)),
    }
}

/// The first bit in `from..end` that is set in a map of these words.
fn find(map: impl Fn(usize) -> u64, from: usize, end: usize) -> Option<usize> {
    let mut bit = from;
    while bit < end {
        let word = bit / WORD_BITS;
        let candidates = map(word) & (u64::MAX << (bit % WORD_BITS));
        if candidates != 0 {
            let found = word * WORD_BITS + candidates.trailing_zeros() as usize;
            return (found < end).then_some(found);
        }
        bit = (word + 1) * WORD_BITS;
    }
    None
}

fn fill(map: &mut [u8], start: usize, len: usize, ones: bool) {
    let end = start + len;
    check(map, end);
    if len == 0 {
        return;
    }
    let (first, last) = (start / 8, (end - 1) / 8);
    let head = 0xff << (start % 8);
    let tail = 0xff >> (7 - (end - 1) % 8);
    let put = |byte: &mut u8, bits: u8| *byte = if ones { *byte | bits } else { *byte & !bits };
    if first == last {
        put(&mut map[first], head & tail);
    } else {
        put(&mut map[first], head);
        map[first + 1..last].fill(if ones { 0xff } else { 0 });
        put(&mut map[last], tail);
    }
}

#[cfg(test)]
mod tests;
