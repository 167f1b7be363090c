//! Why a stream cannot be read or kept, for errors of members.

use std::io;

use crate::store::KeepError;

/// The words for a stream that cannot be read.
pub(crate) fn broken(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::UnexpectedEof => "ends too early: it is truncated".into(),
        _ => error.to_string(),
    }
}

/// Why contents could not be kept, for a member's error.
pub(crate) fn kept(error: &KeepError) -> String {
    match error {
        KeepError::Read(error) => broken(error),
        KeepError::Write(directory, error) => {
            format!("its contents cannot be kept in {}: {error}", directory.display())
        }
        KeepError::TooMuch(limit) => {
            format!(
                "the contents have more than the {limit} bytes of the image: give a larger --size"
            )
        }
    }
}
