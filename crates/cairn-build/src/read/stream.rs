//! [`Stream`]: the bytes of an archive, in order. An archive that is not compressed and lies in a
//! regular file is read in place, and its contents stay there.

use std::fs::File;
use std::io::{self, BufReader, Cursor, Read};
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use super::gzip::Gzip;
use super::zstd::Zstd;
use crate::store::{Keep, KeepError};

/// Bytes read ahead in place.
const WINDOW: usize = 1 << 14;
/// Bytes of a compressed stream that are read at a time.
const BUFFER: usize = 1 << 16;
/// Bytes that tell how a stream is compressed.
const MAGIC: u64 = 6;

/// The bytes of an archive.
pub(crate) enum Stream {
    /// A part of a file.
    Place(Place),
    /// What can be read only once.
    Pipe(Box<dyn Read>),
}

/// A part of a file that is read in place.
pub(crate) struct Place {
    file: Arc<File>,
    store: u32,
    at: u64,
    end: u64,
    window: Vec<u8>,
    window_at: u64,
}

impl Stream {
    /// `len` bytes at `at` of a store; decompressed, if they are compressed.
    ///
    /// # Errors
    /// They cannot be read, or are no valid stream.
    pub(crate) fn in_store(file: Arc<File>, store: u32, at: u64, len: u64) -> io::Result<Self> {
        let mut place = Place::new(file, store, at, len)?;
        let mut magic = Vec::new();
        (&mut place).take(MAGIC).read_to_end(&mut magic)?;
        place.at = at;
        match decoder(&magic, place)? {
            Ok(decoded) => Ok(Self::Pipe(decoded)),
            Err(place) => Ok(Self::Place(place)),
        }
    }

    /// `len` bytes at `at` of a store, as they are.
    ///
    /// # Errors
    /// There is no such place.
    pub(crate) fn stored(file: Arc<File>, store: u32, at: u64, len: u64) -> io::Result<Self> {
        Place::new(file, store, at, len).map(Self::Place)
    }

    /// Standard input or another stream; decompressed, if it is compressed.
    ///
    /// # Errors
    /// It cannot be read, or is no valid stream.
    pub(crate) fn pipe(mut from: impl Read + 'static) -> io::Result<Self> {
        let mut magic = Vec::new();
        (&mut from).take(MAGIC).read_to_end(&mut magic)?;
        let whole = Cursor::new(magic.clone()).chain(from);
        match decoder(&magic, whole)? {
            Ok(decoded) => Ok(Self::Pipe(decoded)),
            Err(whole) => Ok(Self::Pipe(Box::new(BufReader::with_capacity(BUFFER, whole)))),
        }
    }

    /// Shows `see` all bytes that are read from now on. What is read in place is not shown.
    pub(crate) fn watched(self, see: impl FnMut(&[u8]) + 'static) -> Self {
        match self {
            Self::Place(place) => Self::Place(place),
            Self::Pipe(from) => Self::Pipe(Box::new(Watched { from, see })),
        }
    }

    /// Puts bytes that were read back in front.
    pub(crate) fn unread(self, bytes: Vec<u8>) -> Self {
        match self {
            Self::Place(mut place) => {
                place.at = place.at.saturating_sub(bytes.len() as u64);
                Self::Place(place)
            }
            Self::Pipe(from) => Self::Pipe(Box::new(Cursor::new(bytes).chain(from))),
        }
    }

    /// Keeps the next `len` bytes for later. Returns the store and the offset in it.
    pub(crate) fn keep(
        &mut self,
        len: u64,
        stores: &mut impl Keep,
    ) -> Result<(u32, u64), KeepError> {
        match self {
            Self::Place(place) => {
                let at = place.at;
                place.skip(len).map_err(KeepError::Read)?;
                Ok((place.store, at))
            }
            Self::Pipe(from) => stores.keep(from, len),
        }
    }

    /// Leaves out the next `len` bytes.
    ///
    /// # Errors
    /// The stream ends before, or cannot be read.
    pub(crate) fn skip(&mut self, len: u64) -> io::Result<()> {
        match self {
            Self::Place(place) => place.skip(len),
            Self::Pipe(from) => {
                let skipped = io::copy(&mut from.take(len), &mut io::sink())?;
                if skipped == len { Ok(()) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
            }
        }
    }

    /// Leaves out the next `len` bytes, or those up to the end.
    ///
    /// # Errors
    /// The stream cannot be read.
    pub(crate) fn skip_up_to(&mut self, len: u64) -> io::Result<()> {
        io::copy(&mut self.take(len), &mut io::sink()).map(drop)
    }

    /// The next `len` bytes, in memory.
    ///
    /// # Errors
    /// As [`Stream::skip`].
    pub(crate) fn bytes(&mut self, len: usize) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        self.take(len as u64).read_to_end(&mut bytes)?;
        if bytes.len() == len { Ok(bytes) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
    }

    /// The next `len` bytes; none if the stream ends before them.
    ///
    /// # Errors
    /// It ends among them, or cannot be read.
    pub(crate) fn bytes_or_end(&mut self, len: usize) -> io::Result<Option<Vec<u8>>> {
        let mut bytes = Vec::new();
        self.take(len as u64).read_to_end(&mut bytes)?;
        match bytes.len() {
            0 => Ok(None),
            all if all == len => Ok(Some(bytes)),
            _ => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }

    /// Reads the rest. True if all of it is zeros.
    ///
    /// # Errors
    /// It cannot be read.
    pub(crate) fn is_zero_to_the_end(&mut self) -> io::Result<bool> {
        let mut buffer = vec![0; 1 << 16];
        loop {
            let count = match self.read(&mut buffer) {
                Ok(0) => return Ok(true),
                Ok(count) => count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            if buffer.get(..count).unwrap_or_default().iter().any(|byte| *byte != 0) {
                return Ok(false);
            }
        }
    }

    /// Reads what is behind the archive, so that a checksum at the end is compared, and the program
    /// that writes into a pipe can end.
    ///
    /// # Errors
    /// It cannot be read, or the checksum is wrong.
    pub(crate) fn drain(&mut self) -> io::Result<()> {
        match self {
            Self::Place(_) => Ok(()),
            Self::Pipe(from) => io::copy(from, &mut io::sink()).map(drop),
        }
    }
}

impl Read for Stream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Place(place) => place.read(buffer),
            Self::Pipe(from) => from.read(buffer),
        }
    }
}

