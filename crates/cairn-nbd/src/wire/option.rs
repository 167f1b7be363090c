//! Options, with which client and server agree on what follows, and their replies.

use super::fields::Fields;
use super::{BlockSizes, ExportFlags, MAX_STRING, Violation};

/// `IHAVEOPT`: before every option, and after [`super::INIT_MAGIC`].
pub(crate) const MAGIC: u64 = 0x4948_4156_454f_5054;
/// Before every reply to an option.
pub(crate) const REPLY_MAGIC: u64 = 0x0003_e889_0455_65a9;

/// Bytes of an option before its data.
pub(crate) const HEADER: usize = 16;
/// Bytes of a reply before its data.
pub(crate) const REPLY_HEADER: usize = 20;
/// Most data of an option, or of a reply, that is read: two texts and some numbers are fewer.
pub(crate) const MAX_DATA: u32 = 16 << 10;

pub(crate) const EXPORT_NAME: u32 = 1;
pub(crate) const ABORT: u32 = 2;
pub(crate) const LIST: u32 = 3;
pub(crate) const STARTTLS: u32 = 5;
pub(crate) const INFO: u32 = 6;
pub(crate) const GO: u32 = 7;
pub(crate) const STRUCTURED_REPLY: u32 = 8;
pub(crate) const LIST_META_CONTEXT: u32 = 9;
pub(crate) const SET_META_CONTEXT: u32 = 10;
pub(crate) const EXTENDED_HEADERS: u32 = 11;

pub(crate) const REP_ACK: u32 = 1;
pub(crate) const REP_SERVER: u32 = 2;
pub(crate) const REP_INFO: u32 = 3;
pub(crate) const REP_META_CONTEXT: u32 = 4;
/// Set in every reply that is an error.
pub(crate) const REP_ERR: u32 = 1 << 31;
pub(crate) const REP_ERR_UNSUP: u32 = REP_ERR + 1;
pub(crate) const REP_ERR_POLICY: u32 = REP_ERR + 2;
pub(crate) const REP_ERR_INVALID: u32 = REP_ERR + 3;
pub(crate) const REP_ERR_PLATFORM: u32 = REP_ERR + 4;
pub(crate) const REP_ERR_TLS_REQD: u32 = REP_ERR + 5;
pub(crate) const REP_ERR_UNKNOWN: u32 = REP_ERR + 6;
pub(crate) const REP_ERR_SHUTDOWN: u32 = REP_ERR + 7;
pub(crate) const REP_ERR_BLOCK_SIZE_REQD: u32 = REP_ERR + 8;
pub(crate) const REP_ERR_TOO_BIG: u32 = REP_ERR + 9;

pub(crate) const INFO_EXPORT: u16 = 0;
pub(crate) const INFO_NAME: u16 = 1;
pub(crate) const INFO_DESCRIPTION: u16 = 2;
pub(crate) const INFO_BLOCK_SIZE: u16 = 3;

/// The metadata context that says what is allocated.
pub(crate) const BASE_ALLOCATION: &str = "base:allocation";

/// An option without its data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) option: u32,
    pub(crate) len: u32,
}

impl Header {
    pub(crate) fn decode(bytes: &[u8; HEADER]) -> Result<Self, Violation> {
        let mut fields = Fields::new(bytes);
        let found = fields.u64().unwrap_or_default();
        if found != MAGIC {
            return Err(Violation::Magic { what: "an option", found });
        }
        let option = fields.u32().unwrap_or_default();
        Ok(Self { option, len: fields.u32().unwrap_or_default() })
    }
}

/// An option with its data.
pub(crate) fn encode(option: u32, data: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(HEADER + data.len());
    bytes.extend(MAGIC.to_be_bytes());
    bytes.extend(option.to_be_bytes());
    bytes.extend(len32(data).to_be_bytes());
    bytes.extend(data);
    bytes
}

/// A reply without its data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ReplyHeader {
    pub(crate) option: u32,
    pub(crate) kind: u32,
    pub(crate) len: u32,
}

