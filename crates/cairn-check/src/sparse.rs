//! [`Sparse`]: a list with a place for each number, which takes memory only where it is used.
//!
//! Invariant: an element that nobody has asked to change is the default value. There is no lock:
//! elements are atomics or cells of their own.

use std::sync::OnceLock;

use cairn_base::memory::{self, NoMemory};

/// Elements of a piece.
const PIECE: usize = 2048;

/// A list of `T`, in pieces that are made when one of their elements is changed.
#[derive(Debug)]
pub struct Sparse<T> {
    pieces: Vec<OnceLock<Box<[T]>>>,
    len: u64,
}

impl<T: Default> Sparse<T> {
    /// A list of `len` default elements.
    ///
    /// # Errors
    /// There is no memory for the table of pieces: 16 bytes for 2048 elements.
    pub fn new(len: u64) -> Result<Self, NoMemory> {
        const WHAT: &str = "the table of a check";
        let pieces = usize::try_from(len.div_ceil(cairn_base::units::as_u64(PIECE)));
        let pieces = pieces.map_err(|_| NoMemory { what: WHAT, bytes: len })?;
        let mut table = memory::list(WHAT, pieces)?;
        table.resize_with(pieces, OnceLock::new);
        Ok(Self { pieces: table, len })
    }

    /// Number of elements.
    #[must_use]
    pub const fn len(&self) -> u64 {
        self.len
    }

    /// True if there are none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The element, if its piece was made. Without a piece it is the default value.
    #[must_use]
    pub fn get(&self, number: u64) -> Option<&T> {
        let (piece, at) = self.split(number)?;
        self.pieces.get(piece)?.get()?.get(at)
    }

    /// The element for a change. `None` beyond the end.
    #[must_use]
    pub fn at(&self, number: u64) -> Option<&T> {
        let (piece, at) = self.split(number)?;
        let made = || (0..PIECE).map(|_| T::default()).collect();
        self.pieces.get(piece)?.get_or_init(made).get(at)
    }

    /// The elements of all pieces, with their numbers. Elements of a piece that were not changed
    /// are among them.
    pub fn iter(&self) -> impl Iterator<Item = (u64, &T)> {
        let made = (0_u64..).zip(&self.pieces).filter_map(|(n, piece)| Some((n, piece.get()?)));
        made.flat_map(|(n, piece)| {
            let first = n.saturating_mul(cairn_base::units::as_u64(PIECE));
            (first..self.len).zip(piece)
        })
    }

    /// As [`Sparse::iter`], from `start` to before `end`.
    pub fn range(&self, start: u64, end: u64) -> impl Iterator<Item = (u64, &T)> {
        let piece = cairn_base::units::as_u64(PIECE);
        let end = end.min(self.len);
        let pieces = start.checked_div(piece).unwrap_or(0)..end.div_ceil(piece);
        pieces.flat_map(move |number| {
            let first = number.saturating_mul(piece);
            let skip = usize::try_from(start.saturating_sub(first)).unwrap_or(usize::MAX);
            let made = usize::try_from(number).ok().and_then(|n| self.pieces.get(n)?.get());
            let rest = made.and_then(|made| made.get(skip..)).unwrap_or_default();
            (first.max(start)..end).zip(rest)
        })
    }

    /// The number of the first element, at or behind `number`, whose piece was made.
    #[must_use]
    pub fn next_made(&self, number: u64) -> Option<u64> {
        let (piece, _) = self.split(number)?;
        if self.pieces.get(piece)?.get().is_some() {
            return Some(number);
        }
        let rest = self.pieces.get(piece..)?;
        let ahead = rest.iter().position(|piece| piece.get().is_some())?;
        let first = piece.saturating_add(ahead).saturating_mul(PIECE);
        Some(cairn_base::units::as_u64(first))
    }

    fn split(&self, number: u64) -> Option<(usize, usize)> {
        let number = usize::try_from(number).ok().filter(|_| number < self.len)?;
        Some((number.div_euclid(PIECE), number.rem_euclid(PIECE)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

    #[test]
    fn pieces_are_made_where_they_are_used() {
        let list = Sparse::<AtomicU32>::new(1 << 32).unwrap();
        assert!(list.get(5).is_none() && list.at(1 << 32).is_none());
        list.at((1 << 32) - 1).unwrap().store(7, Relaxed);
        list.at(3000).unwrap().store(8, Relaxed);
        assert_eq!(list.get(3000).unwrap().load(Relaxed), 8);
        assert_eq!(list.iter().filter(|(_, n)| n.load(Relaxed) != 0).count(), 2);
        assert_eq!(list.iter().count(), 2 * PIECE);
        let some = |start, end| list.range(start, end).map(|(n, _)| n).collect::<Vec<_>>();
        assert_eq!(some(2999, 3002), [2999, 3000, 3001]);
        assert_eq!(some(4094, 1 << 32).len(), 2 + PIECE);
        assert!(some(0, 2048).is_empty() && some(5, 5).is_empty());
        assert_eq!(list.next_made(0), Some(2048));
        assert_eq!(list.next_made(3000), Some(3000));
        assert_eq!(list.next_made(5000), Some((1 << 32) - PIECE as u64));
        assert_eq!(list.next_made(1 << 32), None);
        assert!(Sparse::<u32>::new(0).unwrap().is_empty());
    }

    #[test]
    fn the_end_need_not_be_that_of_a_piece() {
        let list = Sparse::<AtomicU32>::new(2049).unwrap();
        list.at(2048).unwrap().store(1, Relaxed);
        assert_eq!(list.iter().count(), 1);
        assert_eq!(list.len(), 2049);
    }
}
