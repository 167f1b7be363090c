//! [`Opener`]: the process that opened a volume, the only one that has its threads.

use std::fmt;
use std::io::{Error, ErrorKind, Result};

/// The process that opened a volume or a file of it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Opener(u32);

impl Opener {
    /// The calling process.
    pub(crate) fn this() -> Self {
        Self(std::process::id())
    }

    /// False in a child that was forked from it.
    pub(crate) fn is_here(self) -> bool {
        self.0 == std::process::id()
    }

    /// Refuses a call in a forked child, whose copy of the volume's memory nothing keeps true: a
    /// write from there would change the image behind the back of who has it open.
    ///
    /// # Errors
    /// [`Forked`].
    pub(crate) fn require(self) -> Result<()> {
        match self.is_here() {
            true => Ok(()),
            false => Err(Error::new(ErrorKind::PermissionDenied, Forked)),
        }
    }
}

/// A call in a forked child. Its errno is EPERM.
#[derive(Debug)]
pub(crate) struct Forked;

impl Forked {
    pub(crate) const TEXT: &str =
        "another process opened the volume: open the image again after fork()";
}

impl fmt::Display for Forked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(Self::TEXT)
    }
}

impl std::error::Error for Forked {}
