//! Undo files: what [`Plan::apply`] writes before it changes a volume, and [`take_back`] reads.
//!
//! A file begins with a header of 4096 bytes; a table of places follows, then the bytes. Numbers
//! are little-endian; CRC-32C is without the inversion at the end, as in ext4.
//!
//! | offset | |
//! |---|---|
//! | 0 | `CAIRN UNDO FILE\n` |
//! | 16 | version, 32 bits: 1 |
//! | 20 | CRC-32C of the table, 32 bits |
//! | 24 | bytes of the volume's device, 64 bits |
//! | 32 | number of places, 64 bits |
//! | 40 | CRC-32C of the 40 bytes before it, 32 bits |
//! | 4096 | the table of places |
//! | behind the table | for each place: the bytes before the change, then those after it |
//!
//! A place is its offset on the device and its length, 64 bits each, and the CRC-32C of the bytes
//! before and after the change, 32 bits each.
//!
//! Invariant: the header is written when all else is durable, and the volume is changed when the
//! header is. So a file without a valid header belongs to a volume that was not changed.

use bytes::Bytes;
use cairn_base::checksum::crc32c;
use cairn_base::units::as_u64;
use cairn_block::{BlockDevice, BlockDeviceExt, Durability, Error as DeviceError};

use super::Plan;
use super::changes::{Change, Changes};

const MAGIC: [u8; 16] = *b"CAIRN UNDO FILE\n";
const VERSION: u32 = 1;
const HEADER: u64 = 4096;
const HEADER_BYTES: usize = 4096;
/// Bytes of a place in the table.
const ENTRY: u64 = 24;
const ENTRY_BYTES: usize = 24;
/// A device writes at least this much of a block, or nothing.
const SECTOR: usize = 512;
/// Most places that are read: a table of 24 MiB.
const MOST: u64 = 1 << 20;
/// Most bytes of a place.
const MOST_BYTES: u64 = 1 << 20;

/// Why an undo file cannot be written or taken back.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The undo file cannot be written. The volume was not changed.
    #[error("the undo file cannot be written: {0}; nothing was changed: name another file")]
    Write(DeviceError),
    /// The volume cannot be written, and is as it was.
    #[error("{0}; nothing was changed")]
    Unchanged(DeviceError),
    /// The volume cannot be written, and is changed in part.
    #[error("{0}; the volume is changed in part: take the repair back when the device works")]
    Partly(DeviceError),
    /// The undo file of an earlier repair is there.
    #[error(
        "an earlier repair was interrupted: take it back with the undo file {file}, then `rm \
        {file}`; if a check finds nothing, it was complete, and only the file is to be removed"
    )]
    Interrupted {
        /// The image, as a word of a command line.
        image: String,
        /// The file, as a word of a command line.
        file: String,
    },
    /// The undo file of an earlier repair is there, and was not finished.
    #[error("an earlier repair was interrupted before it changed anything: `rm {file}`")]
    Unfinished {
        /// The file, as a word of a command line.
        file: String,
    },
    /// As [`Error::Interrupted`], where another volume is to be made.
    #[error(
        "a repair of what was there was interrupted: take it back with the undo file {file}, or \
        `rm {file}` if it is not wanted any more; nothing was changed"
    )]
    Unwanted {
        /// The image, as a word of a command line.
        image: String,
        /// The file, as a word of a command line.
        file: String,
    },
    /// The volume is repaired, and the undo file is still there.
    #[error(
        "repaired; but its undo file cannot be removed ({why}): `rm {file}`, else the repair \
        counts as interrupted"
    )]
    Left {
        /// The file, as a word of a command line.
        file: String,
        /// Why.
        why: std::io::Error,
    },
    /// The device or the file cannot be read or written.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// The file holds no whole undo record.
    #[error("it is none, or was not finished: then nothing was changed ({what})")]
    NoFile {
        /// What is wrong.
        what: &'static str,
    },
    /// The file was finished, and has been damaged since.
    #[error("it is damaged since it was written ({what}), so that it cannot be taken back")]
    Damaged {
        /// What is wrong.
        what: &'static str,
    },
    /// The file is of another volume.
    #[error("it is of a volume of {stored} bytes, this one has {size}")]
    Size {
        /// Bytes of the volume of the file.
        stored: u64,
        /// Bytes of this volume.
        size: u64,
    },
    /// What is wrong with the file that a repair is to be taken back with.
    #[error("the undo file {file}: {why}")]
    File {
        /// The file.
        file: String,
        /// What is wrong.
        why: Box<Error>,
    },
    /// The volume was changed after the repair.
    #[error(
        "the volume is not as the repair has left it: byte {offset} and others have changed since; \
         nothing was taken back"
    )]
    Changed {
        /// The first byte.
        offset: u64,
    },
}

