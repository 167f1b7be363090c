//! `SEEK_DATA` and `SEEK_HOLE` over a block map.

use crate::{Error, Seek};

/// Finds the next data or the next hole at or after `offset` in a file of `size` bytes. `classify`
/// tells whether there is data at an offset, and up to which offset this holds.
///
/// # Errors
/// [`Error::NoData`] if `offset` is at or beyond the end, or no data follows. Those of `classify`.
pub fn seek<E: From<Error>>(
    what: Seek,
    offset: u64,
    size: u64,
    mut classify: impl FnMut(u64) -> Result<(bool, u64), E>,
) -> Result<u64, E> {
    if offset >= size {
        return Err(Error::NoData.into());
    }
    let mut at = offset;
    while at < size {
        let (is_data, end) = classify(at)?;
        if is_data == (what == Seek::Data) {
            return Ok(at);
        }
        at = end;
    }
    if what == Seek::Hole { Ok(size) } else { Err(Error::NoData.into()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Data in bytes 10 to 20 and from 30 on.
    fn classify(at: u64) -> Result<(bool, u64), Error> {
        Ok(match at {
            0..10 => (false, 10),
            10..20 => (true, 20),
            20..30 => (false, 30),
            _ => (true, u64::MAX),
        })
    }

    fn found(what: Seek, offset: u64, size: u64) -> Option<u64> {
        match seek(what, offset, size, classify) {
            Ok(at) => Some(at),
            Err(Error::NoData) => None,
            Err(error) => panic!("{error}"),
        }
    }

    #[test]
    fn data_and_holes_are_found_from_any_offset() {
        for (offset, data, hole) in [(0, 10, 0), (12, 12, 20), (20, 30, 20), (35, 35, 40)] {
            assert_eq!(found(Seek::Data, offset, 40), Some(data), "data from {offset}");
            assert_eq!(found(Seek::Hole, offset, 40), Some(hole), "hole from {offset}");
        }
    }

    #[test]
    fn there_is_no_data_after_the_last_and_nothing_beyond_the_end() {
        assert_eq!(found(Seek::Data, 20, 30), None);
        assert_eq!(found(Seek::Hole, 20, 30), Some(20));
        for what in [Seek::Data, Seek::Hole] {
            assert_eq!(found(what, 40, 40), None);
            assert_eq!(found(what, 0, 0), None);
        }
    }
}
