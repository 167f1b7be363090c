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
use crate::inode::Inode;
use crate::inodes::Inodes;
use crate::mount_state::MountState;
use crate::node::NODE_BYTES;
use crate::operation_lock::OpGuard;
use crate::space::{Pending, Reservation};
use crate::store::Store;

/// Dirty blocks in memory (nodes and entries) beyond which a checkpoint is written: 64 MiB. With a
/// small cache, they take a quarter of it, or [`FEW_DIRTY`].
const MOST_DIRTY: u64 = 16_384;
/// The same limit for inodes, which stay in memory until then. Inodes that were only read count,
/// because their access times change.
const MOST_DIRTY_INODES: u64 = 8192;
/// However small the cache is, no checkpoint is written for fewer dirty blocks or inodes.
const FEW_DIRTY: u64 = 512;
/// How often room is made for an operation before it gets ENOSPC.
const ATTEMPTS: u32 = 8;

/// The services that every operation needs.
pub(crate) struct Operations {
    pub(crate) disk: Arc<Disk>,
    pub(crate) mount: Arc<MountState>,
    pub(crate) inodes: Arc<Inodes>,
    pub(crate) cleaner: Arc<Cleaner>,
    /// What fsyncs share.
    pub(crate) fsyncs: Fsyncs,
    /// Held while a directory moves to another parent, so that no loop can form.
    pub(crate) moves: Mutex<()>,
}

/// What room is made for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Room {
    /// New nodes and entries.
    New,
    /// Data, which reserves its blocks by itself, and what frees blocks.
    Reserved,
}

/// A running operation. A checkpoint waits until it is dropped.
#[must_use = "the operation ends when it is dropped"]
pub(crate) struct Op<'v> {
    /// The inodes of the volume.
    pub(crate) inodes: &'v Inodes,
    /// Its store.
    pub(crate) store: &'v Store,
    /// Blocks that it may take. The rest is released at its end.
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
            // Ordered before every directory's lock, whose order is the inode number, at least 3.
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
        self.make_room(if blocks == 0 { Room::Reserved } else { Room::New })?;
        self.inodes.limit_space(store);
        let reservation = store.space.reserve(blocks)?;
        let guard = store.operation_lock.lock_op()?;
        Ok(Op { inodes: &self.inodes, store, reservation, _guard: guard })
    }

    /// Runs one operation. An error stops the volume, because the operation may be half done,
    /// except errors of every filesystem, such as ENOENT.
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

    /// Begins an operation whose blocks are already reserved. Does not wait. Called with
    /// [`crate::operation_lock::OperationLock::lock_data`] held.
    ///
    /// # Errors
    /// The volume has stopped.
    pub(crate) fn begin_reserved(&self, reservation: Reservation) -> Result<Op<'_>> {
        let store: &Store = self.store()?;
        let guard = store.operation_lock.lock_op()?;
        Ok(Op { inodes: &self.inodes, store, reservation, _guard: guard })
    }

    /// Makes room for data, or for what frees blocks. Called before inode data is written, and
    /// before [`crate::operation_lock::OperationLock::lock_data`].
    ///
    /// # Errors
    /// As [`Operations::begin`].
    pub(crate) fn room(&self) -> Result<()> {
        self.mount.check_writable()?;
        self.make_room(Room::Reserved)
    }

    /// Runs an operation that may need space. If there is none, but a checkpoint may free some
    /// (nids freed since the last one), writes the checkpoint and runs the operation once more.
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

    /// Runs work that may need space. If there is none, but writers have reserved more than they
    /// have written, releases the surplus and runs the work once more. Call it with no lock held.
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

    /// True if dirty metadata takes more memory than its share of the cache.
    fn is_over_limit(&self, pending: Pending) -> bool {
        let share = self.inodes.pages.budget().limit() / 4;
        let blocks = (share / NODE_BYTES).clamp(FEW_DIRTY, MOST_DIRTY);
        let inodes = (share / Inode::BYTES).clamp(FEW_DIRTY, MOST_DIRTY_INODES);
        pending.nodes + pending.dentries > blocks || pending.inodes > inodes
    }

    /// Makes sure that there are free sections for dirty blocks, and not too many of these.
    fn make_room(&self, room: Room) -> Result<()> {
        let store = self.store()?;
        if self.mount.is_recovering() {
            return Ok(());
        }
        for _ in 0..ATTEMPTS {
            let pending = self.inodes.pending();
            store.segments.set_reuse_below(store.space.reuse_below(pending));
            if self.is_over_limit(pending) {
                store.checkpoints.write(Reason::Memory)?;
                continue;
            }
            if store.checkpoints.is_disabled() {
                if Self::has_room_disabled(store, pending, room) {
                    return Ok(());
                }
                if pending.nodes + pending.dentries + pending.inodes == 0 {
                    return Err(Error::NO_SPACE);
                }
                // Dirty blocks are written to new addresses. Addresses that they took since
                // checkpoints were disabled can be used again.
                store.checkpoints.write(Reason::Memory)?;
                continue;
            }
            if self.cleaner.has_room()? {
                return Ok(());
            }
            self.cleaner.collect_merged()?;
            let now = self.cleaner.space_state()?;
            // Cleaned sections count before a checkpoint frees them, as long as that checkpoint has
            // room.
            if now.free > now.upper + 1 {
                return Ok(());
            }
            if now.prefree == 0 {
                break;
            }
            store.checkpoints.write(Reason::Cleaning)?;
        }
        // Cleaning gains nothing. A checkpoint at least writes the dirty blocks, which then need no
        // more room.
        store.checkpoints.write(Reason::Cleaning).map(drop)
    }

    /// While checkpoints are disabled: are there free sections for dirty blocks? Nothing is
    /// cleaned, so these may take what is kept for cleaning; but a half of that is left for what
    /// frees blocks.
    fn has_room_disabled(store: &Store, pending: Pending, room: Room) -> bool {
        let needed = store.space.required_sections(Pending { data: 0, ..pending }).lower;
        let free = store.segments.free_sections();
        match room {
            Room::New => free > needed + store.space.reserved_sections() / 2,
            Room::Reserved => needed == 0 || free > needed,
        }
    }

    /// The store.
    ///
    /// # Errors
    /// The volume is only read.
    pub(crate) fn store(&self) -> Result<&Arc<Store>> {
        self.mount.store()
    }

    /// Writes a checkpoint if anything is dirty.
    ///
    /// # Errors
    /// The volume is read-only or has stopped, or stops now.
    pub(crate) fn checkpoint(&self, reason: Reason) -> Result<bool> {
        self.mount.check_writable()?;
        let checkpoints = &self.store()?.checkpoints;
        checkpoints.request(reason, checkpoints.announce())
    }
}
