//! The crate's errors, and their conversion for callers of the filesystem trait.

use std::sync::Arc;

use cairn_base::memory::NoMemory;
use cairn_base::runtime::NoThread;
use cairn_block::ErrorKind;
use cairn_cache::file::CacheError;
use cairn_cache::mapper::MapError;
use cairn_vfs::Reach;

use crate::corrupt::Corrupt;

/// Result of F2FS internals.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What can go wrong inside an F2FS volume.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An error of every filesystem (not found, exists, no space…).
    #[error(transparent)]
    Vfs(#[from] cairn_vfs::Error),
    /// The bytes on disk are wrong.
    #[error(transparent)]
    Corrupt(#[from] Corrupt),
    /// The device failed, with the reason.
    #[error(transparent)]
    Device(#[from] cairn_block::Error),
    /// The device did not take a file's data.
    #[error(transparent)]
    Data(cairn_block::Error),
    /// An earlier failure stopped all writing.
    #[error("the volume has stopped: {0}")]
    Stopped(Arc<str>),
    /// Not an F2FS volume.
    #[error("no F2FS filesystem here (superblock magic is {found:#010x}, not 0xf2f52010)")]
    NotF2fs {
        /// The value in place of the magic number.
        found: u32,
    },
    /// A mount or mkfs option that is unknown, malformed, or does not fit the volume.
    #[error("{0}")]
    Option(String),
    /// A feature Cairn does not know or does not maintain.
    #[error("{0}")]
    Feature(String),
    /// A change of a volume that nobody has mounted is not possible for this volume.
    #[error("{0}")]
    Refused(String),
    /// A volume that nobody has mounted must be checked before it is changed.
    #[error("{0}")]
    NeedsCheck(String),
    /// The volume was unmounted.
    #[error("the volume is unmounted")]
    Unmounted,
}

impl Error {
    /// No space left.
    pub(crate) const NO_SPACE: Self = Self::Vfs(cairn_vfs::Error::NoSpace);

    /// True if the host of an image has no room for a write.
    #[must_use]
    pub(crate) fn is_full_host(&self) -> bool {
        match self {
            Self::Device(error) | Self::Data(error) => error.kind == ErrorKind::NoSpace,
            _ => false,
        }
    }

    /// How far the error reaches beyond the caller.
    #[must_use]
    pub(crate) fn reach(&self) -> Reach {
        match self {
            Self::Vfs(_)
            | Self::Option(_)
            | Self::Feature(_)
            | Self::Refused(_)
            | Self::NeedsCheck(_)
            | Self::NotF2fs { .. }
            | Self::Unmounted => Reach::Answer,
            Self::Corrupt(_) => Reach::Damage,
            Self::Data(_) => Reach::File,
            Self::Device(error) if error.kind == ErrorKind::ReadOnly => Reach::Answer,
            Self::Device(error) if !error.operation.changes() => Reach::Operation,
            Self::Device(_) | Self::Stopped(_) => Reach::Volume,
        }
    }
}

impl From<Error> for cairn_vfs::Error {
    fn from(error: Error) -> Self {
        match error {
            Error::Vfs(error) => error,
            Error::Corrupt(error) => Self::Corrupt(Arc::new(error)),
            Error::Device(error) | Error::Data(error) if error.is_refusal() => {
                Self::NoMemory(error.detail.into())
            }
            Error::Device(error) | Error::Data(error) => match error.kind {
                cairn_block::ErrorKind::ReadOnly => {
                    Self::ReadOnly("the device accepts no writes".into())
                }
                _ => Self::Io(Arc::new(error)),
            },
            Error::Stopped(reason) => Self::ReadOnly(reason),
            Error::Option(what) | Error::Refused(what) => Self::Option(what.into()),
            Error::Feature(what) => Self::ReadOnly(what.into()),
            other @ (Error::NotF2fs { .. } | Error::NeedsCheck(_) | Error::Unmounted) => {
                Self::Io(Arc::new(other))
            }
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
            // The mapper is this crate's, so its own error is returned unchanged.
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
