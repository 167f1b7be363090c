//! The operation lock: F2FS's `cp_rwsem`, between operations and the checkpoint.
//!
//! An operation that changes metadata or allocates blocks holds the lock shared
//! ([`OperationLock::lock_op`], Linux's `f2fs_lock_op`). The checkpoint takes it exclusively
//! ([`OperationLock::lock_all`], `f2fs_lock_all`) while it takes its snapshot, and so finds no
//! operation half done. After the volume has stopped, `lock_op` fails.
//!
//! File data has a lock of its own. A writer of data holds [`OperationLock::lock_data`] from the
//! choice of a block to the pointer to it. `lock_all` takes this lock as well, so a checkpoint
//! never names a block whose data is not written yet. A reader that uses block addresses holds
//! [`OperationLock::lock_reading`]. Only cleaning, which moves blocks, waits for readers
//! ([`OperationLock::wait_for_readers`]).
//!
//! A checkpoint is in flight ([`OperationLock::checkpoint_in_flight`]) from its snapshot until it
//! is on the medium. Operations continue meanwhile. Blocks that it placed may not be on the device
//! until it has completed: cleaning waits for that ([`OperationLock::lock_all_idle`]).
//!
//! Locking: data, then readers (both before the reservations of a cache), then rank Operation. All
//! of them are between inode.data and folios. A waiting checkpoint keeps new operations out, so it
//! cannot starve. A thread that holds the lock does not ask for space, wait for a checkpoint or
//! take it again.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use cairn_base::ranked_lock::{Condvar, Mutex, Rank, RwLock, RwLockReadGuard, RwLockWriteGuard};
use cairn_base::stats::Counter;

use crate::error::{Error, Result};

/// Operations hold it shared, and a checkpoint exclusively while it takes its snapshot.
pub(crate) struct OperationLock {
    reading: RwLock<()>,
    data: RwLock<()>,
    lock: RwLock<()>,
    stopped: Mutex<Option<Stopped>>,
    /// True while a checkpoint is in flight.
    in_flight: Mutex<bool>,
    completed: Condvar,
    shared: Counter,
    exclusive: Counter,
    moves: AtomicU64,
}

struct Stopped {
    reason: Arc<str>,
    /// True if an error stopped the volume, not a request.
    failed: bool,
    /// True if the error has been recorded, or is being recorded ([`OperationLock::take_failure`]).
    recorded: bool,
}

impl Stopped {
    fn new(reason: &str, failed: bool) -> Self {
        Self { reason: reason.into(), failed, recorded: false }
    }
}

/// The lock is held shared, by an operation. The checkpoint waits until this is dropped.
#[must_use = "the operation ends when this is dropped"]
pub(crate) struct OpGuard<'g>(
    #[expect(dead_code, reason = "held, not read")] RwLockReadGuard<'g, ()>,
);

/// The lock is held exclusively: no operation runs, and none begins until this is dropped. The
/// holder may allocate blocks without [`OperationLock::lock_op`].
#[must_use = "the operation lock is released when this is dropped"]
pub(crate) struct CheckpointGuard<'g> {
    #[expect(dead_code, reason = "held, not read")]
    lock: RwLockWriteGuard<'g, ()>,
    #[expect(dead_code, reason = "held, not read")]
    data: RwLockWriteGuard<'g, ()>,
}

/// Held while data of files is written, or read; see [`OperationLock::lock_data`] and
/// [`OperationLock::lock_reading`].
#[must_use = "the work ends when this is dropped"]
pub(crate) struct DataGuard<'g>(
    #[expect(dead_code, reason = "held, not read")] RwLockReadGuard<'g, ()>,
);

impl Default for OperationLock {
    fn default() -> Self {
        Self::new()
    }
}

impl OperationLock {
    /// A free lock.
    #[must_use]
    pub(crate) const fn new() -> Self {
        Self {
            reading: RwLock::new(Rank::DataReaders, ()),
            data: RwLock::new(Rank::DataWriters, ()),
            lock: RwLock::new(Rank::Operation, ()),
            stopped: Mutex::new(Rank::Leaf, None),
            in_flight: Mutex::new(Rank::Leaf, false),
            completed: Condvar::new(),
            shared: Counter::new(),
            exclusive: Counter::new(),
            moves: AtomicU64::new(0),
        }
    }

