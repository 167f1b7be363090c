//! Operations that change the volume: each reserves space, then frees sections, then takes the
//! operation lock.
//!
//! [`Operations::begin`] may wait for a checkpoint or for cleaning, so it is called with no lock
//! above the operation lock: `namespace` and `data` of inodes are below it, `state` is not. An
//! operation does not wait for a checkpoint.

use std::sync::Arc;

use cairn_base::ranked_lock::{Mutex, Rank};

use crate::checkpoint::Reason;
use crate::disk::Disk;
use crate::error::{Error, Result};
use crate::fsync::Fsyncs;
use crate::gc::Cleaner;
use crate::inodes::Inodes;
use crate::mount_state::MountState;
use crate::operation_lock::OpGuard;
use crate::space::{Pending, Reservation};
use crate::store::Store;

/// Dirty blocks in memory (nodes and entries) beyond which a checkpoint is written: 64 MiB.
const MOST_DIRTY: u64 = 16_384;
/// The same of inodes, which stay in memory as long: what was only read has a new access time, too.
const MOST_DIRTY_INODES: u64 = 8192;
/// How often an operation has room made for it before it is told that there is none.
const ATTEMPTS: u32 = 8;

/// How changes of a volume begin.
pub struct Operations {
    pub(crate) disk: Arc<Disk>,
    pub(crate) mount: Arc<MountState>,
    pub(crate) inodes: Arc<Inodes>,
    pub(crate) cleaner: Arc<Cleaner>,
    /// What fsyncs share.
    pub(crate) fsyncs: Fsyncs,
    /// Moving a directory to another parent: one at a time, so that no loop can form.
    pub(crate) moves: Mutex<()>,
}

/// A running operation. A checkpoint waits until it is dropped.
#[must_use = "the operation ends when it is dropped"]
pub(crate) struct Op<'v> {
    /// The inodes of the volume.
    pub(crate) inodes: &'v Inodes,
    /// Its write core.
    pub store: &'v Store,
    /// Blocks that it may take; the rest goes back at the end.
    pub(crate) reservation: Reservation,
    _guard: OpGuard<'v>,
}

impl Operations {
    pub(crate) fn new(cleaner: Arc<Cleaner>) -> Self {
        Self {
            disk: cleaner.mount.disk.clone(),
            mount: cleaner.mount.clone(),
            inodes: cleaner.inodes.clone(),
            cleaner,
            fsyncs: Fsyncs::default(),
            // Before every directory's lock: numbers start at 3.
            moves: Mutex::new_ordered(Rank::Namespace, 0, ()),
        }
    }

