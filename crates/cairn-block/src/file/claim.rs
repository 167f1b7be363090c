//! [`BlockClaim`]: a block device is claimed apart from its use.

use std::fs::File;
use std::path::Path;

use rustix::fs::OFlags;

use super::kind;
use crate::error::Result;

/// The claim of one user on a block device (`O_EXCL`). While it lives, the kernel does not mount
/// the device, and no other program claims it. A regular file is opened, but not claimed.
#[derive(Debug)]
#[must_use]
pub struct BlockClaim(#[expect(dead_code, reason = "it holds the claim")] File);

impl BlockClaim {
    /// Claims the block device at `path`.
    ///
    /// # Errors
    /// [`ErrorKind::InUse`](crate::ErrorKind::InUse) if it is claimed; otherwise as
    /// [`FileDevice::open`](super::FileDevice::open).
    pub fn take(path: impl AsRef<Path>) -> Result<Self> {
        kind::existing(path.as_ref(), true, OFlags::EXCL).map(Self)
    }
}
