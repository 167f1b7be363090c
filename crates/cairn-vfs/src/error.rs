//! The error that a caller of the filesystem gets. Each error has one errno.

use std::sync::Arc;

use cairn_base::memory::NoMemory;

/// Result of a filesystem call.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Errors of [`crate::FileSystem`], each with its errno.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// ENOENT
    #[error("no such file or directory")]
    NotFound,
    /// EEXIST
    #[error("file exists")]
    Exists,
    /// ENOTDIR
    #[error("not a directory")]
    NotDirectory,
    /// EISDIR
    #[error("is a directory")]
    IsDirectory,
    /// ENOTEMPTY
    #[error("directory not empty")]
    NotEmpty,
    /// ENOSPC
    #[error("no space left on the volume")]
    NoSpace,
    /// ENOSPC: the inode has no room for another attribute, however much space the volume has
    #[error(
        "no room for this extended attribute beside the inode's others: make it smaller or remove \
         some"
    )]
    NoAttributeSpace,
    /// EFBIG
    #[error("file too large")]
    TooLarge,
    /// ENAMETOOLONG
    #[error("name too long (at most 255 bytes)")]
    NameTooLong,
    /// ENAMETOOLONG
    #[error(
        "target too long (that of a symbolic link has at most 4095 bytes, and less than a block)"
    )]
    TargetTooLong,
    /// EMLINK
    #[error("too many links")]
    TooManyLinks,
    /// EINVAL
    #[error("invalid argument: {0}")]
    Invalid(&'static str),
    /// EINVAL: an option is unknown, malformed or cannot be set now; the text names it
    #[error("{0}")]
    Option(Arc<str>),
    /// EPERM
    #[error("operation not permitted")]
    NotPermitted,
    /// ENOMEM: the system has no memory for this request, which changed nothing; the text names the
    /// purpose of the memory
    #[error("{0}")]
    NoMemory(Arc<str>),
    /// EACCES
    #[error("permission denied")]
    AccessDenied,
    /// EROFS; the reason is an option, the format or an earlier error
    #[error("read-only: {0}")]
    ReadOnly(Arc<str>),
    /// EOPNOTSUPP
    #[error("not supported: {0}")]
    Unsupported(&'static str),
    /// ENOKEY: what a file, a name or a target is cannot be read without the key, which is not here
    #[error("encrypted, and there is no key here: use Linux with its key")]
    Encrypted,
    /// ENODATA
    #[error("no such extended attribute")]
    NoAttribute,
    /// ERANGE: no extended attribute can have such a name
    #[error("the name of an extended attribute has 1 to 255 bytes, with its prefix")]
    Range,
    /// E2BIG
    #[error("attribute value too large")]
    TooBig,
    /// ENXIO (SEEK_DATA / SEEK_HOLE beyond the end)
    #[error("no data beyond this offset")]
    NoData,
    /// ELOOP
    #[error("too many levels of symbolic links")]
    Loop,
    /// EBUSY
    #[error("busy")]
    Busy,
    /// EBUSY
    #[error("the volume is frozen: thaw it first")]
    Frozen,
    /// EINVAL
    #[error("the volume is not frozen: there is nothing to thaw")]
    NotFrozen,
    /// EXDEV
    #[error("source and target are on different filesystems")]
    CrossDevice,
    /// ESTALE: the inode number is not in use
    #[error("stale inode number")]
    Stale,
    /// ETXTBSY
    #[error("text file busy")]
    TextBusy,
    /// EUCLEAN: the bytes on disk are wrong; the source names place and values
    #[error("corrupt filesystem: {0}")]
    Corrupt(Arc<dyn std::error::Error + Send + Sync>),
    /// EIO: the device failed, or the volume stopped after an earlier failure
    #[error("input/output error: {0}")]
    Io(Arc<dyn std::error::Error + Send + Sync>),
    /// EINTR
    #[error("interrupted")]
    Interrupted,
}

/// The kind is that of Linux's error, and the error is the source.
impl From<Error> for std::io::Error {
    fn from(error: Error) -> Self {
        let kind = Self::from_raw_os_error(error.errno()).kind();
        Self::new(kind, error)
    }
}

/// The source of [`Error::stopped`].
#[derive(Debug, thiserror::Error)]
#[error("the volume has stopped: {0}: close it, check it, and open it again")]
struct Stopped(Arc<str>);

impl From<NoMemory> for Error {
    fn from(refused: NoMemory) -> Self {
        Self::NoMemory(refused.to_string().into())
    }
}

impl Error {
    /// The error for requests that need the device after the volume has stopped for `reason`.
    #[must_use]
    pub fn stopped(reason: &Arc<str>) -> Self {
        Self::Io(Arc::new(Stopped(reason.clone())))
    }

    /// Why the volume has stopped, if that is what this says.
    #[must_use]
    pub fn stop_reason(&self) -> Option<&str> {
        match self {
            Self::Io(source) => source.downcast_ref::<Stopped>().map(|stopped| &*stopped.0),
            _ => None,
        }
    }

    /// The positive Linux errno of this error.
    #[must_use]
    pub const fn errno(&self) -> i32 {
        match self {
            Self::NotPermitted => 1,
            Self::NotFound => 2,
            Self::Interrupted => 4,
            Self::Io(_) => 5,
            Self::NoData => 6,
            Self::TooBig => 7,
            Self::NoMemory(_) => 12,
            Self::AccessDenied => 13,
            Self::Busy | Self::Frozen => 16,
            Self::Exists => 17,
            Self::CrossDevice => 18,
            Self::NotDirectory => 20,
            Self::IsDirectory => 21,
            Self::Invalid(_) | Self::Option(_) | Self::NotFrozen => 22,
            Self::TextBusy => 26,
            Self::TooLarge => 27,
            Self::NoSpace | Self::NoAttributeSpace => 28,
            Self::ReadOnly(_) => 30,
            Self::TooManyLinks => 31,
            Self::Range => 34,
            Self::NameTooLong | Self::TargetTooLong => 36,
            Self::NotEmpty => 39,
            Self::Loop => 40,
            Self::NoAttribute => 61,
            Self::Unsupported(_) => 95,
            Self::Stale => 116,
            Self::Corrupt(_) => 117,
            Self::Encrypted => 126,
        }
    }
}
