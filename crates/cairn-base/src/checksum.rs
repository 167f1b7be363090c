//! The checksums found on disk, all in raw form: the caller gives the seed, nothing is inverted on
//! the way in or out.

/// CRC-32C (Castagnoli, reflected) as Linux's `crc32c()` computes it: `seed` is the running value
/// itself.
#[must_use]
pub fn crc32c(seed: u32, data: &[u8]) -> u32 {
    !::crc32c::crc32c_append(!seed, data)
}

/// The running value from which `data` has led to `sum`: [`crc32c()`] backwards.
#[must_use]
pub fn crc32c_before(sum: u32, data: &[u8]) -> u32 {
    data.iter().rev().fold(sum, |sum, byte| {
        // A step to the right takes in the polynomial if it drops a 1: then the highest bit is set.
        let before = (0..8).fold(sum, |sum, _| match sum >> 31 {
            0 => sum << 1,
            _ => ((sum ^ CRC32C) << 1) | 1,
        });
        before ^ u32::from(*byte)
    })
}

/// The polynomial of CRC-32C, reflected.
const CRC32C: u32 = 0x82f6_3b78;

/// CRC-16 (ANSI/IBM, reflected polynomial 0xA001), used by ext4's `GDT_CSUM` group descriptors with
/// seed `!0`.
#[must_use]
pub fn crc16(seed: u16, data: &[u8]) -> u16 {
    data.iter()
        .fold(seed, |crc, byte| (crc >> 8) ^ CRC16[usize::from((crc ^ u16::from(*byte)) & 0xff)])
}

/// CRC-32 with polynomial 0x04C11DB7, most significant bit first: jbd2's legacy commit-block
/// checksum.
#[must_use]
pub fn crc32_be(seed: u32, data: &[u8]) -> u32 {
    data.iter()
        .fold(seed, |crc, byte| (crc << 8) ^ CRC32_BE[usize::from((crc >> 24) as u8 ^ *byte)])
}

const CRC16: [u16; 256] = {
    let mut table = [0_u16; 256];
    let mut index = 0;
    while index < 256 {
        let mut crc = index as u16;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 1 == 1 { (crc >> 1) ^ 0xa001 } else { crc >> 1 };
            bit += 1;
        }
        table[index] = crc;
        index += 1;
    }
    table
};

const CRC32_BE: [u32; 256] = {
    let mut table = [0_u32; 256];
    let mut index = 0;
    while index < 256 {
        let mut crc = (index as u32) << 24;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc >> 31 == 1 { (crc << 1) ^ 0x04c1_1db7 } else { crc << 1 };
            bit += 1;
        }
        table[index] = crc;
        index += 1;
    }
    table
};

#[cfg(test)]
mod tests {
    use super::*;

    const CHECK: &[u8] = b"123456789";

    /// The check values of the catalogue of parametrised CRC algorithms (CRC-32/ISCSI, CRC-16/ARC,
    /// CRC-16/MODBUS, CRC-32/MPEG-2, CRC-32/BZIP2).
    #[test]
    fn catalogue_vectors() {
        assert_eq!(crc32c(!0, CHECK), !0xe306_9283);
        assert_eq!(crc16(0, CHECK), 0xbb3d);
        assert_eq!(crc16(!0, CHECK), 0x4b37);
        assert_eq!(crc32_be(!0, CHECK), 0x0376_e6e7);
        assert_eq!(!crc32_be(!0, CHECK), 0xfc89_1918);
    }

    /// RFC 3720, appendix B.4.
    #[test]
    fn iscsi_vectors() {
        assert_eq!(!crc32c(!0, &[0; 32]), 0x8a91_36aa);
        assert_eq!(!crc32c(!0, &[0xff; 32]), 0x62a8_ab43);
        let ascending: Vec<u8> = (0..32).collect();
        assert_eq!(!crc32c(!0, &ascending), 0x46dd_794e);
    }

    #[test]
    fn a_sum_continues_from_any_cut() {
        for cut in 0..=CHECK.len() {
            let (head, tail) = CHECK.split_at(cut);
            assert_eq!(crc32c(crc32c(7, head), tail), crc32c(7, CHECK));
            assert_eq!(crc16(crc16(7, head), tail), crc16(7, CHECK));
            assert_eq!(crc32_be(crc32_be(7, head), tail), crc32_be(7, CHECK));
        }
    }

    #[test]
    fn a_sum_leads_back_to_its_seed() {
        for seed in [0, 1, 0x8000_0000, 0x1234_5678, !0] {
            assert_eq!(crc32c_before(crc32c(seed, CHECK), CHECK), seed);
        }
    }

    #[test]
    fn nothing_leaves_the_seed_alone() {
        assert_eq!((crc32c(5, &[]), crc16(5, &[]), crc32_be(5, &[])), (5, 5, 5));
    }
}
