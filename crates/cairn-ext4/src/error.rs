//! The errors of the crate, and their conversion to those of [`cairn_vfs::FileSystem`].

use std::sync::Arc;

use cairn_base::memory::NoMemory;
use cairn_base::runtime::NoThread;
use cairn_block::ErrorKind;
use cairn_cache::file::CacheError;
use cairn_cache::mapper::MapError;
use cairn_vfs::Reach;

use crate::corrupt::Corrupt;

/// Result of ext4 internals.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Errors of an ext4 volume.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An error that every filesystem has: not found, exists, no space.
    #[error(transparent)]
    Vfs(#[from] cairn_vfs::Error),
    /// The bytes on disk are wrong.
    #[error(transparent)]
    Corrupt(#[from] Corrupt),
    /// The device failed. The source names the operation.
    #[error(transparent)]
    Device(#[from] cairn_block::Error),
    /// The device failed to write file data.
    #[error(transparent)]
    Data(cairn_block::Error),
    /// The journal failed or was aborted.
    #[error(transparent)]
    Journal(#[from] cairn_jbd2::Error),
    /// The journal cannot be replayed. Without it the volume shows an old state, parts of which
    /// nothing protects any more. The source has the place and the values.
    #[error("the journal cannot be replayed, so that the last changes are missing: {0}")]
    Unreplayable(Box<Self>),
    /// Not an ext2, ext3 or ext4 volume.
    #[error("no ext2, ext3 or ext4 filesystem here (superblock magic is {found:#06x}, not 0xef53)")]
    NotExt4 {
        /// The number at the place of the magic number.
        found: u16,
    },
    /// A mount or mkfs option is unknown, malformed or unsuitable for the volume.
    #[error("{0}")]
    Option(String),
    /// A feature that Cairn does not know or does not maintain.
    #[error("{0}")]
    Feature(String),
    /// A change of a volume that nobody has mounted is not possible for this volume.
    #[error("{0}")]
    Refused(String),
    /// A volume that nobody has mounted must be checked before it is changed.
    #[error("{0}")]
    NeedsCheck(String),
    /// A change of a volume that nobody has mounted failed in the middle.
    #[error("{source}: {left}")]
    Unfinished {
        /// Why.
        source: Box<Error>,
        /// The state of the volume, and what to do.
        left: String,
    },
}

impl Error {
    /// An error that says in which state a volume is left, and what to do.
    pub(crate) fn unfinished(source: Self, left: impl Into<String>) -> Self {
        Self::Unfinished { source: Box::new(source), left: left.into() }
    }

    /// The error as one that makes the journal useless, if it is of damage.
    pub(crate) fn of_journal(self) -> Self {
        use cairn_jbd2::Error as Journal;
        match self {
            Self::Journal(Journal::Corrupt { .. } | Journal::Checksum { .. })
            | Self::Corrupt(_)
            | Self::Vfs(_) => Self::Unreplayable(Box::new(self)),
            other => other,
        }
    }

    /// Whom the error concerns besides the caller.
    #[must_use]
    pub fn reach(&self) -> Reach {
        match self {
            Self::Vfs(_)
            | Self::Option(_)
            | Self::Feature(_)
            | Self::Refused(_)
            | Self::NeedsCheck(_)
            | Self::NotExt4 { .. } => Reach::Answer,
            Self::Corrupt(_) | Self::Unreplayable(_) => Reach::Damage,
            Self::Data(_) => Reach::File,
            Self::Device(error) if error.kind == ErrorKind::ReadOnly => Reach::Answer,
            Self::Device(error) if !error.operation.changes() => Reach::Operation,
            Self::Journal(cairn_jbd2::Error::Device(error)) if error.is_refusal() => {
                Reach::Operation
            }
            Self::Device(_) | Self::Journal(_) => Reach::Volume,
            Self::Unfinished { source, .. } => source.reach(),
        }
    }
}

impl From<Error> for cairn_vfs::Error {
    fn from(error: Error) -> Self {
        match error {
            Error::Vfs(error) => error,
            Error::Corrupt(error) => Self::Corrupt(Arc::new(error)),
            Error::Journal(cairn_jbd2::Error::Device(error)) if error.is_refusal() => {
                Self::NoMemory(error.detail.into())
            }
            Error::Device(error) | Error::Data(error) if error.is_refusal() => {
                Self::NoMemory(error.detail.into())
            }
            Error::Device(error) | Error::Data(error) => match error.kind {
                cairn_block::ErrorKind::ReadOnly => {
                    Self::ReadOnly("the device accepts no writes".into())
                }
                _ => Self::Io(Arc::new(error)),
            },
            Error::Option(what) | Error::Refused(what) => Self::Option(what.into()),
            Error::Feature(what) => Self::ReadOnly(what.into()),
            other => Self::Io(Arc::new(other)),
        }
    }
}

impl From<NoMemory> for Error {
    fn from(refused: NoMemory) -> Self {
        Self::Device(refused.into())
    }
}

impl From<NoThread> for Error {
    fn from(refused: NoThread) -> Self {
        Self::Device(refused.into())
    }
}

impl From<CacheError> for Error {
    fn from(error: CacheError) -> Self {
        match error {
            CacheError::Read(error) => Self::Device(error),
            CacheError::Write(error) => Self::Data(error),
            CacheError::Map(error) => error.into(),
        }
    }
}

impl From<MapError> for Error {
    fn from(error: MapError) -> Self {
        match error {
            MapError::NoSpace => Self::Vfs(cairn_vfs::Error::NoSpace),
            MapError::TooLarge => Self::Vfs(cairn_vfs::Error::TooLarge),
            // The mapper belongs to this crate, so its error is unwrapped.
            MapError::Other(source) => match source.downcast_ref::<Self>() {
                Some(error) => error.clone(),
                None => Self::Vfs(cairn_vfs::Error::Io(source)),
            },
        }
    }
}

impl From<Error> for MapError {
    fn from(error: Error) -> Self {
        match error {
            Error::Vfs(cairn_vfs::Error::NoSpace) => Self::NoSpace,
            Error::Vfs(cairn_vfs::Error::TooLarge) => Self::TooLarge,
            other => Self::Other(Arc::new(other)),
        }
    }
}
