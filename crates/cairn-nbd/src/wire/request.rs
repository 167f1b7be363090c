//! Requests of the transmission phase.

use super::fields::Fields;
use super::{CommandFlags, Headers, Violation};

const MAGIC: u32 = 0x2560_9513;
const EXTENDED_MAGIC: u32 = 0x21e4_1c71;
/// Bytes of a request with 32 bits for the length.
pub(crate) const COMPACT: usize = 28;
/// Bytes of a request with 64.
pub(crate) const EXTENDED: usize = 32;

/// What is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Read,
    Write,
    Disconnect,
    Flush,
    Trim,
    WriteZeroes,
    BlockStatus,
    /// One that is not known here.
    Other(u16),
}

const KINDS: [(u16, Kind); 7] = [
    (0, Kind::Read),
    (1, Kind::Write),
    (2, Kind::Disconnect),
    (3, Kind::Flush),
    (4, Kind::Trim),
    (6, Kind::WriteZeroes),
    (7, Kind::BlockStatus),
];

impl Kind {
    fn number(self) -> u16 {
        match self {
            Self::Other(number) => number,
            known => KINDS.iter().find(|(_, kind)| *kind == known).map_or(u16::MAX, |row| row.0),
        }
    }

    fn of(number: u16) -> Self {
        KINDS.iter().find(|row| row.0 == number).map_or(Self::Other(number), |row| row.1)
    }
}

/// A request without its payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Request {
    pub(crate) kind: Kind,
    pub(crate) flags: CommandFlags,
    pub(crate) cookie: u64,
    pub(crate) offset: u64,
    pub(crate) len: u64,
}

impl Request {
    /// Bytes of a request.
    pub(crate) const fn size(headers: Headers) -> usize {
        match headers {
            Headers::Extended => EXTENDED,
            _ => COMPACT,
        }
    }

    /// # Panics
    /// The length does not fit the headers.
    pub(crate) fn encode(&self, headers: Headers) -> ([u8; EXTENDED], usize) {
        let mut bytes = [0; EXTENDED];
        let extended = headers == Headers::Extended;
        let magic = if extended { EXTENDED_MAGIC } else { MAGIC };
        let mut flags = self.flags;
        if extended && self.kind == Kind::Write {
            flags |= CommandFlags::PAYLOAD_LEN;
        }
        bytes[0..4].copy_from_slice(&magic.to_be_bytes());
        bytes[4..6].copy_from_slice(&flags.bits().to_be_bytes());
        bytes[6..8].copy_from_slice(&self.kind.number().to_be_bytes());
        bytes[8..16].copy_from_slice(&self.cookie.to_be_bytes());
        bytes[16..24].copy_from_slice(&self.offset.to_be_bytes());
        if extended {
            bytes[24..32].copy_from_slice(&self.len.to_be_bytes());
        } else {
            let len = u32::try_from(self.len).expect("requests are divided");
            bytes[24..28].copy_from_slice(&len.to_be_bytes());
        }
        (bytes, Self::size(headers))
    }

    /// `bytes` are [`Request::size`] many.
    pub(crate) fn decode(bytes: &[u8], headers: Headers) -> Result<Self, Violation> {
        let found = bytes.len() as u64;
        let short = Violation::Length { what: "a request", found, low: found, high: found };
        let mut fields = Fields::new(bytes);
        let extended = headers == Headers::Extended;
        let magic = fields.u32().ok_or_else(|| short.clone())?;
        if magic != if extended { EXTENDED_MAGIC } else { MAGIC } {
            return Err(Violation::Magic { what: "a request", found: magic.into() });
        }
        let mut decoded = || {
            let flags = CommandFlags::from_bits_retain(fields.u16()?);
            let kind = Kind::of(fields.u16()?);
            let (cookie, offset) = (fields.u64()?, fields.u64()?);
            let len = if extended { fields.u64()? } else { fields.u32()?.into() };
            Some(Self { kind, flags, cookie, offset, len })
        };
        decoded().ok_or(short)
    }

    /// Bytes that follow the request.
    pub(crate) fn payload(&self, headers: Headers) -> u64 {
        let has = match headers {
            Headers::Extended => self.flags.contains(CommandFlags::PAYLOAD_LEN),
            _ => self.kind == Kind::Write,
        };
        if has { self.len } else { 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_encoded_is_read_back() {
        let kinds = KINDS.iter().map(|row| row.1).chain([Kind::Other(99)]);
        for (kind, headers) in
            kinds.flat_map(|kind| [(kind, Headers::Simple), (kind, Headers::Extended)])
        {
            let flags = CommandFlags::FUA;
            let request = Request { kind, flags, cookie: 7, offset: 1 << 40, len: 4096 };
            let (bytes, size) = request.encode(headers);
            let read = Request::decode(&bytes[..size], headers).unwrap();
            assert_eq!(read.payload(headers), if kind == Kind::Write { 4096 } else { 0 });
            let mut expected = request;
            let marked = headers == Headers::Extended && kind == Kind::Write;
            expected.flags.set(CommandFlags::PAYLOAD_LEN, marked);
            assert_eq!(read, expected);
        }
    }

    #[test]
    fn other_bytes_are_no_request() {
        for headers in [Headers::Simple, Headers::Extended] {
            let bytes = [0x25; EXTENDED];
            let decoded = Request::decode(&bytes[..Request::size(headers)], headers);
            assert!(matches!(decoded, Err(Violation::Magic { found: 0x2525_2525, .. })));
        }
    }
}
