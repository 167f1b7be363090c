//! The algorithms: LZO (with and without run lengths), LZ4, Zstandard. All are safe on any input,
//! and write into a buffer of the cluster's size.

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

#[cfg(feature = "compression")]
use zstd::zstd_safe::DCtx;

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

#[cfg(not(feature = "compression"))]
const MISSING: &str =
    "this build has no LZ4 and Zstandard: build Cairn with its feature `compression`";

#[cfg(not(feature = "compression"))]
fn unpack_lz4(_: &[u8], _: usize) -> Result<Vec<u8>, &'static str> {
    Err(MISSING)
}

#[cfg(not(feature = "compression"))]
fn unpack_zstd(_: &[u8], _: usize) -> Result<Vec<u8>, &'static str> {
    Err(MISSING)
}

#[cfg(feature = "compression")]
fn unpack_lz4(packed: &[u8], limit: usize) -> Result<Vec<u8>, &'static str> {
    let mut out = vec![0; limit];
    let len = lz4_flex::block::decompress_into(packed, &mut out)
        .map_err(|_| "the LZ4 data is damaged")?;
    out.truncate(len);
    Ok(out)
}

#[cfg(feature = "compression")]
fn unpack_zstd(packed: &[u8], limit: usize) -> Result<Vec<u8>, &'static str> {
    if packed.is_empty() {
        return Err("the Zstandard data is missing");
    }
    let mut context = DCtx::try_create().ok_or("there is no memory for the Zstandard decoder")?;
    let mut out = vec![0; limit];
    let len = context
        .decompress(out.as_mut_slice(), packed)
        .map_err(|_| "the Zstandard data is damaged")?;
    out.truncate(len);
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(feature = "compression")]
    #[test]
    fn zstd_frames_are_unpacked() {
        let packed = zstd::encode_all(&[b'a'; 5000][..], 3).unwrap();
        assert_eq!(unpack(2, &packed, 16_384).unwrap(), [b'a'; 5000]);
        assert!(unpack(2, &packed, 4999).is_err());
        assert!(unpack(2, &packed[..packed.len() / 2], 16_384).is_err());
        assert!(unpack(2, &[], 16).is_err());
    }

    #[cfg(feature = "compression")]
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
