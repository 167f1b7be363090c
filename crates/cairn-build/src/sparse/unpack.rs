//! Makes an image of sparse images.

use std::fs::File;
use std::io::{self, BufReader, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use cairn_base::names::Escaped;

use super::crc::Crc;
use super::format::{CHUNK, Chunk, HEADER, Header, Kind};
use crate::error::{Error, Result};
use crate::output::{STDOUT, Unfinished, is_stdout, room};

/// Bytes written at a time.
const PIECE: u64 = 1 << 20;

/// What to unpack.
#[derive(Debug)]
pub struct UnpackOptions {
    /// The sparse images: one, or the parts of one. `-` is standard input.
    pub inputs: Vec<PathBuf>,
    /// The image; `-` is standard output.
    pub output: PathBuf,
    /// Replaces a file that exists.
    pub overwrite: bool,
}

/// Makes the image. It gets its name when it is whole. What nobody cares about becomes holes.
///
/// # Errors
/// A sparse image is damaged or cannot be read, the host has no room, or the output cannot be
/// written.
pub fn unpack(options: &UnpackOptions) -> Result<()> {
    let is_stream = is_stdout(&options.output);
    let output = match is_stream {
        true => Unfinished::hidden()?,
        false => Unfinished::create(&options.output, options.overwrite)?,
    };
    let mut size = None;
    for input in &options.inputs {
        let name = if input == Path::new("-") { "standard input".into() } else { input.escaped() };
        let from: Box<dyn Read> = if input == Path::new("-") {
            Box::new(io::stdin().lock())
        } else {
            let file = File::open(input).map_err(|error| Error::host(input, error))?;
            output.refuse_source(input, &file)?;
            Box::new(file)
        };
        let mut unpack = Unpack {
            name,
            from: BufReader::with_capacity(1 << 18, from),
            to: output.file(),
            path: &options.output,
        };
        let its = unpack.image(size)?;
        size = Some(its);
    }
    match is_stream {
        true => output.stream(&mut io::stdout().lock(), Path::new(STDOUT)),
        false => output.finish(),
    }
}

struct Unpack<'a> {
    name: String,
    from: BufReader<Box<dyn Read>>,
    to: &'a File,
    path: &'a Path,
}

