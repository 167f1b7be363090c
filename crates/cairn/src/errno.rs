//! Linux's error numbers of this library's errors, for callers that know no others: C and Python.

use std::io::{self, ErrorKind};

use cairn_block::ErrorKind as DeviceKind;

use crate::error::{Cause, Class, Error};
use crate::process::Forked;

const EPERM: i32 = 1;
const EIO: i32 = 5;

/// The positive Linux errno of an error of [`crate::fs`], or of an [`Error`] in an [`io::Error`].
#[must_use]
pub fn errno(error: &io::Error) -> i32 {
    if let Some(number) = error.raw_os_error() {
        return number;
    }
    let inner = error.get_ref();
    if let Some(error) = inner.and_then(|inner| inner.downcast_ref::<cairn_vfs::Error>()) {
        return error.errno();
    }
    if let Some(error) = inner.and_then(|inner| inner.downcast_ref::<Error>()) {
        return error.errno();
    }
    if inner.is_some_and(|inner| inner.is::<Forked>()) {
        return EPERM;
    }
    match error.kind() {
        ErrorKind::NotFound => 2,
        ErrorKind::Interrupted => 4,
        // A file that was not opened for this.
        ErrorKind::PermissionDenied => 9,
        ErrorKind::OutOfMemory => 12,
        ErrorKind::AlreadyExists => 17,
        ErrorKind::NotADirectory => 20,
        ErrorKind::IsADirectory => 21,
        ErrorKind::InvalidInput | ErrorKind::InvalidData => 22,
        ErrorKind::WriteZero | ErrorKind::StorageFull => 28,
        ErrorKind::ReadOnlyFilesystem => 30,
        ErrorKind::DirectoryNotEmpty => 39,
        ErrorKind::Unsupported => 95,
        _ => EIO,
    }
}

impl Error {
    /// The positive Linux errno that says the most about it.
    #[must_use]
    pub fn errno(&self) -> i32 {
        match self.cause() {
            Cause::Address(_)
            | Cause::Option(_)
            | Cause::NoSize { .. }
            | Cause::NoUndoFile
            | Cause::OffsetBeyondEnd { .. } => 22,
            Cause::Refused(_) | Cause::Undo(_) | Cause::NoFeature { .. } => 95,
            Cause::HostFull { .. } => 28,
            Cause::ReadOnly { .. } => 30,
            Cause::Open(error) | Cause::Device(error) => of_device(error),
            Cause::Encrypted { .. } => 126,
            Cause::NoSuchPartition { .. } | Cause::NoPartitionTable => 6,
            Cause::FurtherDevice { .. } => 2,
            Cause::PartitionTable { .. } | Cause::ShortDisk { .. } => 117,
            // What mount(2) answers to a volume of another kind.
            Cause::UnknownFormat { .. } => 22,
            Cause::WouldOverwrite { .. } => 17,
            Cause::Format { class, .. } => match class {
                Class::Corrupt | Class::Unreplayable | Class::TooShort => 117,
                Class::Unsupported => 95,
                Class::Io => EIO,
                Class::Usage => 22,
            },
        }
    }
}

/// The system's own number says the most, except of a lock that is held.
fn of_device(error: &cairn_block::Error) -> i32 {
    let source = error.source.as_deref();
    if let Some(number) = source.and_then(io::Error::raw_os_error)
        && error.kind != DeviceKind::InUse
    {
        return number;
    }
    match error.kind {
        // What std refuses itself, such as a size beyond 2^63.
        DeviceKind::Io if source.is_some_and(|of| of.kind() == ErrorKind::InvalidInput) => 22,
        DeviceKind::NotFound => 2,
        DeviceKind::NoMemory => 12,
        DeviceKind::Exists => 17,
        DeviceKind::PermissionDenied => 13,
        DeviceKind::InUse => 16,
        DeviceKind::OutOfRange => 22,
        DeviceKind::NoSpace => 28,
        DeviceKind::ReadOnly => 30,
        DeviceKind::Unsupported | DeviceKind::UnsupportedFeature => 95,
        _ => EIO,
    }
}

/// The kind is that of Linux's error, and the error is the source.
impl From<Error> for io::Error {
    fn from(error: Error) -> Self {
        let kind = Self::from_raw_os_error(error.errno()).kind();
        Self::new(kind, error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_keeps_its_number_inside_another() {
        for (cause, number, kind) in [
            (Cause::WouldOverwrite { found: "a".into() }, 17, ErrorKind::AlreadyExists),
            (Cause::Address("a".into()), 22, ErrorKind::InvalidInput),
            (Cause::HostFull { free: 1, needed: None }, 28, ErrorKind::StorageFull),
        ] {
            let error = io::Error::from(Error::new("d", cause));
            assert_eq!((errno(&error), error.kind()), (number, kind));
            assert!(error.to_string().starts_with("d: "), "{error}");
        }
        for inner in [cairn_vfs::Error::NotEmpty, cairn_vfs::Error::NoSpace] {
            assert_eq!(errno(&inner.clone().into()), inner.errno());
        }
        assert_eq!(errno(&io::Error::from_raw_os_error(11)), 11);
        assert_eq!(errno(&ErrorKind::IsADirectory.into()), 21);
        let image = crate::ImageSpec::whole("/");
        let error = crate::open(&image, &crate::OpenOptions::read_only()).err().unwrap();
        assert_eq!(error.errno(), 21, "{error}");
        assert_eq!(io::Error::from(error).kind(), ErrorKind::IsADirectory);
        assert_eq!(errno(&io::Error::new(ErrorKind::PermissionDenied, "not for writing")), 9);
    }
}
