//! The end of a volume, which two may bring: the kernel's last request of a mount on a block
//! device, and the daemon when it has served all.

use std::sync::{Arc, Mutex, PoisonError};

use cairn::FileSystem;
use cairn_vfs::Result;

/// A volume that is closed once.
pub(super) struct Closing {
    filesystem: Arc<dyn FileSystem>,
    outcome: Mutex<Option<Result<()>>>,
}

impl Closing {
    /// Of an open volume.
    pub(super) fn new(filesystem: Arc<dyn FileSystem>) -> Self {
        Self { filesystem, outcome: Mutex::default() }
    }

    /// The volume.
    pub(super) fn filesystem(&self) -> &Arc<dyn FileSystem> {
        &self.filesystem
    }

    /// Closes the volume, if that has not been done.
    pub(super) fn close(&self) {
        let mut outcome = self.outcome.lock().unwrap_or_else(PoisonError::into_inner);
        outcome.get_or_insert_with(|| self.filesystem.unmount());
    }

    /// Closes the volume, if that has not been done, and returns how that ended.
    ///
    /// # Errors
    /// As [`FileSystem::unmount`].
    pub(super) fn outcome(&self) -> Result<()> {
        self.close();
        let mut outcome = self.outcome.lock().unwrap_or_else(PoisonError::into_inner);
        outcome.take().unwrap_or(Ok(()))
    }
}
