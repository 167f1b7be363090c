//! Device errors: a kind to match on, the operation, the place and the cause.

use std::fmt;
use std::sync::Arc;

use cairn_base::memory::NoMemory;
use cairn_base::runtime::NoThread;
use cairn_base::system_error;

use crate::zoned::ZoneViolation;

/// Device result.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What the caller can do about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The medium or the system failed the transfer.
    Io,
    /// The request lies (partly) beyond the device's end, or breaks its alignment.
    OutOfRange,
    /// The device accepts no writes.
    ReadOnly,
    /// Another process holds the device's lock.
    InUse,
    /// The host has no space left for the image.
    NoSpace,
    /// What was to be made is there already.
    Exists,
    /// The image or device does not exist.
    NotFound,
    /// The caller may not open it.
    PermissionDenied,
    /// The device cannot do this.
    Unsupported,
    /// What lies between the file and the disk in it (qcow2, LUKS, zstd) has a feature, or is of a
    /// kind, that is not supported.
    UnsupportedFeature,
    /// A request that the device's zones do not allow.
    ZoneRule(ZoneViolation),
    /// The system has no memory for the transfer.
    NoMemory,
}

/// What was attempted.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Operation {
    /// [`crate::Request::Read`].
    Read,
    /// [`crate::Request::Write`].
    Write,
    /// [`crate::Request::Discard`].
    Discard,
    /// [`crate::Request::WriteZeroes`].
    WriteZeroes,
    /// A flush or preflush.
    Flush,
    /// Getting memory for a transfer.
    Allocate,
    /// Anything else ("open PATH", "reset zone"…).
    Named(String),
}

impl Operation {
    /// True if what the device holds may not be what it was told to hold.
    #[must_use]
    pub const fn changes(&self) -> bool {
        // A discard is only a hint, so its failure does not count.
        !matches!(self, Self::Read | Self::Discard | Self::Allocate)
    }
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Discard => "discard",
            Self::WriteZeroes => "write zeroes",
            Self::Flush => "flush",
            Self::Allocate => "allocate",
            Self::Named(name) => name,
        })
    }
}

impl From<&str> for Operation {
    fn from(name: &str) -> Self {
        Self::Named(name.to_owned())
    }
}

impl From<String> for Operation {
    fn from(name: String) -> Self {
        Self::Named(name)
    }
}

/// A system's error in the words of a message: without Rust's "(os error N)", and, since it stands
/// inside a line, without a capital.
#[must_use]
pub fn plain(error: &std::io::Error) -> String {
    if error.kind() == std::io::ErrorKind::NotConnected {
        return "the FUSE mount there has lost its daemon: unmount it first (fusermount3 -u)"
            .to_owned();
    }
    system_error::words(error)
}

/// A device error: kind, what was attempted, where, and the underlying cause.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{operation}{}: {detail}", self.place())]
pub struct Error {
    /// What to match on.
    pub kind: ErrorKind,
    /// What was attempted.
    pub operation: Operation,
    /// Byte offset and length, where the operation has any.
    pub range: Option<(u64, u64)>,
    /// The reason in words.
    pub detail: String,
    /// The system's own error.
    #[source]
    pub source: Option<Arc<std::io::Error>>,
}

impl Error {
    /// An error without an underlying system error.
    #[must_use]
    pub fn new(
        kind: ErrorKind,
        operation: impl Into<Operation>,
        detail: impl Into<String>,
    ) -> Self {
        Self { kind, operation: operation.into(), range: None, detail: detail.into(), source: None }
    }

    /// A request of `len` bytes that breaks a rule of its zone.
    pub(crate) fn zone_rule(
        violation: ZoneViolation,
        operation: impl Into<Operation>,
        len: u64,
    ) -> Self {
        Self::new(ErrorKind::ZoneRule(violation), operation, violation.to_string())
            .at(violation.offset, len)
    }

    /// Wraps a system error; the kind follows from it.
    #[must_use]
    pub fn from_io(operation: impl Into<Operation>, source: std::io::Error) -> Self {
        use std::io::ErrorKind as K;
        let kind = match source.kind() {
            K::NotFound => ErrorKind::NotFound,
            K::AlreadyExists => ErrorKind::Exists,
            K::PermissionDenied => ErrorKind::PermissionDenied,
            // No larger image can be: `ulimit -f`, or the host's filesystem.
            K::StorageFull | K::FileTooLarge => ErrorKind::NoSpace,
            K::ReadOnlyFilesystem => ErrorKind::ReadOnly,
            K::WouldBlock => ErrorKind::InUse,
            K::OutOfMemory => ErrorKind::NoMemory,
            _ => ErrorKind::Io,
        };
        // Of a lock that is held, the system says the same as of threads that are too many.
        let remedy = system_error::remedy(&source).filter(|_| kind != ErrorKind::InUse);
        let remedy = remedy.map_or(String::new(), |remedy| format!(": {remedy}"));
        Self {
            kind,
            operation: operation.into(),
            range: None,
            detail: plain(&source) + &remedy,
            source: Some(Arc::new(source)),
        }
    }

    /// Adds the place.
    #[must_use]
    pub fn at(mut self, offset: u64, len: u64) -> Self {
        self.range = Some((offset, len));
        self
    }

    /// Was there no memory for it, in this process?
    #[must_use]
    pub fn is_refusal(&self) -> bool {
        self.kind == ErrorKind::NoMemory && self.operation == Operation::Allocate
    }

    fn place(&self) -> String {
        match self.range {
            Some((offset, len)) => format!(" of {len} bytes at offset {offset}"),
            None => String::new(),
        }
    }
}

impl From<NoMemory> for Error {
    fn from(refused: NoMemory) -> Self {
        Self {
            source: Some(Arc::new(std::io::Error::other(refused))),
            ..Self::new(ErrorKind::NoMemory, Operation::Allocate, refused.to_string())
        }
    }
}

impl From<NoThread> for Error {
    fn from(refused: NoThread) -> Self {
        Self::new(ErrorKind::NoMemory, Operation::Allocate, refused.to_string())
    }
}
