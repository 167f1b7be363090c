//! The argument of the ioctl that shuts a volume down (`EXT4_IOC_SHUTDOWN`, `F2FS_IOC_SHUTDOWN`).

use crate::error::{Error, Result};

/// How an ioctl ends a volume: `F2FS_GOING_DOWN_*`, of which ext4 has the first three
/// (`EXT4_GOING_FLAGS_*`), by the same numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GoingDown {
    /// Everything is written, then nothing more.
    FullSync,
    /// The journal is committed, or a checkpoint written, then nothing more.
    MetaSync,
    /// Nothing more is written.
    NoSync,
    /// Dirty metadata is written without a checkpoint, then nothing more: what counts is what
    /// counted before.
    MetaFlush,
    /// A checkpoint asks for fsck. The volume continues.
    NeedFsck,
}

impl GoingDown {
    /// Shuts down in one of the three ways that every format has.
    ///
    /// # Errors
    /// [`Error::Invalid`] for the others; otherwise those of `sync` and `shutdown`.
    pub(crate) fn of_any_format(
        self,
        sync: impl FnOnce() -> Result<()>,
        shutdown: impl FnOnce(bool) -> Result<()>,
    ) -> Result<()> {
        match self {
            Self::FullSync => sync().and_then(|()| shutdown(true)),
            Self::MetaSync => shutdown(true),
            Self::NoSync => shutdown(false),
            Self::MetaFlush | Self::NeedFsck => {
                Err(Error::Invalid("flags of a shutdown that only F2FS has"))
            }
        }
    }
}
