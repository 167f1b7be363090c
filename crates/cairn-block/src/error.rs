//! What can go wrong with a device: a kind to act on, the place, and the cause.

use std::sync::Arc;

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
    /// Somebody else holds the device's lock.
    InUse,
    /// The host has no space left for the image.
    NoSpace,
    /// The image or device does not exist.
    NotFound,
    /// The caller may not open it.
    PermissionDenied,
    /// The device cannot do this.
    Unsupported,
    /// A request that the device's zones do not allow.
    ZoneRule(ZoneViolation),
}

/// A device error: kind, what was attempted, where, and the underlying cause.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{operation}{}: {detail}", self.place())]
pub struct Error {
    /// What to match on.
    pub kind: ErrorKind,
    /// The attempted operation ("read", "write", "flush", "open PATH"…).
    pub operation: String,
    /// Byte offset and length, where the operation has any.
    pub range: Option<(u64, u64)>,
    /// The reason in words.
    pub detail: String,
    /// The system's own error.
    #[source]
    pub source: Option<Arc<std::io::Error>>,
}

impl Error {
    /// Did the device fail to take what it was given? (One that accepts no writes at all did not fail.)
    #[must_use]
    pub fn is_write_failure(&self) -> bool {
        let writing = ["write", "flush"].iter().any(|word| self.operation.contains(word));
        writing && self.kind != ErrorKind::ReadOnly
    }

    /// An error without an underlying system error.
    #[must_use]
    pub fn new(kind: ErrorKind, operation: impl Into<String>, detail: impl Into<String>) -> Self {
        Self { kind, operation: operation.into(), range: None, detail: detail.into(), source: None }
    }

    /// Wraps a system error; the kind follows from it.
    #[must_use]
    pub fn from_io(operation: impl Into<String>, source: std::io::Error) -> Self {
        use std::io::ErrorKind as K;
        let kind = match source.kind() {
            K::NotFound => ErrorKind::NotFound,
            K::PermissionDenied => ErrorKind::PermissionDenied,
            K::StorageFull => ErrorKind::NoSpace,
            K::ReadOnlyFilesystem => ErrorKind::ReadOnly,
            K::WouldBlock => ErrorKind::InUse,
            _ => ErrorKind::Io,
        };
        Self {
            kind,
            operation: operation.into(),
            range: None,
            detail: source.to_string(),
            source: Some(Arc::new(source)),
        }
    }

    /// Adds the place.
    #[must_use]
    pub fn at(mut self, offset: u64, len: u64) -> Self {
        self.range = Some((offset, len));
        self
    }

    fn place(&self) -> String {
        match self.range {
            Some((offset, len)) => format!(" of {len} bytes at offset {offset}"),
            None => String::new(),
        }
    }
}