    /// Begins an operation that takes at most `blocks` blocks (data and nodes).
    ///
    /// # Errors
    /// No space; the volume is read-only or has stopped; a checkpoint that had to come first
    /// failed.
    pub(crate) fn begin(&self, blocks: u64) -> Result<Op<'_>> {
        self.mount.check_writable()?;
        let store: &Store = self.store()?;
        self.make_room()?;
        let reservation = self.reserve(blocks)?;
        let guard = store.operation_lock.lock_op()?;
        Ok(Op { inodes: &self.inodes, store, reservation, _guard: guard })
    }

    /// Runs one operation. Whatever fails in it but an answer that every filesystem gives has left
    /// it half done: it stops the volume.
    ///
    /// # Errors
    /// As [`Operations::begin`], and those of `work`.
    pub(crate) fn change<T>(
        &self,
        blocks: u64,
        work: impl FnOnce(&mut Op<'_>) -> Result<T>,
    ) -> Result<T> {
        let mut op = self.begin(blocks)?;
        let outcome = work(&mut op);
        self.mount.stop_after(&outcome);
        outcome
    }

    /// Begins an operation whose blocks are reserved already. Waits for nothing. Called with
    /// [`crate::operation_lock::OperationLock::lock_data`] held.
    ///
    /// # Errors
    /// The volume has stopped.
    pub(crate) fn begin_reserved(&self, reservation: Reservation) -> Result<Op<'_>> {
        let store: &Store = self.store()?;
        let guard = store.operation_lock.lock_op()?;
        Ok(Op { inodes: &self.inodes, store, reservation, _guard: guard })
    }

    /// Makes room for data. Called before inode data is written, and before
    /// [`crate::operation_lock::OperationLock::lock_data`].
    ///
    /// # Errors
    /// As [`Operations::begin`].
    pub fn room(&self) -> Result<()> {
        self.mount.check_writable()?;
        self.make_room()
    }

    /// Runs an operation that may need space; if there is none but a checkpoint may give some back
    /// (nids that were freed since the last one), writes it and runs the operation once more.
    ///
    /// # Errors
    /// Those of `work`.
    pub(crate) fn with_space<T>(&self, mut work: impl FnMut() -> Result<T>) -> Result<T> {
        match self.with_reservations(&mut work) {
            Err(Error::Vfs(cairn_vfs::Error::NoSpace)) if self.checkpoint(Reason::Cleaning)? => {
                work()
            }
            other => other,
        }
    }

    /// Runs a piece of work that may need space; if there is none but writers have reserved more
    /// than they have written, releases that and runs it once more. Call it with no lock held.
    ///
    /// # Errors
    /// Those of `work`.
    pub(crate) fn with_reservations<T>(&self, mut work: impl FnMut() -> Result<T>) -> Result<T> {
        match work() {
            Err(Error::Vfs(cairn_vfs::Error::NoSpace)) if self.inodes.pages.space_is_short() => {
                work()
            }
            other => other,
        }
    }

    fn reserve(&self, blocks: u64) -> Result<Reservation> {
        let store = self.store()?;
        if store.checkpoints.is_disabled() {
            store.space.set_unusable(store.unusable());
        }
        store.space.reserve(blocks)
    }

    /// Sees to it that there are free sections for what is dirty, and not too much of it.
    fn make_room(&self) -> Result<()> {
        let store = self.store()?;
        if self.mount.is_recovering() {
            return Ok(());
        }
        for _ in 0..ATTEMPTS {
            let pending = self.inodes.pending();
            store.segments.set_reuse_below(store.space.reuse_below(pending));
            if pending.nodes + pending.dentries > MOST_DIRTY || pending.inodes > MOST_DIRTY_INODES {
                store.checkpoints.write(Reason::Memory)?;
                continue;
            }
            if store.checkpoints.is_disabled() {
                // Nothing that is cleaned could be used before checkpoints are enabled again.
                let needed = store.space.required_sections(Pending { data: 0, ..pending }).lower
                    + store.space.reserved_sections();
                if store.segments.free_sections() > needed {
                    return Ok(());
                }
                if pending.nodes + pending.dentries + pending.inodes == 0 {
                    return Err(Error::NO_SPACE);
                }
                // What is dirty gets its places: what it had since checkpoints were disabled can be
                // used again.
                store.checkpoints.write(Reason::Memory)?;
                continue;
            }
            if self.cleaner.has_room()? {
                return Ok(());
            }
            self.cleaner.collect_merged()?;
            let now = self.cleaner.space_state()?;
            // What was cleaned counts before a checkpoint makes it free, as long as that checkpoint
            // has room itself.
            if now.free > now.upper + 1 {
                return Ok(());
            }
            if now.prefree == 0 {
                break;
            }
            store.checkpoints.write(Reason::Cleaning)?;
        }
        // Nothing to gain. What is dirty can at least no longer need more.
        store.checkpoints.write(Reason::Cleaning).map(drop)
    }

    /// The write core.
    ///
    /// # Errors
    /// The volume is only read.
    pub fn store(&self) -> Result<&Arc<Store>> {
        self.mount.store()
    }

    /// Writes a checkpoint if anything is dirty.
    ///
    /// # Errors
    /// The volume is read-only or has stopped, or stops now.
    pub fn checkpoint(&self, reason: Reason) -> Result<bool> {
        self.mount.check_writable()?;
        self.store()?.checkpoints.request(reason)
    }
}