/// Bytes of an undo file for these changes.
#[must_use]
pub fn file_size(changes: &Changes) -> u64 {
    let table = as_u64(changes.list.len()).saturating_mul(ENTRY);
    changes.bytes().saturating_mul(2).saturating_add(table).saturating_add(HEADER)
}

/// Was the undo file finished that begins with these bytes? Else its repair has changed nothing.
#[must_use]
pub fn is_finished(start: &[u8]) -> bool {
    has_header(start) && word(start, 40) == crc32c(!0, start.get(..40).unwrap_or_default())
}

fn has_header(start: &[u8]) -> bool {
    start.len() >= HEADER_BYTES
        && start.get(..MAGIC.len()) == Some(&MAGIC)
        && word(start, 16) == VERSION
}

impl Error {
    /// With the name of the file, if that is what is wrong.
    #[must_use]
    pub fn of_file(self, file: impl Into<String>) -> Self {
        match self {
            Self::NoFile { .. } | Self::Damaged { .. } | Self::Size { .. } => {
                Self::File { file: file.into(), why: Box::new(self) }
            }
            other => other,
        }
    }
}

impl Plan {
    /// Changes the volume on `device`, for which this was planned, as one step: first `undo`, which
    /// has at least [`file_size`] bytes, is written and made durable.
    ///
    /// # Errors
    /// A device failed. If it is that of the volume, what was changed is taken back, if it can be.
    pub fn apply(&self, device: &dyn BlockDevice, undo: &dyn BlockDevice) -> Result<(), Error> {
        if self.changes.is_empty() {
            return Ok(());
        }
        write(&self.changes, device.geometry().size, undo).map_err(Error::Write)?;
        match change(&self.changes, device) {
            Ok(()) => Ok(()),
            Err(why) => Err(match restore(&self.changes, device) {
                Ok(()) => Error::Unchanged(why),
                Err(_) => Error::Partly(why),
            }),
        }
    }
}

fn change(changes: &Changes, device: &dyn BlockDevice) -> Result<(), DeviceError> {
    for change in &changes.list {
        device.write_at(change.offset, change.new.clone())?;
    }
    device.flush()
}

/// Writes the old bytes where others are, and reads whether they are there.
fn restore(changes: &Changes, device: &dyn BlockDevice) -> Result<(), DeviceError> {
    for change in &changes.list {
        let now = device.read_at(change.offset, change.old.len())?;
        if *now != *change.old {
            device.write_at(change.offset, change.old.clone())?;
        }
    }
    device.flush()
}

fn write(changes: &Changes, size: u64, undo: &dyn BlockDevice) -> Result<(), DeviceError> {
    let mut table = Vec::new();
    for change in &changes.list {
        table.extend(change.offset.to_le_bytes());
        table.extend(as_u64(change.new.len()).to_le_bytes());
        table.extend(crc32c(!0, &change.old).to_le_bytes());
        table.extend(crc32c(!0, &change.new).to_le_bytes());
    }
    let sum = crc32c(!0, &table);
    let mut at = HEADER.saturating_add(as_u64(table.len()));
    undo.write_at(HEADER, table)?;
    for change in &changes.list {
        for bytes in [&change.old, &change.new] {
            undo.write_at(at, bytes.clone())?;
            at = at.saturating_add(as_u64(bytes.len()));
        }
    }
    let mut header = Vec::from(MAGIC);
    header.extend(VERSION.to_le_bytes());
    header.extend(sum.to_le_bytes());
    header.extend(size.to_le_bytes());
    header.extend(as_u64(changes.list.len()).to_le_bytes());
    header.extend(crc32c(!0, &header).to_le_bytes());
    header.resize(HEADER_BYTES, 0);
    undo.write_durable(0, header, Durability { preflush: true, fua: true })
}

