//! Errors that end an experiment early.

use std::path::Path;

/// Result of a measurement.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why an experiment ended early.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A call on a volume failed.
    #[error("a call on the volume failed: {0}")]
    Volume(#[from] cairn_vfs::Error),
    /// A volume could not be opened.
    #[error("the volume could not be opened: {0}")]
    Open(#[from] cairn::Cause),
    /// An ext4 volume could not be created.
    #[error("the volume could not be made: {0}")]
    Make(#[from] cairn_ext4::Error),
    /// An F2FS volume could not be created.
    #[error("the volume could not be made: {0}")]
    MakeF2fs(#[from] cairn_f2fs::mkfs::Error),
    /// An F2FS volume could not be opened.
    #[error("the volume could not be opened: {0}")]
    F2fs(#[from] cairn_f2fs::Error),
    /// The device failed.
    #[error(transparent)]
    Device(#[from] cairn_block::Error),
    /// A system call failed.
    #[error("{what}: {source}")]
    Host {
        /// File or action.
        what: String,
        /// The system's error.
        source: std::io::Error,
    },
    /// Another program failed, or gave an unexpected result.
    #[error("{0}")]
    Program(String),
    /// A thread of the experiment panicked.
    #[error("a thread of the experiment panicked")]
    Panicked,
}

impl Error {
    /// Makes a function for `map_err` of a system call.
    pub(crate) fn host(what: impl AsRef<Path>) -> impl FnOnce(std::io::Error) -> Self {
        let what = what.as_ref().display().to_string();
        move |source| Self::Host { what, source }
    }
}
