//! The local log: what was flushed, in a file of this machine, until the store has it.
//!
//! docs/object-volumes.md has the layout, and what a log promises. What is here reads and writes
//! records. When they are written, and into which volume they belong, is the volume's.
//!
//! When a record is durable, a mark at the end of the log is written, which says so. It is synced
//! with the next record. So a log that something else has cut short, or in which a copy has left
//! zeros, is told apart from one that a power cut has torn.
//!
//! The header and the mark are read again before the next record. If they are not there, somebody
//! else has written to the file or cut it short: it takes no more records.

mod contents;
mod medium;
mod memory;
mod scan;

use std::fs::File;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::{fmt, io};

use bytes::Bytes;
use cairn_base::memory as system_memory;
use cairn_base::names::Escaped;
use cairn_base::ranked_lock::{Mutex, Rank};
use cairn_block::file::{FileDevice, OpenOptions};
use cairn_block::{BlockDevice, BlockDeviceExt, Error, ErrorKind, Result};

use crate::format::data::{self, Entry, Found, Index};
use crate::format::local_log::{
    BLOCK, FRAME, Frame, Header, end_within, mark_place, records_end, space,
};
use crate::format::manifest::Manifest;
use crate::format::{Corrupt, ObjectId, SECTOR};

pub(crate) use contents::{Contents, Record};
use medium::CUT_SHORT;
pub use medium::Medium;
pub(crate) use medium::Opening;
pub use memory::MemoryMedium;

/// Smallest log.
const LEAST_SIZE: u64 = 64 << 10;

/// Where a log lies.
#[derive(Clone)]
pub enum LogPlace {
    /// A file of the host. If it is not there, it is made when everything else allows the opening.
    File(PathBuf),
    /// Something else, for tests and experiments.
    Medium(Arc<dyn Medium>),
}

/// What becomes of flushes in a log that cannot be written into the volume.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub enum Refused {
    /// Opening fails.
    #[default]
    Fail,
    /// They are dropped; of a damaged log, what is behind the damage. If the log of the last writer
    /// is lost, the volume is opened without it.
    Discard,
    /// Their blocks are written into this new file, a disk image with zeros elsewhere. Then they
    /// are dropped.
    Export(PathBuf),
}

/// A volume's local log.
#[derive(Clone)]
pub struct LogOptions {
    /// Where it lies.
    pub place: LogPlace,
    /// Bytes of it; those that are not used take no space.
    pub size: u64,
    /// What becomes of flushes that another writer has overtaken.
    pub refused: Refused,
}

impl fmt::Display for LogPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => path.display().fmt(f),
            Self::Medium(_) => f.write_str("in memory"),
        }
    }
}

/// An open log.
pub(crate) struct Log {
    medium: Arc<dyn Medium>,
    name: String,
    size: u64,
    at: Mutex<At>,
}

/// Where the next record comes.
#[derive(Clone, Copy)]
struct At {
    header: Header,
    number: u64,
    offset: u64,
}

/// The header of a log without records.
pub(crate) fn header_for(volume: u64, size: u64) -> Header {
    Header { volume, size, epoch: 0, nonce: 0, first: 1, stored: 0, claims: [0; 2], end: 0 }
}

/// True if nobody has written into the volume since the writer of a log, but an opening that took
/// its records over.
///
/// An opening puts its own log behind the others of the manifest, before it writes anything, and
/// takes it out only if it has not written. So if the last log is that of the records, there is no
/// later writer. If there is one, its nonce tells who it is.
pub(crate) fn belongs(header: &Header, manifest: &Manifest) -> bool {
    let last = manifest.replay.last();
    let is_last =
        last.is_some_and(|log| (log.id, log.epoch, log.to) == (header.volume, header.epoch, None));
    header.volume == manifest.id && (is_last || claimed(header, manifest).is_some())
}

/// The claim in the header of a log that is the volume's present one.
pub(crate) fn claimed(header: &Header, manifest: &Manifest) -> Option<u64> {
    let nonce = manifest.writer.as_ref()?.nonce;
    header.claims.contains(&nonce).then_some(nonce).filter(|nonce| *nonce != 0)
}

