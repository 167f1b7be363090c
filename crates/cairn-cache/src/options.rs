//! Mount options of the cache. All filesystems spell them alike.

use cairn_base::options::parse_size;

use crate::file::{MAX_FOLIO, MIN_FOLIO};

/// Smallest value of `cache=`, in bytes.
const MIN_CACHE: usize = 1 << 20;

/// The value of `cache=`: memory for folios and metadata buffers, in bytes.
///
/// # Errors
/// A message that names the value and says which values are valid.
pub fn parse_cache(value: &str) -> Result<usize, String> {
    bytes(value)
        .filter(|bytes| *bytes >= MIN_CACHE)
        .ok_or_else(|| format!("cache={value}: give a size of at least 1M, such as 64M or 1G"))
}

/// The value of `max_folio=`: the size of the largest folio, in bytes.
///
/// # Errors
/// As [`parse_cache`].
pub fn parse_max_folio(value: &str) -> Result<usize, String> {
    bytes(value)
        .filter(|bytes| bytes.is_power_of_two() && (MIN_FOLIO..=MAX_FOLIO).contains(bytes))
        .ok_or_else(|| format!("max_folio={value}: give a power of two from 4K to 2M, such as 64K"))
}

fn bytes(value: &str) -> Option<usize> {
    parse_size(value).and_then(|bytes| usize::try_from(bytes).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_taken_within_their_limits() {
        assert_eq!((parse_cache("1M"), parse_cache("262144K")), (Ok(1 << 20), Ok(256 << 20)));
        assert_eq!((parse_max_folio("4K"), parse_max_folio("65536")), (Ok(4096), Ok(65_536)));
        for bad in ["", "1", "1023K", "x", "1MM", "99999999999999G"] {
            assert!(parse_cache(bad).unwrap_err().starts_with(&format!("cache={bad}: give")));
        }
        for bad in ["", "0", "2K", "12K", "4M", "K"] {
            assert!(
                parse_max_folio(bad).unwrap_err().contains("a power of two from 4K to 2M"),
                "{bad}"
            );
        }
    }
}
