//! The local log: a header, then records, each from a multiple of [`BLOCK`] on, and two marks at
//! the end.

use cairn_base::units::as_u64;
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{Corrupt, Result, checksum};

/// Version of the layout that this program writes, and the newest that it reads.
const VERSION: u32 = 2;
const HEADER: [u8; 8] = *b"CairnLog";
const RECORD: [u8; 8] = *b"CairnRec";
const MARK: [u8; 8] = *b"CairnEnd";
/// Bytes of the header of version 1, which had no marks.
const FIRST_HEADER: usize = 80;
/// What a device writes as a whole or not at all. The header has so many bytes.
pub(crate) const BLOCK: u64 = 512;
/// Each of the two marks has so much room, so that no power cut tears both.
const MARK_ROOM: u64 = 4096;

#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawHeader {
    magic: [u8; 8],
    version: U32,
    checksum: U32,
    volume: U64,
    size: U64,
    epoch: U32,
    reserved: U32,
    nonce: U64,
    first: U64,
    stored: U64,
    claims: [U64; 2],
    end: U64,
}
const _: () = assert!(size_of::<RawHeader>() == FIRST_HEADER + 8);

#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawMark {
    magic: [u8; 8],
    checksum: U32,
    epoch: U32,
    volume: U64,
    nonce: U64,
    number: U64,
}
const _: () = assert!(size_of::<RawMark>() == 40);

#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawRecord {
    magic: [u8; 8],
    checksum: U32,
    epoch: U32,
    volume: U64,
    nonce: U64,
    number: U64,
    object: U64,
    length: U64,
    reserved: U64,
}

/// Bytes before the data object of a record.
pub(crate) const FRAME: usize = 64;
const _: () = assert!(size_of::<RawRecord>() == FRAME);

/// Whose records a log has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    /// The volume's ID.
    pub(crate) volume: u64,
    /// Bytes of its disk.
    pub(crate) size: u64,
    /// The epoch of the records' writer. 0: there are none.
    pub(crate) epoch: u32,
    /// Its nonce.
    pub(crate) nonce: u64,
    /// The number of the first record.
    pub(crate) first: u64,
    /// The store has the records of objects below this sequence, also if the manifest no longer
    /// says so.
    pub(crate) stored: u64,
    /// Openings that claimed the volume to write the records into it.
    pub(crate) claims: [u64; 2],
    /// Bytes of the log; the marks are the last. 0: it has no marks, because it has no records or
    /// is of version 1.
    pub(crate) end: u64,
}

/// What stands before the data object of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Frame {
    /// Of the record, in the order of flushes.
    pub(crate) number: u64,
    /// The sequence of the data object that has the last of the record's data.
    pub(crate) object: u64,
    /// Bytes behind the frame.
    pub(crate) length: u64,
}

impl Frame {
    /// Bytes of the whole record in the log.
    pub(crate) fn space(&self) -> u64 {
        space(self.length)
    }
}

/// Bytes that a record takes whose data object has `length`.
pub(crate) fn space(length: u64) -> u64 {
    let whole = length.saturating_add(as_u64(FRAME));
    whole.checked_next_multiple_of(BLOCK).unwrap_or(u64::MAX)
}

/// Bytes of a log with marks that has at most `size`.
pub(crate) fn end_within(size: u64) -> u64 {
    size.saturating_sub(size.checked_rem(MARK_ROOM).unwrap_or(0))
}

/// Where the records of a log of `end` bytes must end.
pub(crate) fn records_end(end: u64) -> u64 {
    end.saturating_sub(MARK_ROOM.saturating_mul(2))
}

/// Where the mark of a record is. Records in turn have the one and the other.
pub(crate) fn mark_place(end: u64, number: u64) -> u64 {
    let back = if number.is_multiple_of(2) { 2 } else { 1 };
    end.saturating_sub(MARK_ROOM.saturating_mul(back))
}

/// True if this is the beginning of a record or a mark of any log.
pub(crate) fn is_part(bytes: &[u8]) -> bool {
    let record = RawRecord::read_from_prefix(bytes).ok().is_some_and(|(raw, _)| raw.is_whole());
    record || RawMark::read_from_prefix(bytes).ok().is_some_and(|(raw, _)| raw.is_whole())
}

fn block_of(raw: &(impl IntoBytes + Immutable)) -> Vec<u8> {
    let mut block = raw.as_bytes().to_vec();
    block.resize(cairn_base::units::stored(BLOCK), 0);
    block
}

