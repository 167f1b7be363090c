//! Replies of the transmission phase.

use super::fields::Fields;
use super::{Headers, MAX_STRING, Violation};

const SIMPLE_MAGIC: u32 = 0x6744_6698;
const STRUCTURED_MAGIC: u32 = 0x668e_33ef;
const EXTENDED_MAGIC: u32 = 0x6e8a_278c;

/// Bytes of the longest header.
pub(crate) const LONGEST: usize = 32;
/// Bytes of a header that says how long the whole is: its magic number.
pub(crate) const MAGIC: usize = 4;

/// Set in the last chunk of a reply.
pub(crate) const DONE: u16 = 1;

pub(crate) const NONE: u16 = 0;
pub(crate) const OFFSET_DATA: u16 = 1;
pub(crate) const OFFSET_HOLE: u16 = 2;
pub(crate) const BLOCK_STATUS: u16 = 5;
pub(crate) const BLOCK_STATUS_EXT: u16 = 6;
/// Set in every chunk that is an error.
pub(crate) const ERROR_BIT: u16 = 1 << 15;
pub(crate) const ERROR: u16 = ERROR_BIT + 1;

/// Extents that a server may put into one chunk.
const MAX_EXTENTS: u64 = 1 << 20;

/// A reply without its payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Header {
    /// The data of a read follows if there was no error.
    Simple { error: u32, cookie: u64 },
    /// A part of an answer, with so many bytes behind it.
    Chunk { flags: u16, kind: u16, cookie: u64, len: u64 },
}

impl Header {
    /// Bytes of a header with this magic number.
    pub(crate) fn size(magic: [u8; MAGIC], headers: Headers) -> Result<usize, Violation> {
        match (u32::from_be_bytes(magic), headers) {
            (SIMPLE_MAGIC, Headers::Simple | Headers::Structured) => Ok(16),
            (STRUCTURED_MAGIC, Headers::Structured) => Ok(20),
            (EXTENDED_MAGIC, Headers::Extended) => Ok(32),
            (found, _) => Err(Violation::Magic { what: "an answer", found: found.into() }),
        }
    }

    /// `bytes` are [`Header::size`] many.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let mut fields = Fields::new(bytes);
        let magic = fields.u32()?;
        if magic == SIMPLE_MAGIC {
            let error = fields.u32()?;
            return Some(Self::Simple { error, cookie: fields.u64()? });
        }
        let (flags, kind, cookie) = (fields.u16()?, fields.u16()?, fields.u64()?);
        let len = match magic {
            EXTENDED_MAGIC => {
                // The request's offset: the cookie tells which request it is.
                fields.u64()?;
                fields.u64()?
            }
            _ => fields.u32()?.into(),
        };
        Some(Self::Chunk { flags, kind, cookie, len })
    }
}

/// What every reply to a request repeats.
#[derive(Clone, Copy, Debug)]
pub(crate) struct To {
    pub(crate) headers: Headers,
    pub(crate) cookie: u64,
    pub(crate) offset: u64,
}

impl To {
    /// The header of a simple reply.
    pub(crate) fn simple(self, error: u32) -> Vec<u8> {
        let mut bytes = SIMPLE_MAGIC.to_be_bytes().to_vec();
        bytes.extend(error.to_be_bytes());
        bytes.extend(self.cookie.to_be_bytes());
        bytes
    }

    /// The header of a chunk with `len` bytes behind it.
    pub(crate) fn chunk(self, flags: u16, kind: u16, len: u64) -> Vec<u8> {
        let extended = self.headers == Headers::Extended;
        let magic = if extended { EXTENDED_MAGIC } else { STRUCTURED_MAGIC };
        let mut bytes = magic.to_be_bytes().to_vec();
        bytes.extend(flags.to_be_bytes());
        bytes.extend(kind.to_be_bytes());
        bytes.extend(self.cookie.to_be_bytes());
        if extended {
            bytes.extend(self.offset.to_be_bytes());
            bytes.extend(len.to_be_bytes());
        } else {
            let len = u32::try_from(len).expect("payloads are limited");
            bytes.extend(len.to_be_bytes());
        }
        bytes
    }

    /// The whole reply of a request without data.
    pub(crate) fn done(self) -> Vec<u8> {
        match self.headers {
            Headers::Simple | Headers::Structured => self.simple(0),
            Headers::Extended => self.chunk(DONE, NONE, 0),
        }
    }

    /// The whole reply of a request that failed.
    pub(crate) fn failed(self, error: u32, words: &str) -> Vec<u8> {
        if self.headers == Headers::Simple {
            return self.simple(error);
        }
        let mut end = words.len().min(MAX_STRING);
        while !words.is_char_boundary(end) {
            end -= 1;
        }
        let words = &words.as_bytes()[..end];
        let mut bytes = self.chunk(DONE, ERROR, 6 + words.len() as u64);
        bytes.extend(error.to_be_bytes());
        let len = u16::try_from(words.len()).expect("a text of the protocol is short");
        bytes.extend(len.to_be_bytes());
        bytes.extend(words);
        bytes
    }

    /// What comes before the data of a read of `len` bytes that is answered at once.
    pub(crate) fn data(self, len: u64) -> Vec<u8> {
        if self.headers == Headers::Simple {
            return self.simple(0);
        }
        let mut bytes = self.chunk(DONE, OFFSET_DATA, 8 + len);
        bytes.extend(self.offset.to_be_bytes());
        bytes
    }

