//! How a volume is mounted: where changes go, the options in force, and whether it may be written.
//!
//! What an error means for the volume is decided in [`crate::stop`], and recorded in
//! [`crate::damage`].
//!
//! Locking: all locks here are leaves, but for `access`: see [`crate::remount`].

use std::ops::Deref;
use std::sync::{Arc, Weak};

use cairn_base::ranked_lock::{Mutex, Rank, RwLock};
use cairn_jbd2::Journal;
use cairn_vfs::WriteAccess;

use crate::credits::Credits;
use crate::damage_log::DamageLog;
use crate::error::Result;
use crate::live_options::LiveOptions;
use crate::options::MountOptions;
use crate::stop_cause::Stopped;
use crate::store::Store;
use crate::txn::{Handle, Txn};

/// The options in force, where changes go, and whether the volume is writable, read-only or
/// stopped.
pub(crate) struct MountState {
    store: Store,
    /// The destination of metadata changes. It is replaced when the volume turns read-only or
    /// writable.
    txn: RwLock<Txn>,
    /// Which calls may change the volume; see [`crate::remount`].
    pub(crate) access: WriteAccess,
    /// The mount options.
    pub(crate) options: LiveOptions,
    /// Credits of each kind of operation.
    pub(crate) credits: Credits,
    /// Why nothing may be written; `None` if the volume is writable.
    pub(crate) stopped: Mutex<Option<Stopped>>,
    /// Damage to be recorded; see [`crate::damage`].
    pub(crate) damage: DamageLog,
    /// For deferred work.
    pub(crate) me: Weak<Self>,
}

impl Deref for MountState {
    type Target = Store;

    fn deref(&self) -> &Store {
        &self.store
    }
}

impl MountState {
    /// `stopped` is the reason if the volume is read-only from the start.
    pub(crate) fn new(
        store: Store,
        txn: Txn,
        options: MountOptions,
        stopped: Option<Stopped>,
    ) -> Arc<Self> {
        let credits = Credits::for_layout(&store.layout);
        Arc::new_cyclic(|me| Self {
            store,
            txn: RwLock::new(Rank::Leaf, txn),
            access: WriteAccess::default(),
            options: LiveOptions::new(options),
            credits,
            stopped: Mutex::new(Rank::Leaf, stopped),
            damage: DamageLog::default(),
            me: me.clone(),
        })
    }

    /// The present destination of metadata changes.
    pub(crate) fn txn(&self) -> Txn {
        self.txn.read().clone()
    }

    /// The journal of a writable volume that has one.
    pub(crate) fn journal(&self) -> Option<Arc<Journal>> {
        match &*self.txn.read() {
            Txn::Journaled(journal) => Some(journal.clone()),
            Txn::Direct(_) => None,
        }
    }

    pub(crate) fn set_txn(&self, txn: Txn) {
        *self.txn.write() = txn;
    }

    /// Starts a handle.
    ///
    /// # Errors
    /// As [`Txn::begin`].
    pub(crate) fn begin(&self, credits: u32) -> Result<Handle> {
        self.txn().begin(credits)
    }

    /// Gets credits for `credits` more blocks. The handle may move to a new transaction.
    ///
    /// # Errors
    /// As [`Handle::extend`].
    pub(crate) fn ensure_credits(&self, handle: &mut Handle, credits: u32) -> Result<()> {
        let left = handle.credits_left();
        if left >= credits || handle.extend(credits - left)? {
            return Ok(());
        }
        handle.restart(credits)
    }

    /// Sets the label.
    ///
    /// # Errors
    /// The superblock cannot be read, or the journal was aborted.
    pub(crate) fn set_label(&self, label: &[u8]) -> Result<()> {
        self.check_writable()?;
        let handle = self.begin(self.credits.attributes)?;
        self.superblock.set_label(self, &handle, label)?;
        handle.finish();
        drop(handle);
        // Programs that read the image (blkid, udev) then see the label.
        if let Some(journal) = self.journal() {
            journal.force_commit()?;
            journal.checkpoint_all()?;
        } else {
            self.buffers.write_back()?;
            self.device.flush()?;
        }
        Ok(())
    }
}
