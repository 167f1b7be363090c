//! Makes a sparse image: one pass finds the chunks, a second one writes them.

use std::fs::File;
use std::io::{self, BufWriter, Read, Seek, Write};
use std::ops::Range;
use std::os::unix::fs::{FileExt, FileTypeExt};
use std::path::{Path, PathBuf};

use cairn_base::names::Escaped;

use super::crc::Crc;
use super::format::{self, CHUNK, Chunk, HEADER, Header, Kind};
use crate::error::{Error, Result};
use crate::extents::next_data;
use crate::output::{STDOUT, Unfinished, is_stdout};

/// Bytes read at a time.
const PIECE: u64 = 1 << 20;
/// Most bytes of a chunk that stands as it is: tools read a chunk into memory.
const RAW_MAX: u64 = 64 << 20;

/// What to pack.
#[derive(Debug)]
pub struct PackOptions {
    /// The image: a regular file or a block device.
    pub image: PathBuf,
    /// The sparse image; `-` is standard output.
    pub output: PathBuf,
    /// Bytes of a block: a multiple of 4, at most 64 MiB.
    pub block: u32,
    /// Adds a checksum of the image.
    pub crc: bool,
    /// Nobody cares about what a hole of the file holds. Otherwise it holds zeros.
    pub holes_do_not_matter: bool,
    /// Replaces a file that exists.
    pub overwrite: bool,
}

/// Makes a sparse image of an image. It gets its name when it is whole.
///
/// # Errors
/// The image cannot be read, is a sparse image already, or the output cannot be written.
pub fn pack(options: &PackOptions) -> Result<()> {
    let failed = |error| Error::host(&options.image, error);
    let mut image = File::open(&options.image).map_err(failed)?;
    let kind = image.metadata().map_err(failed)?;
    if !kind.is_file() && !kind.file_type().is_block_device() {
        let why = "is neither a file nor a block device: name an image";
        return Err(Error::source(options.image.escaped(), why));
    }
    let size = image.seek(io::SeekFrom::End(0)).map_err(failed)?;
    let mut start = Vec::new();
    image.rewind().map_err(failed)?;
    (&image).take(HEADER as u64).read_to_end(&mut start).map_err(failed)?;
    if format::is_sparse(&start) {
        let why = "is a sparse image already: cairn unsparse makes an image of it";
        return Err(Error::source(options.image.escaped(), why));
    }
    let all = 0..u64::MAX;
    let free = if options.holes_do_not_matter { std::slice::from_ref(&all) } else { &[] };
    let form = Form { block: options.block, crc: options.crc, free };
    if is_stdout(&options.output) {
        return write(&image, size, form, &mut io::stdout().lock(), Path::new(STDOUT));
    }
    let output = Unfinished::create(&options.output, options.overwrite)?;
    output.refuse_source(&options.image, &image)?;
    write(&image, size, form, &mut output.file(), &options.output)?;
    output.finish()
}

/// How an image is packed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Form<'a> {
    pub(crate) block: u32,
    pub(crate) crc: bool,
    /// Holes in these ranges do not matter. Other holes hold zeros.
    pub(crate) free: &'a [Range<u64>],
}

/// What blocks are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Is {
    Raw,
    Fill([u8; 4]),
    DontCare,
}

/// Blocks of one kind.
#[derive(Clone, Copy, Debug)]
struct Run {
    is: Is,
    blocks: u32,
}

/// Writes the first `size` bytes of a file as a sparse image.
///
/// # Errors
/// The file cannot be read, is too large, or `to` cannot be written.
pub(crate) fn write(
    image: &File,
    size: u64,
    form: Form<'_>,
    to: &mut dyn Write,
    name: &Path,
) -> Result<()> {
    let (runs, checksum) = runs(image, size, form)?;
    let failed = |error| Error::host(name, error);
    let blocks = runs.iter().map(|run| u64::from(run.blocks)).sum::<u64>();
    let chunks = runs.len() as u64 + u64::from(form.crc);
    let (Ok(blocks), Ok(chunks)) = (u32::try_from(blocks), u32::try_from(chunks)) else {
        return Err(too_large(form.block));
    };
    let header = Header {
        header_len: HEADER as u16,
        chunk_header_len: CHUNK as u16,
        block: form.block,
        blocks,
        chunks,
        checksum: if form.crc { checksum.value() } else { 0 },
    };
    let mut to = BufWriter::with_capacity(1 << 18, to);
    to.write_all(&header.encode()).map_err(failed)?;
    let mut at = 0_u64;
    for run in runs {
        let bytes = u64::from(run.blocks) * u64::from(form.block);
        let (kind, payload) = match run.is {
            Is::Raw => (Kind::Raw, u32::try_from(bytes).map_err(|_| too_large(form.block))?),
            Is::Fill(_) => (Kind::Fill, 4),
            Is::DontCare => (Kind::DontCare, 0),
        };
        let chunk = Chunk { kind, blocks: run.blocks, payload };
        to.write_all(&chunk.encode()).map_err(failed)?;
        match run.is {
            Is::Raw => copy(image, at, bytes, size, &mut to, name)?,
            Is::Fill(word) => to.write_all(&word).map_err(failed)?,
            Is::DontCare => {}
        }
        at += bytes;
    }
    if form.crc {
        let chunk = Chunk { kind: Kind::Crc, blocks: 0, payload: 4 };
        to.write_all(&chunk.encode()).map_err(failed)?;
        to.write_all(&checksum.value().to_le_bytes()).map_err(failed)?;
    }
    to.flush().map_err(failed)
}

