//! CRC-32 of an image, whose repeated blocks are not gone through byte by byte.

use crc32fast::Hasher;

/// The checksum of the bytes so far.
#[derive(Clone, Debug, Default)]
pub(super) struct Crc(Hasher);

impl Crc {
    pub(super) fn add(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// Adds `count` times these four bytes.
    pub(super) fn repeat(&mut self, word: [u8; 4], count: u64) {
        let mut power = Hasher::new();
        power.update(&word);
        let mut left = count;
        while left > 0 {
            if left & 1 == 1 {
                self.0.combine(&power);
            }
            power.combine(&power.clone());
            left >>= 1;
        }
    }

    pub(super) fn value(&self) -> u32 {
        self.0.clone().finalize()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repeated_bytes_have_the_checksum_of_all_of_them() {
        for count in [0_usize, 1, 2, 3, 7, 1000, 4096] {
            let mut crc = Crc::default();
            crc.add(b"before");
            crc.repeat(*b"\x01\x02\0\xff", count as u64);
            crc.add(b"behind");
            let whole = [&b"before"[..], &b"\x01\x02\0\xff".repeat(count), b"behind"].concat();
            assert_eq!(crc.value(), crc32fast::hash(&whole), "{count}");
        }
    }
}
