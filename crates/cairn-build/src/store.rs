//! Contents that stay where they are until an image is written: archives that are read in place,
//! a file for the contents of streams, and opened volumes.
//!
//! The *spool* is a file without a name in the directory of the output. It holds the contents of
//! compressed archives and of standard input, which can be read only once. It is bounded by the
//! size that was asked for. Layers of container images that are read at once have one each.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use cairn::Volume;
use cairn_base::Ino;
use cairn_base::names::Escaped;
use cairn_vfs::walk::{self, Next, Reached};
use cairn_vfs::{FileSystem, IoFlags};

use crate::error::{Error, Result};
use crate::node::{Contents, RegularFile};

/// Bytes copied at a time.
const CHUNK: usize = 1 << 18;
/// Runs of zeros of this size are left out of the spool.
const HOLE: usize = 4096;

/// A container image has layers for at most this many times the bytes of the volume.
const LAYERS: u64 = 8;

/// How much of the sources is taken.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Bytes of file contents.
    pub bytes: u64,
    /// Inodes.
    pub nodes: u64,
}

impl Limits {
    /// As much as the host takes, and as many files as memory should be used for.
    pub const UNBOUNDED: Self = Self { bytes: 16 << 40, nodes: 1 << 23 };
}

/// All stores of one build.
pub(crate) struct Stores {
    files: Vec<Arc<File>>,
    /// With the names of their images.
    pub(crate) volumes: Vec<(Volume, String)>,
    directory: PathBuf,
    spool: Option<Spool>,
    limit: u64,
    /// Bytes in all spools.
    kept: Arc<AtomicU64>,
}

/// What keeps the contents of streams.
pub(crate) trait Keep {
    /// Keeps `len` bytes of a stream. Returns the store and the offset in it.
    ///
    /// # Errors
    /// The stream ends early or cannot be read, the host has no room, or the limit is reached.
    fn keep(&mut self, from: &mut dyn Read, len: u64) -> Result<(u32, u64), KeepError>;
}

/// A spool. Several of one build are bounded together.
pub(crate) struct Spool {
    store: u32,
    file: Arc<File>,
    len: u64,
    directory: PathBuf,
    limit: u64,
    kept: Arc<AtomicU64>,
    buffer: Vec<u8>,
}

/// Why a stream could not be kept.
#[derive(Debug)]
pub(crate) enum KeepError {
    /// The stream failed, or ended early.
    Read(io::Error),
    /// The spool could not be written.
    Write(PathBuf, io::Error),
    /// The limit is reached.
    TooMuch(u64),
}

impl Stores {
    pub(crate) fn new(directory: PathBuf, limit: u64) -> Self {
        let kept = Arc::default();
        Self { files: Vec::new(), volumes: Vec::new(), directory, spool: None, limit, kept }
    }

    /// Adds a file that is read in place.
    pub(crate) fn add(&mut self, file: Arc<File>) -> u32 {
        self.files.push(file);
        u32::try_from(self.files.len() - 1).unwrap_or(u32::MAX)
    }

    pub(crate) fn add_volume(&mut self, volume: Volume, image: &str) -> u32 {
        self.volumes.push((volume, image.to_owned()));
        u32::try_from(self.volumes.len() - 1).unwrap_or(u32::MAX)
    }

    pub(crate) fn file(&self, store: u32) -> Option<Arc<File>> {
        self.files.get(store as usize).cloned()
    }

    /// A further spool, for another thread.
    ///
    /// # Errors
    /// It cannot be made.
    pub(crate) fn new_spool(&mut self) -> Result<Spool, KeepError> {
        let (file, store) = self.add_temporary()?;
        let (directory, limit, kept) = (self.directory.clone(), self.limit, self.kept.clone());
        Ok(Spool { store, file, len: 0, directory, limit, kept, buffer: Vec::new() })
    }

    /// Keeps all of a stream in a store of its own.
    pub(crate) fn keep_all(&mut self, from: &mut dyn Read) -> Result<(Arc<File>, u32), KeepError> {
        let (file, store) = self.add_temporary()?;
        let limit = self.limit.saturating_mul(LAYERS);
        let (mut piece, mut place) = (vec![0; CHUNK], 0_u64);
        loop {
            let count = match from.read(&mut piece) {
                Ok(count) => count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(KeepError::Read(error)),
            };
            if count == 0 {
                break;
            }
            if place.saturating_add(count as u64) > limit {
                return Err(KeepError::TooMuch(limit));
            }
            write(&file, &self.directory, piece.get(..count).unwrap_or_default(), place)?;
            place += count as u64;
        }
        file.set_len(place).map_err(|error| KeepError::Write(self.directory.clone(), error))?;
        Ok((file, store))
    }

    /// Adds a file without a name in the directory of the output.
    fn add_temporary(&mut self) -> Result<(Arc<File>, u32), KeepError> {
        let file = tempfile::tempfile_in(&self.directory);
        let file = file.map_err(|error| KeepError::Write(self.directory.clone(), error))?;
        let file = Arc::new(file);
        let store = self.add(file.clone());
        Ok((file, store))
    }