    /// The whole reply that tells extents by length and flags.
    pub(crate) fn status(self, context: u32, extents: &[(u64, u32)]) -> Vec<u8> {
        let extended = self.headers == Headers::Extended;
        let mut data = context.to_be_bytes().to_vec();
        if extended {
            let count = u32::try_from(extents.len()).expect("extents are limited");
            data.extend(count.to_be_bytes());
        }
        for (len, flags) in extents {
            if extended {
                data.extend(len.to_be_bytes());
                data.extend(u64::from(*flags).to_be_bytes());
            } else {
                let len = u32::try_from(*len).expect("no longer than what was asked for");
                data.extend(len.to_be_bytes());
                data.extend(flags.to_be_bytes());
            }
        }
        let kind = if extended { BLOCK_STATUS_EXT } else { BLOCK_STATUS };
        let mut bytes = self.chunk(DONE, kind, data.len() as u64);
        bytes.extend(data);
        bytes
    }
}

/// The error, and its words, of an error chunk.
pub(crate) fn decode_error(payload: &[u8]) -> Result<(u32, String), Violation> {
    let found = payload.len() as u64;
    let wrong = || Violation::Length { what: "an error", found, low: 6, high: MAX_ERROR };
    let mut fields = Fields::new(payload);
    let (error, len) = fields.u32().zip(fields.u16()).ok_or_else(wrong)?;
    let words = fields.bytes(len.into()).ok_or_else(wrong)?;
    if error == 0 {
        return Err(Violation::Value { what: "an error", found: 0 });
    }
    Ok((error, String::from_utf8_lossy(words).into_owned()))
}

/// The longest payload of an error.
pub(crate) const MAX_ERROR: u64 = 6 + MAX_STRING as u64 + 8;

/// The longest payload of extents.
pub(crate) const fn max_status(headers: Headers) -> u64 {
    match headers {
        Headers::Extended => 8 + 16 * MAX_EXTENTS,
        _ => 4 + 8 * MAX_EXTENTS,
    }
}

/// The context and the extents, by length and flags, of a status chunk.
pub(crate) fn decode_status(
    payload: &[u8],
    headers: Headers,
) -> Result<(u32, Vec<(u64, u32)>), Violation> {
    let found = payload.len() as u64;
    let extended = headers == Headers::Extended;
    let low = if extended { 24 } else { 12 };
    let wrong = || Violation::Length {
        what: "the status of blocks",
        found,
        low,
        high: max_status(headers),
    };
    let mut fields = Fields::new(payload);
    let context = fields.u32().ok_or_else(wrong)?;
    let count = if extended { Some(fields.u32().ok_or_else(wrong)?) } else { None };
    let mut extents = Vec::new();
    while !fields.is_empty() {
        let extent = match extended {
            true => fields.u64().zip(fields.u64()),
            false => fields.u32().zip(fields.u32()).map(|(len, flags)| (len.into(), flags.into())),
        };
        let (len, flags): (u64, u64) = extent.ok_or_else(wrong)?;
        if len == 0 {
            return Err(Violation::Value { what: "the length of an extent", found: 0 });
        }
        // Contexts of more than 32 bits are not asked for.
        extents.push((len, u32::try_from(flags).unwrap_or(0)));
    }
    let right = count.is_none_or(|count| u64::from(count) == extents.len() as u64);
    if extents.is_empty() || !right {
        return Err(wrong());
    }
    Ok((context, extents))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [Headers; 3] = [Headers::Simple, Headers::Structured, Headers::Extended];

    fn header(bytes: &[u8], headers: Headers) -> (Header, usize) {
        let size = Header::size(bytes[..MAGIC].try_into().unwrap(), headers).unwrap();
        (Header::decode(&bytes[..size]).unwrap(), size)
    }

    #[test]
    fn what_is_encoded_is_read_back() {
        for headers in ALL {
            let to = To { headers, cookie: 9, offset: 77 };
            let (read, size) = header(&to.done(), headers);
            assert_eq!(size, to.done().len());
            match read {
                Header::Simple { error, cookie } => assert_eq!((error, cookie), (0, 9)),
                Header::Chunk { flags, kind, cookie, len } => {
                    assert_eq!((flags, kind, cookie, len), (DONE, NONE, 9, 0));
                }
            }
            let failed = to.failed(5, "no\u{e9}");
            let (read, size) = header(&failed, headers);
            match read {
                Header::Simple { error, .. } => assert_eq!(error, 5),
                Header::Chunk { kind, len, .. } => {
                    assert_eq!((kind, len as usize), (ERROR, failed.len() - size));
                    assert_eq!(decode_error(&failed[size..]).unwrap(), (5, "no\u{e9}".into()));
                }
            }
        }
        for headers in [Headers::Structured, Headers::Extended] {
            let extents = [(4096, 3), (8192, 0)];
            let reply = To { headers, cookie: 1, offset: 0 }.status(6, &extents);
            let (_, size) = header(&reply, headers);
            assert_eq!(decode_status(&reply[size..], headers).unwrap(), (6, extents.to_vec()));
            for end in size..reply.len() {
                let cut = decode_status(&reply[size..end], headers);
                let whole = headers == Headers::Structured && end - size == 12;
                assert_eq!(cut.is_ok(), whole, "{end}");
            }
        }
    }

    #[test]
    fn words_are_cut_at_a_letter() {
        let to = To { headers: Headers::Structured, cookie: 1, offset: 0 };
        let reply = to.failed(5, &"\u{e9}".repeat(3000));
        assert_eq!(decode_error(&reply[20..]).unwrap().1, "\u{e9}".repeat(2048));
    }

    #[test]
    fn magic_numbers_belong_to_their_headers() {
        let magic = |number: u32| number.to_be_bytes();
        assert!(Header::size(magic(STRUCTURED_MAGIC), Headers::Simple).is_err());
        assert!(Header::size(magic(SIMPLE_MAGIC), Headers::Extended).is_err());
        assert!(Header::size(magic(EXTENDED_MAGIC), Headers::Structured).is_err());
    }
}
