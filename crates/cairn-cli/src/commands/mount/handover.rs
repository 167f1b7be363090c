//! A block device goes over from the daemon, which has claimed it to open the volume, to the
//! kernel, which claims it for the mount.

use std::cell::RefCell;
use std::path::Path;

use cairn::{FileSystem, ImageSpec, Volume};
use cairn_block::file::BlockClaim;

/// Bytes of a block on the kernel's side. Block devices have at most this.
pub(super) const BLOCK_SIZE: u32 = 4096;

/// The block device of a volume, and the daemon's claim on it.
pub(super) struct Handover<'a> {
    /// The device.
    pub(super) path: &'a Path,
    claim: RefCell<Option<BlockClaim>>,
}

impl<'a> Handover<'a> {
    /// Of a volume that was opened for it. `None` if it is not on a block device.
    pub(super) fn of(image: &'a ImageSpec, volume: &mut Volume) -> Option<Self> {
        let claim = volume.take_claim()?;
        Some(Self { path: image.file()?, claim: RefCell::new(Some(claim)) })
    }

    /// Lets the kernel claim the device.
    pub(super) fn release(&self) {
        self.claim.take();
    }

    /// The kernel has refused the mount. If another program has claimed the device meanwhile, the
    /// volume must not be written any more.
    pub(super) fn take_back(&self, filesystem: &dyn FileSystem) {
        if self.claim.borrow().is_some() {
            return;
        }
        match BlockClaim::take(self.path) {
            Ok(claim) => *self.claim.borrow_mut() = Some(claim),
            Err(error) => {
                tracing::error!("{error}");
                // The error says what the user has to know.
                let _ = filesystem.abandon("another program has claimed the block device");
            }
        }
    }
}
