//! What is wrong with an image, with place and values.

use std::fmt;

use cairn_block::{ErrorKind, Operation};

/// Result of this format.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why an image cannot be opened, read or written.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The device that holds the image, or a backing file, failed.
    #[error(transparent)]
    Device(#[from] cairn_block::Error),
    /// The image needs what is not done here.
    #[error("the qcow2 image {what}, which is not supported: {advice}")]
    Unsupported {
        /// What it has.
        what: String,
        /// What to do instead.
        advice: &'static str,
    },
    /// The image contradicts itself or the format.
    #[error("the qcow2 image is damaged: {0}: see what qemu-img check says of it")]
    Damaged(#[from] Damage),
    /// The backing file could not be opened or read.
    #[error(
        "the backing file {name:?}, which the header of the qcow2 image names: {}",
        told(source)
    )]
    Backing {
        /// Its name in the image.
        name: String,
        /// Why.
        source: Box<cairn_block::Error>,
    },
    /// A chain of backing files that is too long, or returns to itself.
    #[error(
        "{0} qcow2 images back each other: that is a loop, or a chain to shorten with qemu-img \
         rebase"
    )]
    Chain(u32),
    /// What the caller asked for cannot be.
    #[error("{0}")]
    Refused(String),
}

/// A part of an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum What {
    /// The header.
    Header,
    /// The L1 table.
    L1,
    /// An L2 table.
    L2,
    /// A cluster with data of the disk.
    Data,
    /// A compressed cluster.
    Compressed,
    /// The refcount table.
    RefcountTable,
    /// A refcount block.
    RefcountBlock,
    /// The table of snapshots.
    Snapshots,
    /// The L1 table of a snapshot.
    SnapshotL1,
}

impl fmt::Display for What {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Header => "the header",
            Self::L1 => "the L1 table",
            Self::L2 => "an L2 table",
            Self::Data => "a data cluster",
            Self::Compressed => "a compressed cluster",
            Self::RefcountTable => "the refcount table",
            Self::RefcountBlock => "a refcount block",
            Self::Snapshots => "the table of snapshots",
            Self::SnapshotL1 => "the L1 table of a snapshot",
        })
    }
}

/// What contradicts the format.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Damage {
    /// A field of the header.
    #[error("{field} of the header is {value}, {rule}")]
    Header {
        /// The field's name in the format's description.
        field: &'static str,
        /// Its value.
        value: u64,
        /// What it must be.
        rule: &'static str,
    },
    /// An offset that is no multiple of its unit.
    #[error("{what} begins at offset {offset}, no multiple of {unit}")]
    Unaligned {
        /// Of what.
        what: What,
        /// Where it begins.
        offset: u64,
        /// Bytes.
        unit: u64,
    },
    /// Something outside of the file.
    #[error("{what} of {len} bytes at offset {offset} lies beyond the end of the file at {end}")]
    Beyond {
        /// What.
        what: What,
        /// Where it begins.
        offset: u64,
        /// Bytes.
        len: u64,
        /// The size of the file.
        end: u64,
    },
    /// An entry of a table with bits that must be 0.
    #[error("entry {index} of {what} is {entry:#018x}: bits {bits:#x} must be 0")]
    Reserved {
        /// The table.
        what: What,
        /// The entry's number; for an L2 table the number of the disk's cluster.
        index: u64,
        /// Its value.
        entry: u64,
        /// The bits.
        bits: u64,
    },
    /// A cluster to be written belongs to something else.
    #[error("{what} lies at offset {offset}, where the image has tables of its own")]
    Overlap {
        /// What should be written.
        what: What,
        /// Where.
        offset: u64,
    },
    /// A compressed cluster that cannot be decoded.
    #[error("the compressed cluster of {len} bytes at offset {offset}: {reason}")]
    Compressed {
        /// Where it begins.
        offset: u64,
        /// Bytes of the file.
        len: u64,
        /// Why.
        reason: String,
    },
    /// A refcount that does not fit.
    #[error("the cluster at offset {offset} would have the refcount {count}, more than {most}")]
    Refcount {
        /// The cluster.
        offset: u64,
        /// The refcount that would be.
        count: u64,
        /// The largest that fits.
        most: u64,
    },
    /// A refcount that is too small.
    #[error("the cluster at offset {offset} was in use, but its refcount was 0")]
    Uncounted {
        /// The cluster.
        offset: u64,
    },
}

/// What has failed, in errors of this device.
const USE: &str = "virtual disk";
const USE_BACKING: &str = "backing file of the virtual disk";

impl From<Error> for cairn_block::Error {
    fn from(error: Error) -> Self {
        let kind = match &error {
            Error::Device(device) => return device.clone(),
            Error::Backing { source, .. } => {
                let Self { kind, source: of_system, .. } = &**source;
                let made = Self::new(*kind, USE_BACKING, error.to_string());
                return Self { source: of_system.clone(), ..made };
            }
            Error::Unsupported { .. } => ErrorKind::UnsupportedFeature,
            Error::Refused(_) => ErrorKind::Unsupported,
            Error::Damaged(_) | Error::Chain(_) => ErrorKind::Io,
        };
        Self::new(kind, USE, error.to_string())
    }
}

/// An error of a backing file. That it is a virtual disk was said.
fn told(error: &cairn_block::Error) -> String {
    match &error.operation {
        Operation::Named(name) if name == USE => error.detail.clone(),
        _ => error.to_string(),
    }
}

impl Error {
    /// The error of a backing file. In a chain of them, the one that failed is named.
    pub(super) fn backing(name: &str, source: cairn_block::Error) -> Self {
        match &source.operation {
            Operation::Named(operation) if operation == USE_BACKING => Self::Device(source),
            _ => Self::Backing { name: name.to_owned(), source: Box::new(source) },
        }
    }

    /// Something that is not done here.
    pub(super) fn unsupported(what: impl Into<String>, advice: &'static str) -> Self {
        Self::Unsupported { what: what.into(), advice }
    }
}
