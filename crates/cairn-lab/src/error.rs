//! What ends an experiment early.

use std::path::Path;

/// Result of a measurement.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why an experiment could not go on.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A call on a volume failed.
    #[error("a call on the volume failed: {0}")]
    Volume(#[from] cairn_vfs::Error),
    /// A volume could not be opened.
    #[error("the volume could not be opened: {0}")]
    Open(#[from] cairn::Cause),
    /// A volume could not be made.
    #[error("the volume could not be made: {0}")]
    Make(#[from] cairn_ext4::Error),
    /// An F2FS volume could not be made.
    #[error("the volume could not be made: {0}")]
    MakeF2fs(#[from] cairn_f2fs::mkfs::Error),
    /// An F2FS volume could not be opened.
    #[error("the volume could not be opened: {0}")]
    F2fs(#[from] cairn_f2fs::Error),
    /// The device failed.
    #[error(transparent)]
    Device(#[from] cairn_block::Error),
    /// A call on the host failed.
    #[error("{what}: {source}")]
    Host {
        /// File or action.
        what: String,
        /// The system's answer.
        source: std::io::Error,
    },
    /// Another program did not do what was asked.
    #[error("{0}")]
    Program(String),
    /// A thread of the experiment panicked.
    #[error("a thread of the experiment panicked")]
    Panicked,
}

impl Error {
    /// For `map_err` of calls on the host.
    pub(crate) fn host(what: impl AsRef<Path>) -> impl FnOnce(std::io::Error) -> Self {
        let what = what.as_ref().display().to_string();
        move |source| Self::Host { what, source }
    }
}