fn too_large(block: u32) -> Error {
    Error::Usage(format!("the image has too many blocks of {block} bytes: give larger ones"))
}

/// Copies bytes of the image. Behind its end are zeros.
fn copy(
    image: &File,
    from: u64,
    bytes: u64,
    size: u64,
    to: &mut dyn Write,
    name: &Path,
) -> Result<()> {
    let mut piece = Vec::new();
    let (mut at, end) = (from, from.saturating_add(bytes));
    while at < end {
        let len = (end - at).min(PIECE);
        read(image, at, len, size, &mut piece)?;
        to.write_all(&piece).map_err(|error| Error::host(name, error))?;
        at += len;
    }
    Ok(())
}

fn read(image: &File, at: u64, len: u64, size: u64, piece: &mut Vec<u8>) -> Result<()> {
    piece.clear();
    piece.resize(usize::try_from(len).unwrap_or(0), 0);
    let there = usize::try_from(size.saturating_sub(at).min(len)).unwrap_or(0);
    let part = piece.get_mut(..there).unwrap_or_default();
    image.read_exact_at(part, at).map_err(|error| Error::host("the image", error))
}

/// The runs of an image, and its checksum if that is asked for.
fn runs(image: &File, size: u64, form: Form<'_>) -> Result<(Vec<Run>, Crc)> {
    let block = u64::from(form.block);
    let failed = |error| Error::host("the image", error);
    if size.div_ceil(block) > u64::from(u32::MAX) {
        return Err(too_large(form.block));
    }
    let (mut runs, mut crc) = (Runs { runs: Vec::new(), block }, Crc::default());
    let end = size.next_multiple_of(block);
    let pieces = PIECE.next_multiple_of(block);
    let (mut at, mut piece) = (0, Vec::new());
    while at < end {
        // In whole blocks: one that is partly a hole is read.
        let data = next_data(image, at, size).map_err(failed)?;
        let first = data.as_ref().map_or(end, |data| (data.start / block * block).max(at));
        runs.hole(at..first, form.free);
        if form.crc {
            crc.repeat([0; 4], (first - at) / 4);
        }
        at = first;
        let last = data.map_or(at, |data| data.end.next_multiple_of(block));
        while at < last {
            let len = (last - at).min(pieces);
            read(image, at, len, size, &mut piece)?;
            piece.chunks_exact(form.block as usize).for_each(|block| runs.push(what(block), 1));
            if form.crc {
                crc.add(&piece);
            }
            at += len;
        }
    }
    Ok((runs.runs, crc))
}

/// What a block is.
fn what(block: &[u8]) -> Is {
    let (words, _) = block.as_chunks::<4>();
    match words.split_first() {
        Some((first, rest)) if rest.iter().all(|word| word == first) => Is::Fill(*first),
        _ => Is::Raw,
    }
}

/// Runs that grow.
struct Runs {
    runs: Vec<Run>,
    block: u64,
}

impl Runs {
    /// Adds a hole of whole blocks. Blocks of it that are free do not matter.
    fn hole(&mut self, hole: Range<u64>, free: &[Range<u64>]) {
        let first = free.partition_point(|range| range.end <= hole.start);
        let mut at = hole.start;
        for range in free.iter().skip(first).take_while(|range| range.start < hole.end) {
            let start = range.start.max(at).next_multiple_of(self.block);
            let end = range.end.min(hole.end) / self.block * self.block;
            if start < end {
                self.push(Is::Fill([0; 4]), (start - at) / self.block);
                self.push(Is::DontCare, (end - start) / self.block);
                at = end;
            }
        }
        self.push(Is::Fill([0; 4]), (hole.end - at) / self.block);
    }

    fn push(&mut self, is: Is, blocks: u64) {
        let most = match is {
            Is::Raw => (RAW_MAX / self.block).max(1),
            _ => u64::from(u32::MAX),
        };
        let mut left = blocks;
        if let Some(last) = self.runs.last_mut().filter(|last| last.is == is) {
            let more = left.min(most.saturating_sub(last.blocks.into()));
            last.blocks += u32::try_from(more).unwrap_or(0);
            left -= more;
        }
        while left > 0 {
            let blocks = left.min(most);
            self.runs.push(Run { is, blocks: u32::try_from(blocks).unwrap_or(0) });
            left -= blocks;
        }
    }
}
