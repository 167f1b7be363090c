//! Why a stream cannot be read or kept, for errors of members.

use std::io;

use crate::error::Error;
use crate::store::KeepError;

/// The words for a stream that cannot be read.
pub(crate) fn broken(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::UnexpectedEof => "ends too early: it is truncated".into(),
        _ => error.to_string(),
    }
}

/// The error of contents that could not be kept. `of` makes one of the member, or of its archive.
pub(crate) fn not_kept(error: KeepError, of: impl FnOnce(String) -> Error) -> Error {
    match error {
        KeepError::Read(error) => of(broken(&error)),
        KeepError::Write(directory, error) => Error::Scratch { directory, source: error },
        KeepError::TooMuch(limit) => of(format!(
            "the contents have more than the {limit} bytes of the image: give a larger size"
        )),
    }
}

/// Why contents could not be kept, for an error that names more.
pub(crate) fn kept(error: KeepError) -> String {
    not_kept(error, Error::Usage).to_string()
}
