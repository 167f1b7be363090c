//! The local log: a header, then records. Each begins at a multiple of [`BLOCK`].

use cairn_base::units::as_u64;
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{Corrupt, Result, VERSION, checksum};

const HEADER: [u8; 8] = *b"CairnLog";
const RECORD: [u8; 8] = *b"CairnRec";
/// What a device writes as a whole or not at all. The header has so many bytes.
pub(crate) const BLOCK: u64 = 512;

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
}

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
        };
        raw.checksum = checksum(&[raw.as_bytes()]).into();
        let mut block = raw.as_bytes().to_vec();
        block.resize(cairn_base::units::stored(BLOCK), 0);
        block
    }

    /// Reads the header of the log `name`. None if it begins as something else.
    pub(crate) fn decode(name: &str, block: &[u8]) -> Result<Option<Self>> {
        let Ok((raw, _)) = RawHeader::read_from_prefix(block) else { return Ok(None) };
        if raw.magic != HEADER {
            return Ok(None);
        }
        Corrupt::version(name, raw.version.get(), VERSION)?;
        let zeroed = RawHeader { checksum: 0.into(), ..raw };
        Corrupt::checksum(name, raw.checksum.get(), checksum(&[zeroed.as_bytes()]))?;
        Ok(Some(Self {
            volume: raw.volume.get(),
            size: raw.size.get(),
            epoch: raw.epoch.get(),
            nonce: raw.nonce.get(),
            first: raw.first.get(),
            stored: raw.stored.get(),
            claims: raw.claims.map(U64::get),
        }))
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
        raw.checksum = checksum(&[raw.as_bytes()]).into();
        zerocopy::transmute!(raw)
    }

    /// The frame at the beginning of these bytes. None if there is none of this log: the log ends,
    /// or has an older one's record there.
    pub(crate) fn decode_frame(&self, bytes: &[u8]) -> Option<Frame> {
        let (raw, _) = RawRecord::read_from_prefix(bytes).ok()?;
        let whose = (raw.volume.get(), raw.epoch.get(), raw.nonce.get());
        if raw.magic != RECORD || whose != (self.volume, self.epoch, self.nonce) {
            return None;
        }
        let zeroed = RawRecord { checksum: 0.into(), ..raw };
        let is_whole = raw.checksum.get() == checksum(&[zeroed.as_bytes()]);
        is_whole.then(|| Frame {
            number: raw.number.get(),
            object: raw.object.get(),
            length: raw.length.get(),
        })
    }
}