impl Unpack<'_> {
    fn failed(&self, why: impl ToString) -> Error {
        Error::source(&self.name, why.to_string())
    }

    fn read(&mut self, buffer: &mut [u8]) -> Result<()> {
        self.from.read_exact(buffer).map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof => self.failed("is truncated: copy it again, whole"),
            _ => Error::host(&self.name, error),
        })
    }

    fn skip(&mut self, len: u16) -> Result<()> {
        let mut rest = vec![0; len.into()];
        self.read(&mut rest)
    }

    /// Unpacks the image, whose size must be `expected`. Returns its size.
    fn image(&mut self, expected: Option<u64>) -> Result<u64> {
        let mut bytes = [0; HEADER];
        let mut filled = 0;
        while let Some(rest) = bytes.get_mut(filled..).filter(|rest| !rest.is_empty()) {
            match self.from.read(rest) {
                Ok(0) => break,
                Ok(count) => filled += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(Error::host(&self.name, error)),
            }
        }
        let header = Header::decode(bytes.get(..filled).unwrap_or_default());
        let header = header.map_err(|why| self.failed(why))?;
        self.skip(header.header_len - HEADER as u16)?;
        let size = header.size();
        if expected.is_some_and(|expected| expected != size) {
            let expected = expected.unwrap_or(0);
            return Err(self.failed(format!("is of {size} bytes, the part before of {expected}")));
        }
        if expected.is_none() {
            self.to.set_len(size).map_err(|error| Error::host(self.path, error))?;
        }
        let (mut at, mut crc) = (0_u64, Crc::default());
        for number in 0..header.chunks {
            let mut bytes = [0; CHUNK];
            self.read(&mut bytes)?;
            let wrong = |why: String| format!("chunk {number}: {why}");
            let chunk = Chunk::decode(&bytes, &header);
            let chunk = chunk.map_err(|why| self.failed(wrong(format!("it {why}"))))?;
            self.skip(header.chunk_header_len - CHUNK as u16)?;
            let len = u64::from(chunk.blocks) * u64::from(header.block);
            if at + len > size {
                let why = wrong(format!("it ends at byte {}, behind the image", at + len));
                return Err(self.failed(why));
            }
            self.chunk(&chunk, at, len, &mut crc).map_err(|error| match error {
                Unpacked::Wrong(why) => self.failed(wrong(why)),
                Unpacked::Failed(error) => error,
            })?;
            at += len;
        }
        if at != size {
            return Err(self.failed(format!("its chunks have {at} bytes, its header says {size}")));
        }
        if header.checksum != 0 && header.checksum != crc.value() {
            return Err(self.failed("its checksum is wrong: it is damaged, copy it again"));
        }
        Ok(size)
    }

    fn chunk(&mut self, chunk: &Chunk, at: u64, len: u64, crc: &mut Crc) -> Result<(), Unpacked> {
        match chunk.kind {
            Kind::Raw => {
                self.has_room(len)?;
                let mut piece = Vec::new();
                let mut done = 0;
                while done < len {
                    let count = (len - done).min(PIECE);
                    piece.resize(usize::try_from(count).unwrap_or(0), 0);
                    self.read(&mut piece)?;
                    crc.add(&piece);
                    self.write(at + done, &piece)?;
                    done += count;
                }
            }
            Kind::Fill => {
                let mut word = [0; 4];
                self.read(&mut word)?;
                crc.repeat(word, len / 4);
                self.fill(word, at, len)?;
            }
            Kind::DontCare => crc.repeat([0; 4], len / 4),
            Kind::Crc => {
                let mut bytes = [0; 4];
                self.read(&mut bytes)?;
                if u32::from_le_bytes(bytes) != crc.value() {
                    let why = "the checksum of what is before it is wrong: copy the file again";
                    return Err(Unpacked::Wrong(why.into()));
                }
            }
        }
        Ok(())
    }

    /// Repeats four bytes. Zeros become a hole; a part before may have had other bytes there.
    fn fill(&mut self, word: [u8; 4], at: u64, len: u64) -> Result<()> {
        if word == [0; 4] {
            let punch =
                rustix::fs::FallocateFlags::PUNCH_HOLE | rustix::fs::FallocateFlags::KEEP_SIZE;
            if len == 0 || rustix::fs::fallocate(self.to, punch, at, len).is_ok() {
                return Ok(());
            }
        }
        self.has_room(len)?;
        let count = usize::try_from(len.min(PIECE) / 4).unwrap_or(0);
        let piece = word.repeat(count);
        let mut done = 0;
        while done < len {
            let part = usize::try_from((len - done).min(PIECE)).unwrap_or(0);
            self.write(at + done, piece.get(..part).unwrap_or_default())?;
            done += part as u64;
        }
        Ok(())
    }

    /// Refuses what the host has no room for, before it is full.
    fn has_room(&self, len: u64) -> Result<()> {
        match room(self.to) {
            Some(room) if room < len => Err(Error::Source {
                source_name: self.name.clone(),
                why: format!(
                    "the image needs {len} more bytes, the host has {room} left: make room"
                ),
            }),
            _ => Ok(()),
        }
    }

    fn write(&mut self, at: u64, bytes: &[u8]) -> Result<()> {
        let mut to = self.to;
        let written = to.seek(SeekFrom::Start(at)).and_then(|_| to.write_all(bytes));
        written.map_err(|error| Error::host(self.path, error))
    }
}

/// Why a chunk was not unpacked.
enum Unpacked {
    Wrong(String),
    Failed(Error),
}

impl From<Error> for Unpacked {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}
