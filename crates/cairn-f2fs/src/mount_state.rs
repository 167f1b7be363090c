//! How a volume is mounted: the options in force, and whether it may be written.
//!
//! What an error means for the volume is decided in [`crate::stop`].
//!
//! Locking: all locks here are leaves, but for `access`: see [`crate::remount`].

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use cairn_base::ranked_lock::{Mutex, Rank};
use cairn_vfs::WriteAccess;

use crate::disk::Disk;
use crate::error::{Error, Result};
use crate::options::MountOptions;
use crate::store::Store;

/// The options in force, and whether the volume is writable, read-only or stopped.
pub(crate) struct MountState {
    pub(crate) disk: Arc<Disk>,
    options: Mutex<Arc<MountOptions>>,
    /// See [`crate::remount`].
    pub(crate) access: WriteAccess,
    /// Why the volume is read-only, from the mount on or since a remount or an error.
    read_only: Mutex<Option<Arc<str>>>,
    closed: AtomicBool,
    recovering: AtomicBool,
}

impl MountState {
    /// `read_only` is the reason for a read-only mount.
    pub(crate) fn new(disk: Arc<Disk>, options: MountOptions, read_only: Option<Arc<str>>) -> Self {
        keep_for_root(&disk, &options);
        Self {
            disk,
            options: Mutex::new(Rank::Leaf, Arc::new(options)),
            access: WriteAccess::default(),
            read_only: Mutex::new(Rank::Leaf, read_only),
            closed: AtomicBool::new(false),
            recovering: AtomicBool::new(false),
        }
    }

    /// The options in force.
    pub(crate) fn options(&self) -> Arc<MountOptions> {
        self.options.lock().clone()
    }

    /// Replaces the options in force.
    pub(crate) fn set_options(&self, options: MountOptions) {
        keep_for_root(&self.disk, &options);
        *self.options.lock() = Arc::new(options);
    }

    /// Why the volume is read-only, if it is.
    pub(crate) fn read_only_reason(&self) -> Option<Arc<str>> {
        let asked = self.read_only.lock().clone();
        asked.or_else(|| self.disk.store.as_ref().and_then(|store| store.operation_lock.stopped()))
    }

    /// True if the volume was turned read-only, not stopped.
    pub(crate) fn is_read_only(&self) -> bool {
        self.read_only.lock().is_some()
    }

    /// Turns the volume read-only, or writable. The caller has exclusive access.
    pub(crate) fn set_read_only(&self, reason: Option<Arc<str>>) {
        *self.read_only.lock() = reason;
    }

    /// The error for writes on a read-only volume. A stopped volume answers with
    /// [`crate::operation_lock::OperationLock::check`].
    pub(crate) fn refuse_write(&self) -> Error {
        let stopped = self.disk.store.as_ref().and_then(|store| store.operation_lock.check().err());
        stopped.unwrap_or_else(|| {
            let reason =
                self.read_only_reason().unwrap_or_else(|| "the volume is mounted read-only".into());
            Error::Vfs(cairn_vfs::Error::ReadOnly(reason))
        })
    }

    /// The store.
    ///
    /// # Errors
    /// The volume is only read.
    pub(crate) fn store(&self) -> Result<&Arc<Store>> {
        self.disk.store.as_ref().ok_or_else(|| self.refuse_write())
    }

    /// Fails if nothing may be written, with the reason.
    ///
    /// # Errors
    /// That.
    pub(crate) fn check_writable(&self) -> Result<()> {
        if self.read_only_reason().is_some() { Err(self.refuse_write()) } else { Ok(()) }
    }

    /// The volume is unmounted.
    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// See [`MountState::is_closed`].
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::Release);
    }

    /// Roll-forward runs: no checkpoint may be written.
    pub(crate) fn is_recovering(&self) -> bool {
        self.recovering.load(Ordering::Acquire)
    }

    /// See [`MountState::is_recovering`].
    pub(crate) fn set_recovering(&self, recovering: bool) {
        self.recovering.store(recovering, Ordering::Release);
    }
}

/// Reserves the blocks for root that the options ask for, or as many as possible.
fn keep_for_root(disk: &Disk, options: &MountOptions) {
    let wanted = u64::from(options.reserve_root);
    if let Some(store) = &disk.store {
        let kept = store.space.keep_for_root(wanted);
        if kept < wanted {
            tracing::warn!("reserve_root: {kept} blocks are kept for root, the most that can be");
        }
    }
}