    /// Fills `buffer` with the file's bytes at `offset`, which all lie in one data range.
    pub(crate) fn read(&self, file: &RegularFile, offset: u64, buffer: &mut [u8]) -> Result<()> {
        match &file.contents {
            Contents::Empty => {
                buffer.fill(0);
                Ok(())
            }
            Contents::Host(path) => read_host(path, offset, buffer),
            Contents::Stored { store, at } => {
                let place = stored_place(file, at, offset);
                let from = self.files.get(*store as usize).zip(place);
                let Some((from, place)) = from else {
                    return Err(Error::Usage(format!("offset {offset} is in no data range")));
                };
                from.read_exact_at(buffer, place).map_err(|error| Error::host("the archive", error))
            }
            Contents::Volume { volume, ino } => {
                let Some((volume, image)) = self.volumes.get(*volume as usize) else {
                    return Err(Error::Usage(format!("there is no volume {volume}")));
                };
                let failed = |error| {
                    Error::volume(
                        format!("{image}: {}", named(&**volume.filesystem(), *ino)),
                        error,
                    )
                };
                let mut done = 0;
                while let Some(rest) = buffer.get_mut(done..).filter(|rest| !rest.is_empty()) {
                    let at = offset.saturating_add(done as u64);
                    let read = volume.filesystem().read(*ino, at, rest, IoFlags::empty());
                    match read.map_err(failed)? {
                        0 => {
                            rest.fill(0);
                            return Ok(());
                        }
                        count => done += count,
                    }
                }
                Ok(())
            }
        }
    }
}

/// The path of an inode, which no node keeps: an error alone needs it. Its number, if it has none.
fn named(fs: &dyn FileSystem, ino: Ino) -> String {
    let mut found = None;
    // What cannot be read has no name to be found by.
    let _ = walk::walk_past_damage(fs, fs.root(), &mut |met| match met {
        Reached::Entry(visit) if visit.attributes.ino == ino => {
            found = Some(visit.path.escaped());
            Ok(Next::Stop)
        }
        _ => Ok(Next::Continue),
    });
    found.map_or_else(|| format!("inode {ino}"), |path| format!("/{path}"))
}

impl Keep for Stores {
    fn keep(&mut self, from: &mut dyn Read, len: u64) -> Result<(u32, u64), KeepError> {
        let mut spool = match self.spool.take() {
            Some(spool) => spool,
            None => self.new_spool()?,
        };
        let kept = spool.keep(from, len);
        self.spool = Some(spool);
        kept
    }
}

impl Keep for Spool {
    fn keep(&mut self, from: &mut dyn Read, len: u64) -> Result<(u32, u64), KeepError> {
        let before = self.kept.fetch_add(len, Ordering::Relaxed);
        if before.checked_add(len).is_none_or(|all| all > self.limit) {
            return Err(KeepError::TooMuch(self.limit));
        }
        let at = self.len;
        let end = at.saturating_add(len);
        let most = usize::try_from(len).unwrap_or(CHUNK).min(CHUNK);
        if self.buffer.len() < most {
            self.buffer.resize(most, 0);
        }
        let (mut place, mut written) = (at, at);
        while place < end {
            let want = usize::try_from(end - place).unwrap_or(CHUNK).min(most);
            let piece = self.buffer.get_mut(..want).unwrap_or_default();
            from.read_exact(piece).map_err(KeepError::Read)?;
            written = write(&self.file, &self.directory, piece, place)?.unwrap_or(written);
            place += piece.len() as u64;
        }
        // Zeros at the end are not written.
        if written < end {
            let grown = self.file.set_len(end);
            grown.map_err(|error| KeepError::Write(self.directory.clone(), error))?;
        }
        self.len = end;
        Ok((self.store, at))
    }
}

/// Writes what is not zero, neighbours together. Returns the end of what was written last.
fn write(
    file: &File,
    directory: &Path,
    bytes: &[u8],
    place: u64,
) -> Result<Option<u64>, KeepError> {
    let is_data = |part: &&[u8]| part.iter().any(|byte| *byte != 0);
    let mut parts = bytes.chunks(HOLE).peekable();
    let (mut at, mut last) = (0, None);
    while let Some(part) = parts.next() {
        let mut end = at + part.len();
        if is_data(&part) {
            while let Some(more) = parts.next_if(is_data) {
                end += more.len();
            }
            let written =
                file.write_all_at(bytes.get(at..end).unwrap_or_default(), place + at as u64);
            written.map_err(|error| KeepError::Write(directory.to_owned(), error))?;
            last = Some(place + end as u64);
        }
        at = end;
    }
    Ok(last)
}

fn read_host(path: &[u8], offset: u64, buffer: &mut [u8]) -> Result<()> {
    use std::os::unix::ffi::OsStrExt;
    let path = Path::new(std::ffi::OsStr::from_bytes(path));
    let opened = rustix::fs::open(
        path,
        rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::NOFOLLOW | rustix::fs::OFlags::CLOEXEC,
        rustix::fs::Mode::empty(),
    );
    let file = File::from(opened.map_err(|error| Error::host(path, error.into()))?);
    file.read_exact_at(buffer, offset).map_err(|error| match error.kind() {
        io::ErrorKind::UnexpectedEof => {
            Error::source(path.escaped(), "has become shorter while it was read: build again")
        }
        _ => Error::host(path, error),
    })
}

/// Where a byte of a file is in its store.
fn stored_place(file: &RegularFile, at: &[u64], offset: u64) -> Option<u64> {
    let index = file.data.partition_point(|range| range.end <= offset);
    let range = file.data.get(index).filter(|range| range.contains(&offset))?;
    at.get(index)?.checked_add(offset.checked_sub(range.start)?)
}
