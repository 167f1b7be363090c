//! Errors of a journal.

use std::sync::Arc;

/// Journal result.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Journal errors.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The device failed.
    #[error(transparent)]
    Device(#[from] cairn_block::Error),
    /// The journal superblock or a log block holds an impossible value.
    #[error("journal block {block}: {what} is {value}, not {expected}")]
    Corrupt {
        /// Journal block (not a device address).
        block: u32,
        /// Field or structure.
        what: &'static str,
        /// Stored value.
        value: u64,
        /// What would be possible.
        expected: &'static str,
    },
    /// A checksum of the journal does not match.
    #[error("journal block {block}: the {what} has the checksum {stored:#x}, not {computed:#x}")]
    Checksum {
        /// Journal block.
        block: u32,
        /// Structure.
        what: &'static str,
        /// The checksum on disk.
        stored: u32,
        /// The checksum of the bytes on disk.
        computed: u32,
    },
    /// The journal has features that this crate does not know.
    #[error("the journal has unknown features {bits:#x} in {field}; a repair makes a new one")]
    UnknownFeatures {
        /// The word of features.
        field: &'static str,
        /// The unknown bits.
        bits: u32,
    },
    /// A handle asked for more credits than a transaction has.
    #[error(
        "{credits} blocks do not fit a transaction of this journal (at most {largest}); enlarge \
         the journal"
    )]
    TooLarge {
        /// Blocks asked for.
        credits: u32,
        /// Most that a transaction has.
        largest: u32,
    },
    /// The checkpoint daemon cannot keep this percentage of the log free.
    #[error(
        "async_checkpoint={percent}: give the share of the journal to be kept free in percent, 1 \
         to 99"
    )]
    Threshold {
        /// The percentage.
        percent: u8,
    },
    /// The journal was aborted after an earlier error.
    #[error("the journal was aborted: {0}")]
    Aborted(Arc<str>),
}

impl From<cairn_base::runtime::NoThread> for Error {
    fn from(refused: cairn_base::runtime::NoThread) -> Self {
        Self::Device(refused.into())
    }
}
