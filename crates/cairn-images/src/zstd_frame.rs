//! Frames of zstd, decoded with a bound.

use std::io::{self, BufRead, Read};

/// The largest window, as a power of two: what `zstd -d` takes without an option. A decoder holds a
/// window in memory.
pub(crate) const WINDOW_LOG_MAX: u32 = 27;

/// A decoder of the first frame only, whose checksum is compared.
#[cfg(feature = "compression")]
pub(crate) fn decoder<R: BufRead>(from: R, window_log: u32) -> io::Result<impl Read> {
    let mut decoder = zstd::stream::read::Decoder::with_buffer(from)?.single_frame();
    decoder.window_log_max(window_log)?;
    Ok(decoder)
}

/// What a build without the feature `compression` says of every frame.
#[cfg(not(feature = "compression"))]
pub(crate) fn decoder<R: BufRead>(_: R, _: u32) -> io::Result<impl Read> {
    Err::<io::Empty, _>(io::Error::new(io::ErrorKind::Unsupported, MISSING))
}

#[cfg(not(feature = "compression"))]
pub(crate) const MISSING: &str =
    "this build has no decompression: build Cairn with its feature `compression`";

/// Decodes the first frame of `packed`, which gives exactly `len` bytes with a window of at most
/// two to the power of `window_log` bytes.
///
/// # Errors
/// Why it does not.
pub(crate) fn decode(packed: &[u8], len: usize, window_log: u32) -> Result<Vec<u8>, String> {
    let failed = |error: io::Error| error.to_string();
    let mut decoder = decoder(packed, window_log).map_err(failed)?;
    let mut out = vec![0; len];
    let mut done = 0;
    while done < len {
        match decoder.read(&mut out[done..]).map_err(failed)? {
            0 => return Err(format!("it gives {done} bytes instead of {len}")),
            some => done += some,
        }
    }
    match decoder.read(&mut [0]).map_err(failed)? {
        0 => Ok(out),
        _ => Err(format!("it gives more than {len} bytes")),
    }
}

#[cfg(all(test, feature = "compression"))]
mod tests {
    use super::*;

    #[test]
    fn a_frame_gives_what_it_should_or_says_why_not() {
        let mut packed = zstd::stream::encode_all(&[7_u8; 5000][..], 1).unwrap();
        let whole = packed.len();
        packed.extend([0; 100]);
        assert_eq!(decode(&packed, 5000, 20).unwrap(), [7; 5000]);
        assert!(decode(&packed, 4999, 20).unwrap_err().contains("more than 4999"));
        assert!(decode(&packed, 5001, 20).unwrap_err().contains("5000 bytes instead of 5001"));
        assert!(decode(&packed[..whole / 2], 5000, 20).is_err());
    }
}