/// Reads 8 bytes, which the caller has checked to be there.
fn number(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..).and_then(<[u8]>::first_chunk).copied().map_or(0, u64::from_le_bytes)
}

fn word(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..).and_then(<[u8]>::first_chunk).copied().map_or(0, u32::from_le_bytes)
}

/// Reads an undo file that was finished.
fn read(undo: &dyn BlockDevice, size: u64) -> Result<Changes, Error> {
    let no = |what: &'static str| Error::NoFile { what };
    let damaged = |what: &'static str| Error::Damaged { what };
    let room = undo.geometry().size;
    if room < HEADER {
        return Err(no("it is too short"));
    }
    let header = undo.read_at(0, HEADER_BYTES)?;
    if !has_header(&header) {
        return Err(no("its header is not one"));
    }
    if crc32c(!0, header.get(..40).unwrap_or_default()) != word(&header, 40) {
        return Err(no("the checksum of its header is wrong"));
    }
    let stored = number(&header, 24);
    if stored != size {
        return Err(Error::Size { stored, size });
    }
    let count = number(&header, 32);
    let len = count.saturating_mul(ENTRY);
    let table_end = HEADER.saturating_add(len);
    if count > MOST || table_end > room {
        return Err(damaged("its table is too long"));
    }
    let table = undo.read_at(HEADER, usize::try_from(len).unwrap_or(usize::MAX))?;
    if crc32c(!0, &table) != word(&header, 20) {
        return Err(damaged("the checksum of its table is wrong"));
    }
    let (mut at, mut list) = (table_end, Vec::new());
    for entry in table.chunks_exact(ENTRY_BYTES) {
        let (offset, len) = (number(entry, 0), number(entry, 8));
        let ends = [(offset, len, size), (at, len.saturating_mul(2), room)];
        if len > MOST_BYTES || ends.iter().any(|(at, len, end)| at.saturating_add(*len) > *end) {
            return Err(damaged("a place of it lies beyond an end"));
        }
        let bytes = usize::try_from(len).unwrap_or(0);
        let old = undo.read_at(at, bytes)?;
        let new = undo.read_at(at.saturating_add(len), bytes)?;
        if crc32c(!0, &old) != word(entry, 16) || crc32c(!0, &new) != word(entry, 20) {
            return Err(damaged("a checksum of its contents is wrong"));
        }
        let (old, new) = (Bytes::copy_from_slice(&old), Bytes::copy_from_slice(&new));
        list.push(Change { offset, old, new });
        at = at.saturating_add(len.saturating_mul(2));
    }
    Ok(Changes { list })
}

/// Puts the bytes back that a repair has changed, whether it was ended or not. Returns their
/// number.
///
/// # Errors
/// The undo file is not whole or of another volume, or the volume has changed since; then nothing
/// is written. Or a device failed.
pub fn take_back(device: &dyn BlockDevice, undo: &dyn BlockDevice) -> Result<u64, Error> {
    let changes = read(undo, device.geometry().size)?;
    for change in &changes.list {
        let now = device.read_at(change.offset, change.old.len())?;
        let sides = change.old.chunks(SECTOR).zip(change.new.chunks(SECTOR));
        let found = now.chunks(SECTOR).zip(sides);
        let foreign = |(now, (old, new)): (&[u8], (&[u8], &[u8]))| now != old && now != new;
        if let Some(sector) = found.into_iter().position(foreign) {
            let inside = as_u64(sector.saturating_mul(SECTOR));
            return Err(Error::Changed { offset: change.offset.saturating_add(inside) });
        }
    }
    restore(&changes, device)?;
    Ok(changes.bytes())
}
