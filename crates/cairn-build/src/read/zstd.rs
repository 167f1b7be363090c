//! A stream of zstd frames: they follow each other, with frames between them that are skipped. The
//! checksum of a frame is compared.

use std::io::{self, BufRead, Read};

use zstd::stream::read::Decoder;

/// Logarithm of the largest window: what `zstd -d` takes without an option. A decoder holds a
/// window in memory.
const WINDOW_LOG_MAX: u32 = 27;
/// libzstd's words for a frame with a larger window.
const LARGE_WINDOW: &str = "too much memory";

/// All frames of a stream.
pub(super) struct Zstd<R: BufRead>(Decoder<'static, R>);

impl<R: BufRead> Zstd<R> {
    pub(super) fn new(from: R) -> io::Result<Self> {
        let mut decoder = Decoder::with_buffer(from)?;
        decoder.window_log_max(WINDOW_LOG_MAX)?;
        Ok(Self(decoder))
    }
}

impl<R: BufRead> Read for Zstd<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.read(buffer).map_err(|error| match error.to_string().contains(LARGE_WINDOW) {
            true => io::Error::new(
                io::ErrorKind::Unsupported,
                "compressed with a window of more than 128 MiB (zstd --long): decompress it \
                 first, as in zstd -dc --long=31 FILE",
            ),
            false => error,
        })
    }
}