impl Place {
    fn new(file: Arc<File>, store: u32, at: u64, len: u64) -> io::Result<Self> {
        let end = at.checked_add(len).ok_or(io::ErrorKind::InvalidInput)?;
        Ok(Self { file, store, at, end, window: Vec::with_capacity(WINDOW), window_at: at })
    }

    fn skip(&mut self, len: u64) -> io::Result<()> {
        let next = self.at.checked_add(len).filter(|next| *next <= self.end);
        self.at = next.ok_or(io::ErrorKind::UnexpectedEof)?;
        Ok(())
    }

    /// The bytes of the window from the present place on.
    fn ahead(&self) -> Option<&[u8]> {
        let skip = usize::try_from(self.at.checked_sub(self.window_at)?).ok()?;
        self.window.get(skip..).filter(|ahead| !ahead.is_empty())
    }
}

impl Read for Place {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let left = usize::try_from(self.end - self.at).unwrap_or(usize::MAX);
        let want = buffer.len().min(left);
        let Some(wanted) = buffer.get_mut(..want).filter(|wanted| !wanted.is_empty()) else {
            return Ok(0);
        };
        if wanted.len() >= WINDOW {
            let count = self.file.read_at(wanted, self.at)?;
            self.at += count as u64;
            return Ok(count);
        }
        if self.ahead().is_none() {
            self.window.resize(WINDOW.min(left), 0);
            let count = self.file.read_at(&mut self.window, self.at)?;
            self.window.truncate(count);
            self.window_at = self.at;
        }
        let ahead = self.ahead().unwrap_or_default();
        let count = ahead.len().min(wanted.len());
        wanted.iter_mut().zip(ahead).for_each(|(to, from)| *to = *from);
        self.at += count as u64;
        Ok(count)
    }
}

/// A stream whose bytes are seen on their way.
struct Watched<F> {
    from: Box<dyn Read>,
    see: F,
}

impl<F: FnMut(&[u8])> Read for Watched<F> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.from.read(buffer)?;
        (self.see)(buffer.get(..count).unwrap_or_default());
        Ok(count)
    }
}

/// A decoder, whose errors say what is damaged.
struct Decoder<R> {
    from: R,
    form: &'static str,
}

impl<R: Read> Read for Decoder<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.from.read(buffer).map_err(|error| {
            let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(&error);
            while let Some(found) = cause {
                // A decoder's error holds that of what it reads.
                let inner = found.downcast_ref::<io::Error>();
                match inner.map(io::Error::kind) {
                    Some(kind @ (io::ErrorKind::UnexpectedEof | io::ErrorKind::Interrupted)) => {
                        return kind.into();
                    }
                    Some(io::ErrorKind::Unsupported) => return error,
                    _ if inner.is_some_and(|it| it.raw_os_error().is_some()) => return error,
                    _ => {}
                }
                cause = inner
                    .and_then(|it| it.get_ref())
                    .map(|it| it as &(dyn std::error::Error + 'static))
                    .or_else(|| found.source());
            }
            let what = format!("the {} stream is damaged: fetch or make it again", self.form);
            io::Error::new(io::ErrorKind::InvalidData, what)
        })
    }
}

/// The decompressed stream, or the stream itself if it is not compressed.
fn decoder<R: Read + 'static>(magic: &[u8], from: R) -> io::Result<Result<Box<dyn Read>, R>> {
    fn of(form: &'static str, from: impl Read + 'static) -> Box<dyn Read> {
        Box::new(Decoder { from, form })
    }
    let buffered = |from| BufReader::with_capacity(BUFFER, from);
    Ok(match magic {
        [0x1f, 0x8b, ..] => Ok(of("gzip", Gzip::new(buffered(from)))),
        [0x28, 0xb5, 0x2f, 0xfd, ..] | [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..] => {
            Ok(of("zstd", Zstd::new(buffered(from))?))
        }
        [0xfd, b'7', b'z', b'X', b'Z', 0] => {
            Ok(of("xz", lzma_rust2::XzReader::new(buffered(from), true)))
        }
        [b'B', b'Z', b'h', ..] => {
            let why = "compressed with bzip2: decompress it first, as in bzip2 -dc FILE";
            return Err(io::Error::new(io::ErrorKind::Unsupported, why));
        }
        _ => Err(from),
    })
}
