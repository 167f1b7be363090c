//! The algorithms: LZO (with and without run lengths), LZ4, Zstandard. All are safe on any input.

#![cfg_attr(
    not(test),
    deny(
        clippy::indexing_slicing,
        clippy::as_conversions,
        clippy::arithmetic_side_effects,
        clippy::unwrap_used,
        clippy::expect_used
    )
)]

use std::io::Read;

use cairn_base::units::as_u64;

use super::lzo;

/// Unpacks; the result has at most `limit` bytes.
pub(super) fn unpack(algorithm: u8, packed: &[u8], limit: usize) -> Result<Vec<u8>, &'static str> {
    match algorithm {
        0 | 3 => lzo::unpack(packed, limit),
        1 => unpack_lz4(packed, limit),
        2 => unpack_zstd(packed, limit),
        _ => Err("the algorithm is unknown"),
    }
}

fn unpack_lz4(packed: &[u8], limit: usize) -> Result<Vec<u8>, &'static str> {
    let mut out = vec![0; limit];
    let len = lz4_flex::block::decompress_into(packed, &mut out)
        .map_err(|_| "the LZ4 data is damaged")?;
    out.truncate(len);
    Ok(out)
}

fn unpack_zstd(packed: &[u8], limit: usize) -> Result<Vec<u8>, &'static str> {
    let damaged = "the Zstandard data is damaged";
    let decoder = ruzstd::decoding::StreamingDecoder::new(packed).map_err(|_| damaged)?;
    let mut out = Vec::with_capacity(limit);
    decoder.take(as_u64(limit)).read_to_end(&mut out).map_err(|_| damaged)?;
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zstd_frames_are_unpacked() {
        // `printf 'aaaa…' (100 bytes) | zstd`.
        let packed = ruzstd::encoding::compress_to_vec(
            &[b'a'; 5000][..],
            ruzstd::encoding::CompressionLevel::Fastest,
        );
        assert_eq!(unpack(2, &packed, 16_384).unwrap(), [b'a'; 5000]);
        assert_eq!(unpack(2, &packed, 100).unwrap().len(), 100);
        assert!(unpack(2, &packed[..packed.len() / 2], 16_384).is_err());
        assert!(unpack(2, &[], 16).is_err());
    }

    #[test]
    fn lz4_blocks_are_unpacked() {
        // Token: 1 literal, match of 4 + 15 + 80; offset 1; last sequence of 5 literals.
        let packed = [0x1f, b'a', 1, 0, 80, 0x50, b'b', b'c', b'd', b'e', b'f'];
        let mut right = vec![b'a'; 100];
        right.extend(b"bcdef");
        assert_eq!(unpack(1, &packed, 4096).unwrap(), right);
        assert!(unpack(1, &packed, 104).is_err());
        assert!(unpack(1, &[0x1f, b'a', 2, 0, 80], 4096).is_err());
    }

    #[test]
    fn unknown_algorithms_are_refused() {
        assert!(unpack(4, &[], 16).is_err());
    }
}
