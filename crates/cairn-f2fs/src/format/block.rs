//! A whole block, seen as the structure that fills it, and the tables in it.

use std::ops::Range;

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::units::BLOCK_SIZE;

/// A block's bytes as a structure of the same size.
///
/// # Panics
/// `block` has another length than [`BLOCK_SIZE`]: the caller's bug.
pub(super) fn view<T: FromBytes + Immutable + KnownLayout + Unaligned>(block: &[u8]) -> &T {
    const { assert!(size_of::<T>() == BLOCK_SIZE) };
    let len = block.len();
    T::ref_from_bytes(block).unwrap_or_else(|_| panic!("a block of {len} bytes"))
}

/// A block's bytes as a structure of the same size, for writing.
///
/// # Panics
/// As [`view`].
pub(super) fn view_mut<T: FromBytes + IntoBytes + KnownLayout + Unaligned>(
    block: &mut [u8],
) -> &mut T {
    const { assert!(size_of::<T>() == BLOCK_SIZE) };
    let len = block.len();
    T::mut_from_bytes(block).unwrap_or_else(|_| panic!("a block of {len} bytes"))
}

/// Bytes that are compared at a time.
const PART: usize = 256;

/// Are all bytes zeros? Parts without an early end are compared many bytes at a time.
#[must_use]
pub(crate) fn is_zero(bytes: &[u8]) -> bool {
    bytes.chunks(PART).all(|part| part.iter().fold(0, |all, byte| all | byte) == 0)
}

/// The length without the zeros at the end. Most of an inode is zeros, so parts are compared as
/// in [`is_zero`].
#[must_use]
pub(crate) fn len_without_zeros(bytes: &[u8]) -> usize {
    let zeros = bytes.rchunks(PART).take_while(|part| is_zero(part)).map(<[u8]>::len).sum();
    let rest = bytes.split_at(bytes.len().saturating_sub(zeros)).0;
    let is_end = |byte: &u8| *byte != 0;
    rest.iter().rposition(is_end).map_or(0, |last| last.saturating_add(1))
}

/// An entry of a table.
///
/// # Panics
/// The table ends before: the caller's bug.
#[track_caller]
pub(crate) fn entry<T>(table: &[T], index: usize) -> &T {
    let len = table.len();
    table.get(index).unwrap_or_else(|| panic!("entry {index} of {len}"))
}

/// An entry of a table, for writing.
///
/// # Panics
/// As [`entry`].
#[track_caller]
pub(crate) fn entry_mut<T>(table: &mut [T], index: usize) -> &mut T {
    let len = table.len();
    table.get_mut(index).unwrap_or_else(|| panic!("entry {index} of {len}"))
}

/// Writes bytes into a block.
///
/// # Panics
/// The block ends before: the caller's bug.
#[track_caller]
pub(crate) fn put(block: &mut [u8], at: usize, bytes: &[u8]) {
    let (_, rest) = block.split_at_mut(at);
    let (place, _) = rest.split_at_mut(bytes.len());
    place.copy_from_slice(bytes);
}

/// A part of a block.
///
/// # Panics
/// The block ends before: the caller's bug.
#[track_caller]
pub(crate) fn part(block: &[u8], range: Range<usize>) -> &[u8] {
    let len = block.len();
    block.get(range).unwrap_or_else(|| panic!("a part behind the end of {len} bytes"))
}

/// A part of a block, for writing.
///
/// # Panics
/// As [`part`].
#[track_caller]
pub(crate) fn part_mut(block: &mut [u8], range: Range<usize>) -> &mut [u8] {
    let len = block.len();
    block.get_mut(range).unwrap_or_else(|| panic!("a part behind the end of {len} bytes"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_the_bytes_is_found_at_every_place() {
        for len in [0, 1, 255, 256, 257, 700] {
            let mut bytes = vec![0; len];
            assert_eq!((len_without_zeros(&bytes), is_zero(&bytes)), (0, true));
            for at in 0..len {
                bytes[at] = 7;
                assert_eq!((len_without_zeros(&bytes), is_zero(&bytes)), (at + 1, false));
                bytes[at / 2] = 0;
            }
        }
    }
}