impl Log {
    /// Opens a log. A file that is not there is an empty log, which the first write makes.
    pub(crate) fn open(options: &LogOptions, opening: Opening) -> Result<Self> {
        if options.size < LEAST_SIZE {
            let detail =
                format!("a log of {} bytes is too small: use at least {LEAST_SIZE}", options.size);
            return Err(Error::new(ErrorKind::OutOfRange, "open", detail));
        }
        let medium: Arc<dyn Medium> = match &options.place {
            LogPlace::File(path) => Arc::new(medium::LogFile::open(path, opening)?),
            LogPlace::Medium(medium) => medium.clone(),
        };
        let at = At { header: header_for(0, 0), number: 1, offset: BLOCK };
        let name = options.place.to_string();
        Ok(Self { medium, name, size: options.size, at: Mutex::new(Rank::Leaf, at) })
    }

    /// How messages name it.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    fn failed(&self, doing: &str) -> impl Fn(std::io::Error) -> Error {
        let operation = format!("{doing} the log {}", self.name);
        move |error| {
            let mut error = Error::from_io(operation.clone(), error);
            if error.kind == ErrorKind::NoSpace {
                error.detail += ": make room there, or name a file on another disk";
            }
            error
        }
    }

    /// Writes another header, durably. Records stay.
    pub(crate) fn set_header(&self, header: Header) -> Result<()> {
        let write = || {
            self.medium.write(0, &header.encode())?;
            self.medium.sync()
        };
        write().map_err(self.failed("write"))?;
        self.at.lock().header = header;
        Ok(())
    }

    /// Begins the log of a writer. What it had is dropped.
    pub(crate) fn begin(&self, header: Header) -> Result<()> {
        // While it has no marks, none is missed.
        self.set_header(Header { end: 0, ..header })?;
        let header = Header { end: end_within(self.size), ..header };
        let lay_out = || {
            self.medium.resize(BLOCK)?;
            self.medium.resize(header.end)?;
            for (number, said) in [(header.first, header.first), (header.first + 1, 0)] {
                self.medium.write(mark_place(header.end, number), &header.encode_mark(said))?;
            }
            self.medium.sync()
        };
        lay_out().map_err(self.failed("write"))?;
        self.set_header(header)?;
        *self.at.lock() = At { header, number: header.first, offset: BLOCK };
        Ok(())
    }

    /// Fails if the file is not what was written: somebody else has written to it, or cut it short.
    fn is_ours(&self) -> std::io::Result<()> {
        let At { header, number, .. } = *self.at.lock();
        let (mut first, mut mark) = (vec![0; BLOCK as usize], vec![0; BLOCK as usize]);
        let read = self
            .medium
            .read(0, &mut first)
            .and_then(|()| self.medium.read(mark_place(header.end, number), &mut mark));
        let is_whole = first.starts_with(&header.encode());
        let other = |what| Err(std::io::Error::new(std::io::ErrorKind::InvalidData, what));
        match read {
            Ok(()) if is_whole && header.decode_mark(&mark) == Some(number) => Ok(()),
            Ok(()) => other("somebody else has written to the file"),
            Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => other(CUT_SHORT),
            Err(error) => Err(error),
        }
    }

    /// Drops all records: the store has them. Their space is used again.
    pub(crate) fn reset(&self) -> Result<()> {
        self.is_ours().map_err(self.failed("write"))?;
        let At { header, number, .. } = *self.at.lock();
        self.set_header(Header { first: number, ..header })?;
        self.at.lock().offset = BLOCK;
        Ok(())
    }

    /// The volume is closed: the log has nothing, and is nobody's. A file that this opening has
    /// made, and has not begun a log in, is removed.
    pub(crate) fn clean(&self) -> Result<()> {
        if self.forget() {
            return Ok(());
        }
        let clean = || {
            self.medium.resize(0)?;
            self.medium.sync()
        };
        clean().map_err(self.failed("write"))
    }

    /// Removes a file that this opening has made, if no log was begun in it. True if it did.
    pub(crate) fn forget(&self) -> bool {
        self.at.lock().header.end == 0 && self.medium.forget()
    }

    /// When it was last written, as far as the system knows.
    pub(crate) fn written(&self) -> Option<std::time::SystemTime> {
        self.medium.written()
    }

    /// True if a record with an object of `length` bytes fits behind the others.
    pub(crate) fn has_room(&self, length: u64) -> bool {
        space(length).saturating_add(self.at.lock().offset) <= self.room()
    }

    /// True if it ever fits.
    pub(crate) fn takes(&self, length: u64) -> bool {
        space(length).saturating_add(BLOCK) <= self.room()
    }

    /// Where records must end.
    fn room(&self) -> u64 {
        records_end(end_within(self.size))
    }

    /// True if a reset is worth a write.
    pub(crate) fn is_long(&self) -> bool {
        self.at.lock().offset > self.size / 2
    }

    /// Writes a record, durably. It holds what is in data objects up to that of the sequence
    /// `object`. Nobody else may write meanwhile. Returns the number of the next.
    pub(crate) fn append(&self, object: u64, body: &[Bytes]) -> Result<u64> {
        let At { header, number, offset } = *self.at.lock();
        let length = crate::store::total(body);
        let frame = Frame { number, object, length };
        let mut bytes = system_memory::list("a record", frame.space() as usize)?;
        bytes.extend_from_slice(&header.encode_frame(frame));
        body.iter().for_each(|part| bytes.extend_from_slice(part));
        bytes.resize(frame.space() as usize, 0);
        let write = || {
            self.is_ours()?;
            self.medium.write(offset, &bytes)?;
            self.medium.sync()
        };
        write().map_err(self.failed("write"))?;
        let next = number + 1;
        // The next record misses it, if it fails.
        let _ = self.medium.write(mark_place(header.end, next), &header.encode_mark(next));
        let mut at = self.at.lock();
        (at.number, at.offset) = (next, offset + frame.space());
        Ok(next)
    }

    /// The ranges of a record, each with its data, or none where it reads as zeros.
    pub(crate) fn read(
        &self,
        header: &Header,
        record: &Record,
    ) -> Result<Vec<(Entry, Option<Bytes>)>> {
        let (index, bytes) = self.object(header, record.offset, record.frame)?;
        let bytes = Bytes::from(bytes);
        let data = |entry: &Entry| {
            let start = entry.offset? as usize;
            Some(bytes.slice(start..start + u64::from(entry.count) as usize * SECTOR as usize))
        };
        Ok(index.entries.iter().map(|entry| (*entry, data(entry))).collect())
    }

    /// The data object of a record at `offset`, verified.
    fn object(&self, header: &Header, offset: u64, frame: Frame) -> Result<(Index, Vec<u8>)> {
        let mut bytes = system_memory::zeroed("a record", frame.length as usize)?;
        self.medium.read(offset + FRAME as u64, &mut bytes).map_err(self.failed("read"))?;
        let id = ObjectId { log: header.volume, epoch: header.epoch, sequence: frame.object };
        match data::decode(id, &bytes, frame.length)? {
            Found::Data(index) if index.nonce == header.nonce => {
                index.verify(id, &bytes)?;
                Ok((index, bytes))
            }
            _ => Err(Corrupt::new(id, "is no data object of its log").into()),
        }
    }

    /// Writes the blocks of records into a new file, which its owner alone may read, as the log.
    pub(crate) fn export(&self, contents: &Contents, to: &Path) -> Result<()> {
        let Some(header) = contents.header else { return Ok(()) };
        let made = File::options().write(true).create_new(true).mode(0o600).open(to);
        made.map_err(|error| match error.kind() {
            io::ErrorKind::AlreadyExists => {
                let detail = format!("{} is there: name a new file for the blocks", to.display());
                Error::new(ErrorKind::Exists, "write the blocks of the log", detail)
            }
            _ => Error::from_io(format!("open {}", to.escaped()), error),
        })?;
        let file = FileDevice::open(to, OpenOptions::create(header.size))?;
        for record in &contents.records {
            for (entry, data) in self.read(&header, record)? {
                let start = entry.start * SECTOR;
                match data {
                    Some(data) => file.write_at(start, data)?,
                    None => file.write_zeroes(start, u64::from(entry.count) * SECTOR)?,
                }
            }
        }
        file.flush()
    }
}
