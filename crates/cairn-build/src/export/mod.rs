//! [`export`]: an image, or whatever else can be a source, as a tar archive.
//!
//! The archive has the form of pax, its members stand in the order of the tree, and all that it
//! holds follows from the tree: the same source gives the same bytes.

mod tar;

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use crate::error::{Error, Result};
use crate::output::{self, Unfinished};
use crate::read::{Source, assemble};
use crate::rules::Rules;
use crate::store::Limits;

/// Bytes written at a time.
const BUFFER: usize = 1 << 18;

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
                     stream of `-o -`",
                    path.display()
                )))
            }
            Some(end @ ("cpio" | "zip" | "7z" | "img" | "sqfs" | "squashfs")) => {
                Err(Error::Usage(format!(
                    "{}: .{end} is not written: the archive is a tar, so give .tar",
                    path.display()
                )))
            }
            _ => Ok(Self::None),
        }
    }
}

/// What to export.
#[derive(Debug)]
pub struct ExportOptions {
    /// The archive; `-` is standard output.
    pub output: PathBuf,
    /// Sources, later ones over earlier ones.
    pub sources: Vec<Source>,
    /// Compression.
    pub compression: Compression,
    /// Changes of attributes, and what is left out.
    pub rules: Rules,
    /// Replaces an archive that exists.
    pub overwrite: bool,
}

/// Writes the archive. It gets its name when it is whole.
///
/// # Errors
/// A source cannot be read or is damaged, or the archive cannot be written.
pub fn export(mut options: ExportOptions) -> Result<()> {
    let rules = std::mem::take(&mut options.rules);
    let limits = Limits::UNBOUNDED;
    if options.output == Path::new("-") {
        let tree = assemble(&options.sources, rules, limits, std::env::temp_dir())?;
        let failed = |error| Error::host("standard output", error);
        return write(&tree, options.compression, io::stdout().lock(), &failed);
    }
    let output = Unfinished::create(&options.output, options.overwrite)?;
    let spool = output::directory(&options.output);
    let rules = Rules { own: output.own(), ..rules };
    let tree = assemble(&options.sources, rules, limits, spool)?;
    let failed = |error| Error::host(&options.output, error);
    let file: File = output.file().try_clone().map_err(failed)?;
    write(&tree, options.compression, file, &failed)?;
    output.finish()
}

/// Writes through a compressor.
fn write(
    tree: &crate::Tree,
    compression: Compression,
    to: impl Write,
    failed: &dyn Fn(io::Error) -> Error,
) -> Result<()> {
    let mut to = BufWriter::with_capacity(BUFFER, to);
    match compression {
        Compression::None => tar::write(tree, &mut to, failed)?,
        Compression::Gzip => {
            let mut encoder = flate2::write::GzEncoder::new(&mut to, flate2::Compression::new(6));
            tar::write(tree, &mut encoder, failed)?;
            encoder.finish().map_err(failed)?;
        }
        Compression::Zstd => {
            let mut frames = Frames { to: &mut to, piece: Vec::new() };
            tar::write(tree, &mut frames, failed)?;
            frames.end().map_err(failed)?;
        }
    }
    to.flush().map_err(failed)
}

/// Bytes of a zstd frame. Frames follow each other, so that memory is bounded.
const FRAME: usize = 8 << 20;

/// Compresses pieces of the archive as frames of their own.
struct Frames<W: Write> {
    to: W,
    piece: Vec<u8>,
}

impl<W: Write> Frames<W> {
    fn end(&mut self) -> io::Result<()> {
        if self.piece.is_empty() {
            return Ok(());
        }
        let level = ruzstd::encoding::CompressionLevel::Fastest;
        let frame = ruzstd::encoding::compress_to_vec(self.piece.as_slice(), level);
        self.piece.clear();
        self.to.write_all(&frame)
    }
}

impl<W: Write> Write for Frames<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let room = FRAME.saturating_sub(self.piece.len());
        let taken = bytes.get(..room.min(bytes.len())).unwrap_or_default();
        self.piece.extend_from_slice(taken);
        if self.piece.len() >= FRAME {
            self.end()?;
        }
        Ok(taken.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