impl ReplyHeader {
    pub(crate) fn decode(bytes: &[u8; REPLY_HEADER]) -> Result<Self, Violation> {
        let mut fields = Fields::new(bytes);
        let found = fields.u64().unwrap_or_default();
        if found != REPLY_MAGIC {
            return Err(Violation::Magic { what: "a reply to an option", found });
        }
        let option = fields.u32().unwrap_or_default();
        let kind = fields.u32().unwrap_or_default();
        let len = fields.u32().unwrap_or_default();
        Violation::length("a reply to an option", len.into(), 0..=MAX_DATA.into())?;
        Ok(Self { option, kind, len })
    }
}

/// A reply with its data.
pub(crate) fn encode_reply(option: u32, kind: u32, data: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(REPLY_HEADER + data.len());
    bytes.extend(REPLY_MAGIC.to_be_bytes());
    bytes.extend(option.to_be_bytes());
    bytes.extend(kind.to_be_bytes());
    bytes.extend(len32(data).to_be_bytes());
    bytes.extend(data);
    bytes
}

/// The length of what this crate has made, which is short.
fn len32(data: &[u8]) -> u32 {
    u32::try_from(data.len()).expect("a message of less than 4 GiB")
}

/// The data of [`GO`] and [`INFO`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Go {
    pub(crate) name: String,
    /// The kinds of information that are asked for.
    pub(crate) wanted: Vec<u16>,
}

impl Go {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut data = text(&self.name);
        let count = u16::try_from(self.wanted.len()).expect("a few kinds of information");
        data.extend(count.to_be_bytes());
        data.extend(self.wanted.iter().flat_map(|kind| kind.to_be_bytes()));
        data
    }

    pub(crate) fn decode(data: &[u8]) -> Option<Self> {
        let mut fields = Fields::new(data);
        let name = fields.text().filter(|name| name.len() <= MAX_STRING)?.to_owned();
        let count = fields.u16()?;
        let wanted = (0..count).map(|_| fields.u16()).collect::<Option<_>>()?;
        fields.is_empty().then_some(Self { name, wanted })
    }
}

/// The data of [`SET_META_CONTEXT`] and [`LIST_META_CONTEXT`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Contexts {
    pub(crate) name: String,
    pub(crate) queries: Vec<String>,
}

impl Contexts {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut data = text(&self.name);
        let count = u32::try_from(self.queries.len()).expect("a few queries");
        data.extend(count.to_be_bytes());
        data.extend(self.queries.iter().flat_map(|query| text(query)));
        data
    }

    pub(crate) fn decode(data: &[u8]) -> Option<Self> {
        let mut fields = Fields::new(data);
        let name = fields.text().filter(|name| name.len() <= MAX_STRING)?.to_owned();
        let count = fields.u32()?;
        let mut queries = Vec::new();
        // Each takes four bytes of the data at least, so this ends.
        for _ in 0..count {
            queries.push(fields.text()?.to_owned());
        }
        fields.is_empty().then_some(Self { name, queries })
    }
}

/// A text with its length before it.
pub(crate) fn text(text: &str) -> Vec<u8> {
    let mut bytes = len32(text.as_bytes()).to_be_bytes().to_vec();
    bytes.extend(text.as_bytes());
    bytes
}

/// One reply of [`REP_INFO`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Info {
    Export {
        size: u64,
        flags: ExportFlags,
    },
    BlockSizes(BlockSizes),
    Name(String),
    Description(String),
    /// One that is not known here.
    Other,
}

impl Info {
    pub(crate) fn encode(&self) -> Vec<u8> {
        match self {
            Self::Export { size, flags } => {
                let mut data = INFO_EXPORT.to_be_bytes().to_vec();
                data.extend(size.to_be_bytes());
                data.extend(flags.bits().to_be_bytes());
                data
            }
            Self::BlockSizes(BlockSizes { minimum, preferred, maximum }) => {
                let mut data = INFO_BLOCK_SIZE.to_be_bytes().to_vec();
                let sizes = [minimum, preferred, maximum];
                data.extend(sizes.iter().flat_map(|size| size.to_be_bytes()));
                data
            }
            Self::Name(name) => with_text(INFO_NAME, name),
            Self::Description(description) => with_text(INFO_DESCRIPTION, description),
            Self::Other => Vec::new(),
        }
    }

