//! Bitmaps counted from the most significant bit: bit `n` is mask `0x80 >> (n % 8)` of byte
//! `n / 8`.
//!
//! Used by the NAT and SIT version bitmaps and by `valid_map`. As in [`cairn_base::bitmap`], a bit
//! beyond the map is the caller's bug and panics.

use cairn_base::bitmap;
use cairn_base::units::as_index;

/// True if the bit is set.
#[must_use]
pub fn test(map: &[u8], bit: usize) -> bool {
    bitmap::test(map, mirrored(bit))
}

/// Sets the bit and returns its old value.
pub fn set(map: &mut [u8], bit: usize) -> bool {
    bitmap::set(map, mirrored(bit))
}

/// Clears the bit and returns its old value.
pub fn clear(map: &mut [u8], bit: usize) -> bool {
    bitmap::clear(map, mirrored(bit))
}

/// Inverts the bit and returns its new value.
pub(crate) fn flip(map: &mut [u8], bit: usize) -> bool {
    let was = set(map, bit);
    if was {
        clear(map, bit);
    }
    !was
}

/// Number of set bits.
#[must_use]
pub(crate) fn count(map: &[u8]) -> u32 {
    map.iter().map(|byte| byte.count_ones()).sum()
}

/// The first clear bit in `from..end`.
#[must_use]
pub(crate) fn next_clear(map: &[u8], from: usize, end: usize) -> Option<usize> {
    find(map, from, end, 0xff)
}

/// The first set bit in `from..end`.
#[must_use]
pub fn next_set(map: &[u8], from: usize, end: usize) -> Option<usize> {
    find(map, from, end, 0)
}

/// The last set bit.
#[must_use]
pub(crate) fn last_set(map: &[u8]) -> Option<usize> {
    let (index, byte) = map.iter().enumerate().rev().find(|(_, byte)| **byte != 0)?;
    Some(number(index, 7_u32.strict_sub(byte.trailing_zeros())))
}

/// The first bit that differs from `skip`'s, byte by byte where a whole byte can be skipped.
fn find(map: &[u8], from: usize, end: usize, skip: u8) -> Option<usize> {
    let (map, _) = map.split_at(end.div_ceil(8));
    let (first, rest) = map.get(from / 8..)?.split_first()?;
    let candidates = (first ^ skip) & (0xff >> (from % 8));
    let found = if candidates != 0 {
        number(from / 8, candidates.leading_zeros())
    } else {
        let (further, byte) = rest.iter().enumerate().find(|(_, byte)| **byte != skip)?;
        number((from / 8).strict_add(1).strict_add(further), (byte ^ skip).leading_zeros())
    };
    (found < end).then_some(found)
}

/// The number of a byte's bit, which is counted from the most significant one.
const fn number(byte: usize, bit: u32) -> usize {
    byte.strict_mul(8).strict_add(as_index(bit))
}

/// The same bit, counted from the least significant one.
const fn mirrored(bit: usize) -> usize {
    bit ^ 7
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bit_zero_is_the_highest() {
        let mut map = [0_u8; 2];
        assert!(!set(&mut map, 0) && !set(&mut map, 9));
        assert_eq!(map, [0x80, 0x40]);
        assert!(test(&map, 9) && !test(&map, 8));
        assert_eq!(
            [last_set(&map), last_set(&map[..1]), last_set(&[0; 2])],
            [Some(9), Some(0), None]
        );
        assert!(set(&mut map, 9) && clear(&mut map, 9) && !clear(&mut map, 9));
        assert!(flip(&mut map, 15) && !flip(&mut map, 0));
        assert_eq!((map, count(&map)), ([0, 1], 1));
    }

    #[test]
    fn searches_agree_with_single_bits() {
        let map = [0xff, 0x00, 0x3c, 0xff, 0x81];
        for from in 0..=40 {
            for end in from..=40 {
                assert_eq!(next_set(&map, from, end), (from..end).find(|bit| test(&map, *bit)));
                assert_eq!(next_clear(&map, from, end), (from..end).find(|bit| !test(&map, *bit)));
            }
        }
    }
}
