//! [`Compression`] of archives and layers.

use std::io::{self, Write};
use std::path::Path;

use cairn_base::names::Escaped;

use crate::error::{Error, Result};

/// Bytes written at a time.
pub(super) const BUFFER: usize = 1 << 18;
/// That of `zstd` without an option.
const ZSTD_LEVEL: i32 = 3;

/// How an archive is compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compression {
    /// Not at all.
    None,
    /// gzip, without a name and a time in its header.
    Gzip,
    /// zstd.
    Zstd,
}

impl Compression {
    /// What the end of a name says: `.gz`, `.tgz`, `.zst` or `.tzst`.
    ///
    /// # Errors
    /// It says that the file is of a form that is not written.
    pub fn of_name(path: &Path) -> Result<Self> {
        match path.extension().and_then(|end| end.to_str()) {
            Some("gz" | "tgz") => Ok(Self::Gzip),
            Some("zst" | "tzst") => Ok(Self::Zstd),
            Some(end @ ("xz" | "txz" | "bz2" | "tbz" | "tbz2" | "lz4" | "lzma" | "Z")) => {
                Err(Error::Usage(format!(
                    "{}: .{end} is not written: give .tar, .tar.gz or .tar.zst, or compress the \
                     stream",
                    path.escaped()
                )))
            }
            Some(end @ ("cpio" | "zip" | "7z" | "img" | "sqfs" | "squashfs")) => {
                Err(Error::Usage(format!(
                    "{}: .{end} is not written: the archive is a tar, so give .tar",
                    path.escaped()
                )))
            }
            _ => Ok(Self::None),
        }
    }
}

/// Passes what `fill` writes through a compressor.
///
/// # Errors
/// `fill` fails, or nothing can be written.
pub(super) fn compressed(
    compression: Compression,
    to: &mut dyn Write,
    failed: &dyn Fn(io::Error) -> Error,
    fill: &mut dyn FnMut(&mut dyn Write) -> Result<()>,
) -> Result<()> {
    match compression {
        Compression::None => fill(to)?,
        Compression::Gzip => {
            let mut encoder = flate2::write::GzEncoder::new(&mut *to, flate2::Compression::new(6));
            fill(&mut encoder)?;
            encoder.finish().map_err(failed)?;
        }
        Compression::Zstd => {
            let mut encoder = zstd::Encoder::new(&mut *to, ZSTD_LEVEL).map_err(failed)?;
            encoder.include_checksum(true).map_err(failed)?;
            fill(&mut encoder)?;
            encoder.finish().map_err(failed)?;
        }
    }
    to.flush().map_err(failed)
}
