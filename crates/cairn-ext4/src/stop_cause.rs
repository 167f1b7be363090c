//! Why nothing may be written to a volume.

use std::sync::Arc;

/// Why a volume is not writable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StopCause {
    /// The option `ro`.
    Asked,
    /// A feature or the device forbids it.
    Unwritable,
    /// An error; it is final.
    Failed,
    /// A shutdown on request, or the unmount; it is final.
    Ended,
}

impl StopCause {
    /// True if the volume cannot become writable again.
    pub(crate) fn is_final(self) -> bool {
        matches!(self, Self::Failed | Self::Ended)
    }
}

/// The cause, and the reason in words.
#[derive(Clone, Debug)]
pub(crate) struct Stopped {
    pub reason: Arc<str>,
    pub cause: StopCause,
}
