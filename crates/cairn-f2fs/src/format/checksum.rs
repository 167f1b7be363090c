//! F2FS's checksum: reflected CRC-32 (polynomial 0xEDB88320). The caller gives the running value.
//! The sum is inverted neither at the start nor at the end.

/// The format's magic number, also the seed of superblock and checkpoint sums.
pub const MAGIC: u32 = 0xf2f5_2010;

/// Continues the sum `seed` over `data`.
#[must_use]
pub fn crc32(seed: u32, data: &[u8]) -> u32 {
    // The library inverts at both ends, as zlib does.
    let mut hasher = crc32fast::Hasher::new_with_initial(!seed);
    hasher.update(data);
    !hasher.finalize()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_the_catalogues_crc_without_inversions() {
        assert_eq!(!crc32(!0, b"123456789"), 0xcbf4_3926);
        assert_eq!(crc32(7, &[]), 7);
        assert_eq!(crc32(crc32(MAGIC, b"1234"), b"56789"), crc32(MAGIC, b"123456789"));
    }
}