    pub(crate) fn decode(data: &[u8]) -> Result<Self, Violation> {
        let found = data.len() as u64;
        let wrong = |what, low| Violation::Length { what, found, low, high: low };
        let mut fields = Fields::new(data);
        let kind = fields.u16().ok_or_else(|| wrong("information about an export", 2))?;
        match kind {
            INFO_EXPORT => {
                let decoded = fields.u64().zip(fields.u16()).filter(|_| fields.is_empty());
                let (size, flags) = decoded.ok_or_else(|| wrong("an export's size", 12))?;
                Ok(Self::Export { size, flags: ExportFlags::from_bits_retain(flags) })
            }
            INFO_BLOCK_SIZE => {
                let mut next = || fields.u32().ok_or_else(|| wrong("an export's block sizes", 14));
                let (minimum, preferred, maximum) = (next()?, next()?, next()?);
                let sizes = BlockSizes { minimum, preferred, maximum };
                match fields.is_empty() && sizes.are_allowed() {
                    true => Ok(Self::BlockSizes(sizes)),
                    false => Err(Violation::Value {
                        what: "an export's smallest block, with the sizes beside it,",
                        found: minimum.into(),
                    }),
                }
            }
            _ => Ok(Self::Other),
        }
    }
}

fn with_text(kind: u16, text: &str) -> Vec<u8> {
    let mut data = kind.to_be_bytes().to_vec();
    data.extend(text.as_bytes());
    data
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_encoded_is_read_back() {
        let go = Go { name: "a b".into(), wanted: vec![INFO_BLOCK_SIZE, INFO_NAME] };
        assert_eq!(Go::decode(&go.encode()), Some(go));
        let contexts = Contexts { name: String::new(), queries: vec![BASE_ALLOCATION.into()] };
        assert_eq!(Contexts::decode(&contexts.encode()), Some(contexts));
        let flags = ExportFlags::HAS_FLAGS | ExportFlags::SEND_FUA;
        for info in [
            Info::Export { size: 1 << 40, flags },
            Info::BlockSizes(BlockSizes { minimum: 1, preferred: 4096, maximum: 1 << 25 }),
        ] {
            assert_eq!(Info::decode(&info.encode()).unwrap(), info);
        }
        let bytes = encode(GO, b"abc");
        let header = Header::decode(bytes[..HEADER].try_into().unwrap()).unwrap();
        assert_eq!(header, Header { option: GO, len: 3 });
        let bytes = encode_reply(GO, REP_ACK, &[]);
        let header = ReplyHeader::decode(bytes[..].try_into().unwrap()).unwrap();
        assert_eq!(header, ReplyHeader { option: GO, kind: REP_ACK, len: 0 });
    }

    #[test]
    fn lengths_that_lie_are_refused() {
        let whole = Go { name: "abc".into(), wanted: vec![1, 2] }.encode();
        for end in 0..whole.len() {
            assert_eq!(Go::decode(&whole[..end]), None, "{end}");
        }
        assert_eq!(Go::decode(&[whole, vec![0]].concat()), None);
        let many = [&text("a")[..], &u32::MAX.to_be_bytes()].concat();
        assert_eq!(Contexts::decode(&many), None);
        let long = encode_reply(GO, REP_INFO, &vec![0; MAX_DATA as usize + 1]);
        let header = long[..REPLY_HEADER].try_into().unwrap();
        assert!(matches!(ReplyHeader::decode(header), Err(Violation::Length { .. })));
        for sizes in [[0, 512, 512], [3, 512, 512], [512, 256, 512], [1 << 17, 1 << 17, 1 << 20]] {
            let mut data = INFO_BLOCK_SIZE.to_be_bytes().to_vec();
            data.extend(sizes.iter().flat_map(|size: &u32| size.to_be_bytes()));
            assert!(matches!(Info::decode(&data), Err(Violation::Value { .. })), "{sizes:?}");
            assert!(matches!(Info::decode(&data[..13]), Err(Violation::Length { .. })));
        }
    }
}
