//! Parts of a buffer at places that Cairn has computed or checked. Places that come from the disk
//! unchecked never come here.

use zerocopy::{FromBytes, IntoBytes, KnownLayout, Unaligned};

/// `len` bytes at `at`, for writing.
///
/// # Panics
/// The buffer ends before: the caller's bug.
#[track_caller]
pub(super) fn part(bytes: &mut [u8], at: usize, len: usize) -> &mut [u8] {
    let size = bytes.len();
    let end = at.checked_add(len);
    let found = end.and_then(|end| bytes.get_mut(at..end));
    found.unwrap_or_else(|| panic!("{len} bytes at {at} of {size}"))
}

/// Copies `from` to `at`.
///
/// # Panics
/// As [`part`].
#[track_caller]
pub(super) fn put(bytes: &mut [u8], at: usize, from: &[u8]) {
    part(bytes, at, from.len()).copy_from_slice(from);
}

/// The structure at `at`, for writing.
///
/// # Panics
/// As [`part`].
#[track_caller]
pub(super) fn structure<T: FromBytes + IntoBytes + KnownLayout + Unaligned>(
    bytes: &mut [u8],
    at: usize,
) -> &mut T {
    let place = part(bytes, at, size_of::<T>());
    T::mut_from_bytes(place).unwrap_or_else(|_| panic!("a structure at {at}"))
}