    /// Begins an operation. Waits while a checkpoint takes its snapshot.
    ///
    /// # Errors
    /// The volume has stopped.
    pub(crate) fn lock_op(&self) -> Result<OpGuard<'_>> {
        let guard = self.lock.read();
        self.check()?;
        self.shared.add(1);
        Ok(OpGuard(guard))
    }

    /// Begins to write data of a file, from the choice of its blocks to the pointer. The holder may
    /// also take [`OperationLock::lock_op`].
    ///
    /// # Errors
    /// The volume has stopped.
    pub(crate) fn lock_data(&self) -> Result<DataGuard<'_>> {
        let guard = self.data.read();
        self.check()?;
        Ok(DataGuard(guard))
    }

    /// Begins to read blocks whose addresses are looked up afterwards. The blocks are not reused
    /// until this is dropped.
    pub(crate) fn lock_reading(&self) -> DataGuard<'_> {
        DataGuard(self.reading.read())
    }

    /// Waits until all operations and writes of data have ended, and keeps new ones from beginning.
    pub(crate) fn lock_all(&self) -> CheckpointGuard<'_> {
        let data = self.data.write();
        let lock = self.lock.write();
        self.exclusive.add(1);
        CheckpointGuard { lock, data }
    }

    /// As [`OperationLock::lock_all`], with no checkpoint in flight.
    pub(crate) fn lock_all_idle(&self) -> CheckpointGuard<'_> {
        self.wait_for_checkpoint();
        let guard = self.lock_all();
        // A checkpoint may have taken its snapshot before this thread got the lock. No other can
        // take one now.
        self.wait_for_checkpoint();
        guard
    }

    /// A checkpoint has taken its snapshot and is in flight. The lock is held exclusively.
    pub(crate) fn begin_checkpoint(&self) {
        *self.in_flight.lock() = true;
    }

    /// The checkpoint in flight has completed, or failed.
    pub(crate) fn complete_checkpoint(&self) {
        *self.in_flight.lock() = false;
        self.completed.notify_all();
    }

    /// True while a checkpoint is in flight.
    #[must_use]
    pub(crate) fn checkpoint_in_flight(&self) -> bool {
        *self.in_flight.lock()
    }

    /// Waits until no checkpoint is in flight. All blocks that were placed before are on the device
    /// then.
    pub(crate) fn wait_for_checkpoint(&self) {
        let mut in_flight = self.in_flight.lock();
        while *in_flight {
            self.completed.wait(&mut in_flight);
        }
    }

    /// A count of the moves of file blocks by cleaning. It is raised after the pointers have
    /// changed, and before the old places can be used again ([`OperationLock::wait_for_readers`]).
    /// A cache of addresses is valid while the count is unchanged.
    #[must_use]
    pub(crate) fn moves(&self) -> u64 {
        self.moves.load(Ordering::SeqCst)
    }

    /// Waits for all present readers. A later reader looks its addresses up after the move.
    /// May be called with [`OperationLock::lock_data`].
    pub(crate) fn wait_for_readers(&self) {
        self.moves.fetch_add(1, Ordering::SeqCst);
        drop(self.reading.write());
    }

    /// Stops all changes for good, because of an error. The first reason is kept.
    pub(crate) fn stop(&self, reason: &str) {
        self.stopped.lock().get_or_insert_with(|| Stopped::new(reason, true));
    }

    /// Stops all changes for good, because of this error in what `during` names. A host without
    /// room has written nothing: the volume is as after a power cut, and there is nothing to
    /// record.
    pub(crate) fn stop_for(&self, during: &str, error: &Error) {
        let recorded = error.is_full_host();
        self.stopped.lock().get_or_insert_with(|| Stopped {
            recorded,
            ..Stopped::new(&format!("{during}: {error}"), true)
        });
    }

    /// Stops all changes on request.
    pub(crate) fn shut_down(&self, reason: &str) {
        self.stopped.lock().get_or_insert_with(|| Stopped::new(reason, false));
    }

    /// True once, if an error has stopped the volume: the caller records it.
    pub(crate) fn take_failure(&self) -> bool {
        let mut stopped = self.stopped.lock();
        let Some(stopped) = stopped.as_mut().filter(|stopped| stopped.failed) else {
            return false;
        };
        !std::mem::replace(&mut stopped.recorded, true)
    }

    /// Why the volume has stopped, if it has.
    #[must_use]
    pub(crate) fn stopped(&self) -> Option<Arc<str>> {
        self.stopped.lock().as_ref().map(|stopped| stopped.reason.clone())
    }

    /// Fails if the volume has stopped, so nothing can become durable any more.
    ///
    /// # Errors
    /// EIO, with the reason.
    pub(crate) fn check_durable(&self) -> Result<()> {
        self.stopped().map_or(Ok(()), |reason| Err(cairn_vfs::Error::stopped(&reason).into()))
    }

    /// Fails if an error stopped the volume.
    ///
    /// # Errors
    /// As [`OperationLock::check_durable`].
    pub(crate) fn check_failed(&self) -> Result<()> {
        let failed = self.stopped.lock().as_ref().is_some_and(|stopped| stopped.failed);
        if failed { self.check_durable() } else { Ok(()) }
    }

    /// Fails if the volume has stopped.
    ///
    /// # Errors
    /// The volume has stopped, with the reason: EIO after a request, as for a volume that is no
    /// longer there.
    pub(crate) fn check(&self) -> Result<()> {
        match &*self.stopped.lock() {
            Some(Stopped { reason, failed: true, .. }) => Err(Error::Stopped(reason.clone())),
            Some(Stopped { reason, failed: false, .. }) => {
                Err(cairn_vfs::Error::stopped(reason).into())
            }
            None => Ok(()),
        }
    }

    /// How often it was taken shared, and exclusively.
    #[must_use]
    pub(crate) fn counts(&self) -> (u64, u64) {
        (self.shared.get(), self.exclusive.get())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering::SeqCst};

    use super::*;

    #[test]
    fn a_snapshot_sees_no_operation_half_done() {
        let operation_lock = OperationLock::new();
        let (first, second) = (AtomicU32::new(0), AtomicU32::new(0));
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..2000 {
                        let _inside = operation_lock.lock_op().unwrap();
                        first.fetch_add(1, SeqCst);
                        std::hint::spin_loop();
                        second.fetch_add(1, SeqCst);
                    }
                });
            }
            for _ in 0..200 {
                let _guard = operation_lock.lock_all();
                let seen = first.load(SeqCst);
                std::thread::yield_now();
                assert_eq!((seen, seen), (first.load(SeqCst), second.load(SeqCst)));
            }
        });
        assert_eq!(operation_lock.counts(), (8000, 200));
    }

    #[test]
    fn a_stopped_lock_keeps_its_first_reason() {
        let operation_lock = OperationLock::new();
        operation_lock.stop("disk on fire");
        operation_lock.stop("disk gone");
        assert!(matches!(operation_lock.lock_op().map(drop), Err(Error::Stopped(reason))
                if &*reason == "disk \
                on fire"));
        drop(operation_lock.lock_all());
    }
}
