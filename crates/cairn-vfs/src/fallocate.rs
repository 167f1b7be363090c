//! What every mode of `fallocate` checks before it looks at the file, as Linux's `vfs_fallocate`.

use crate::error::{Error, Result};

/// The end of a range of bytes. `largest` is the largest size of a file on the volume.
///
/// # Errors
/// [`Error::Invalid`] if the range is empty, [`Error::TooLarge`] if it ends beyond `largest`: also
/// a hole is not punched there.
pub fn end_of_range(offset: u64, len: u64, largest: u64) -> Result<u64> {
    if len == 0 {
        return Err(Error::Invalid("fallocate of an empty range"));
    }
    offset.checked_add(len).filter(|end| *end <= largest).ok_or(Error::TooLarge)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_ends_within_the_largest_file() {
        assert!(matches!(end_of_range(5, 3, 8), Ok(8)));
        for (offset, len) in [(5, 4), (9, 1), (u64::MAX, 1), (1, u64::MAX)] {
            assert!(matches!(end_of_range(offset, len, 8), Err(Error::TooLarge)));
        }
        assert!(matches!(end_of_range(5, 0, 8), Err(Error::Invalid(_))));
    }
}
