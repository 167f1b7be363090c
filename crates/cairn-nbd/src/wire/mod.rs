//! Bytes of the protocol: decode, validate, encode; no I/O, no panics.
//!
//! Numbers are big-endian. Names and values are those of doc/proto.md in the protocol's repository;
//! extended headers are those of its branch `extension-ext-header`.

pub(crate) mod fields;
pub(crate) mod option;
pub(crate) mod reply;
pub(crate) mod request;

use bitflags::bitflags;

/// `NBD_INIT_MAGIC`, "NBDMAGIC".
pub(crate) const INIT_MAGIC: u64 = 0x4e42_444d_4147_4943;
/// What follows it in the old negotiation, which has no options.
pub(crate) const OLD_MAGIC: u64 = 0x0000_4202_8186_1253;
/// Longest text that either side may send.
pub(crate) const MAX_STRING: usize = 4096;
/// Payload that every server takes if it has not said otherwise.
pub(crate) const DEFAULT_PAYLOAD: u32 = 32 << 20;

bitflags! {
    /// What a server says before the options. The client's flags have the same bits.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(crate) struct HandshakeFlags: u16 {
        const FIXED_NEWSTYLE = 1;
        const NO_ZEROES = 1 << 1;
    }

    /// What an export can do.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(crate) struct ExportFlags: u16 {
        const HAS_FLAGS = 1;
        const READ_ONLY = 1 << 1;
        const SEND_FLUSH = 1 << 2;
        const SEND_FUA = 1 << 3;
        const SEND_TRIM = 1 << 5;
        const SEND_WRITE_ZEROES = 1 << 6;
        const SEND_DF = 1 << 7;
        const CAN_MULTI_CONN = 1 << 8;
        const SEND_FAST_ZERO = 1 << 11;
    }

    /// How a request is to be carried out.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub(crate) struct CommandFlags: u16 {
        const FUA = 1;
        const NO_HOLE = 1 << 1;
        const DF = 1 << 2;
        const REQ_ONE = 1 << 3;
        const FAST_ZERO = 1 << 4;
        const PAYLOAD_LEN = 1 << 5;
    }
}

/// The headers that both sides have agreed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Headers {
    /// `NBD_SIMPLE_REPLY_MAGIC` alone.
    Simple,
    /// Replies of chunks; simple ones where there is no data.
    Structured,
    /// Requests and replies of 32 bytes, lengths of 64 bits.
    Extended,
}

/// What requests may cover (`NBD_INFO_BLOCK_SIZE`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BlockSizes {
    /// Offsets and lengths are multiples of it.
    pub(crate) minimum: u32,
    /// Requests of this size are quick.
    pub(crate) preferred: u32,
    /// The longest payload.
    pub(crate) maximum: u32,
}

impl BlockSizes {
    /// What a client may expect of a server that says nothing.
    pub(crate) const UNKNOWN: Self =
        Self { minimum: 512, preferred: 4096, maximum: DEFAULT_PAYLOAD };

    /// True if the protocol allows them.
    pub(crate) const fn are_allowed(self) -> bool {
        let Self { minimum, preferred, maximum } = self;
        minimum.is_power_of_two()
            && minimum <= 1 << 16
            && preferred.is_power_of_two()
            && preferred >= 512
            && preferred >= minimum
            && maximum >= preferred
    }
}

/// The values of errors in replies. They are not those of the system that the server runs on.
pub(crate) mod errors {
    pub(crate) const EPERM: u32 = 1;
    pub(crate) const EIO: u32 = 5;
    pub(crate) const ENOMEM: u32 = 12;
    pub(crate) const EINVAL: u32 = 22;
    pub(crate) const ENOSPC: u32 = 28;
    pub(crate) const EOVERFLOW: u32 = 75;
    pub(crate) const ENOTSUP: u32 = 95;
    pub(crate) const ESHUTDOWN: u32 = 108;
}

/// Why what the other side sent cannot be part of the protocol.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Violation {
    /// Other bytes than the magic number of what must come.
    #[error("{what} begins with {found:#x}, which is not its magic number")]
    Magic {
        /// What was expected.
        what: &'static str,
        /// What came.
        found: u64,
    },
    /// More, or less, than what this message can have.
    #[error("{what} has {found} bytes, and can have {low} to {high}")]
    Length {
        /// The message.
        what: &'static str,
        /// What it says.
        found: u64,
        /// At least.
        low: u64,
        /// At most.
        high: u64,
    },
    /// A value that its field cannot have.
    #[error("{what} is {found}")]
    Value {
        /// The field.
        what: &'static str,
        /// What it says.
        found: u64,
    },
    /// A reply to a request that was not sent, or that was answered.
    #[error("an answer to request {0}, which is not under way")]
    Cookie(u64),
    /// Data that the request does not cover, or that came before.
    #[error("{len} bytes at offset {offset} in answer to a request of {of_len} bytes at {of}")]
    Range {
        /// Of the data.
        offset: u64,
        /// Of the data.
        len: u64,
        /// Of the request.
        of: u64,
        /// Of the request.
        of_len: u64,
    },
    /// A read was answered without all of its data.
    #[error("{missing} bytes are missing in the answer to a read at offset {offset}")]
    Missing {
        /// Of the read.
        offset: u64,
        /// Bytes that did not come.
        missing: u64,
    },
    /// More messages than any server needs.
    #[error("more than {0} messages in answer to one option")]
    TooMany(usize),
}

impl Violation {
    /// Checks a length.
    pub(crate) fn length(
        what: &'static str,
        found: u64,
        allowed: std::ops::RangeInclusive<u64>,
    ) -> Result<(), Self> {
        match allowed.contains(&found) {
            true => Ok(()),
            false => Err(Self::Length { what, found, low: *allowed.start(), high: *allowed.end() }),
        }
    }
}