impl RawRecord {
    fn sum(&self) -> u32 {
        checksum(&[Self { checksum: 0.into(), ..*self }.as_bytes()])
    }

    fn is_whole(&self) -> bool {
        self.magic == RECORD && self.checksum.get() == self.sum()
    }
}

impl RawMark {
    fn sum(&self) -> u32 {
        checksum(&[Self { checksum: 0.into(), ..*self }.as_bytes()])
    }

    fn is_whole(&self) -> bool {
        self.magic == MARK && self.checksum.get() == self.sum()
    }
}

impl Header {
    /// Its block.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut raw = RawHeader {
            magic: HEADER,
            version: VERSION.into(),
            checksum: 0.into(),
            volume: self.volume.into(),
            size: self.size.into(),
            epoch: self.epoch.into(),
            reserved: 0.into(),
            nonce: self.nonce.into(),
            first: self.first.into(),
            stored: self.stored.into(),
            claims: self.claims.map(U64::from),
            end: self.end.into(),
        };
        raw.checksum = checksum(&[raw.as_bytes()]).into();
        block_of(&raw)
    }

    /// Reads the header of the log `name`. None if it begins as something else.
    pub(crate) fn decode(name: &str, block: &[u8]) -> Result<Option<Self>> {
        if block.is_empty() || block.iter().zip(&HEADER).any(|(found, wanted)| found != wanted) {
            return Ok(None);
        }
        let raw = RawHeader::read_from_prefix(block);
        let (raw, _) = raw.map_err(|_| Corrupt::new(name, "has no whole header"))?;
        Corrupt::version(name, raw.version.get(), VERSION)?;
        let zeroed = RawHeader { checksum: 0.into(), ..raw };
        let has_end = raw.version.get() > 1;
        let bytes = zeroed.as_bytes();
        let bytes = if has_end { bytes } else { bytes.get(..FIRST_HEADER).unwrap_or(bytes) };
        Corrupt::checksum(name, raw.checksum.get(), checksum(&[bytes]))?;
        Ok(Some(Self {
            volume: raw.volume.get(),
            size: raw.size.get(),
            epoch: raw.epoch.get(),
            nonce: raw.nonce.get(),
            first: raw.first.get(),
            stored: raw.stored.get(),
            claims: raw.claims.map(U64::get),
            end: if has_end { raw.end.get() } else { 0 },
        }))
    }

    /// The block of a mark: the records before this one are durable.
    pub(crate) fn encode_mark(&self, number: u64) -> Vec<u8> {
        let mut raw = RawMark {
            magic: MARK,
            checksum: 0.into(),
            epoch: self.epoch.into(),
            volume: self.volume.into(),
            nonce: self.nonce.into(),
            number: number.into(),
        };
        raw.checksum = raw.sum().into();
        block_of(&raw)
    }

    /// The number in a mark of this log.
    pub(crate) fn decode_mark(&self, bytes: &[u8]) -> Option<u64> {
        let (raw, _) = RawMark::read_from_prefix(bytes).ok()?;
        let whose = (raw.volume.get(), raw.epoch.get(), raw.nonce.get());
        let is_ours = whose == (self.volume, self.epoch, self.nonce);
        (is_ours && raw.is_whole()).then(|| raw.number.get())
    }

    /// The bytes before the data object of one of its records.
    pub(crate) fn encode_frame(&self, frame: Frame) -> [u8; FRAME] {
        let mut raw = RawRecord {
            magic: RECORD,
            checksum: 0.into(),
            epoch: self.epoch.into(),
            volume: self.volume.into(),
            nonce: self.nonce.into(),
            number: frame.number.into(),
            object: frame.object.into(),
            length: frame.length.into(),
            reserved: 0.into(),
        };
        raw.checksum = raw.sum().into();
        zerocopy::transmute!(raw)
    }

    /// The frame at the beginning of these bytes. None if there is none of this log: the log ends,
    /// or has an older one's record there.
    pub(crate) fn decode_frame(&self, bytes: &[u8]) -> Option<Frame> {
        let (raw, _) = RawRecord::read_from_prefix(bytes).ok()?;
        let whose = (raw.volume.get(), raw.epoch.get(), raw.nonce.get());
        let is_ours = whose == (self.volume, self.epoch, self.nonce);
        (is_ours && raw.is_whole()).then(|| Frame {
            number: raw.number.get(),
            object: raw.object.get(),
            length: raw.length.get(),
        })
    }
}
