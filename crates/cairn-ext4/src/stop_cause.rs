//! Why nothing may be written to a volume.

use std::sync::Arc;

/// Why a volume is not written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StopCause {
    /// The option `ro`.
    Asked,
    /// A feature or the device forbids it.
    Unwritable,
    /// An error: for good.
    Failed,
    /// A shutdown that was asked for, or the end: for good.
    Ended,
}

impl StopCause {
    /// Nothing makes the volume writable again.
    pub(crate) fn is_final(self) -> bool {
        matches!(self, Self::Failed | Self::Ended)
    }
}

/// See [`StopCause`].
#[derive(Clone, Debug)]
pub(crate) struct Stopped {
    pub reason: Arc<str>,
    pub cause: StopCause,
}
