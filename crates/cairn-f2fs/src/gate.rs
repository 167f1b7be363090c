//! The gate between operations and the checkpoint.
//!
//! Whatever changes metadata or takes addresses does so inside the gate, entered shared; the checkpoint closes it and so
//! finds no operation half done. Once the volume has stopped after a failure nobody enters any more.
//!
//! File data moves outside of the gate proper: whoever writes data and points to it holds [`Gate::data`], and closing the
//! gate waits for that, too, so a checkpoint never names a block whose data is on its way. Whoever reads blocks by an
//! address that it looked up holds [`Gate::reading`]; only cleaning, which moves blocks, waits for readers
//! ([`Gate::wait_for_readers`]).
//!
//! A checkpoint is under way ([`Gate::is_flying`]) from its cut until it is on the medium; the gate is open meanwhile. Until
//! then blocks that it gave places to may not be there: cleaning waits for that ([`Gate::close_at_rest`]).
//!
//! Locking: data, then readers (both before promises of a cache), then rank GATE, all between inode.data and folios. A waiting checkpoint keeps newcomers out, so it cannot starve. Nobody asks for space or waits for a
//! checkpoint inside the gate, and nobody enters it twice.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use cairn_base::ranked_lock::{Condvar, Mutex, Rank, RwLock, RwLockReadGuard, RwLockWriteGuard};
use cairn_base::stats::Counter;

use crate::error::{Error, Result};

/// Held by readers of file data.
const READING: Rank = Rank(247);
/// Held while file data is written.
const DATA: Rank = Rank(245);

/// See the module.
pub struct Gate {
    reading: RwLock<()>,
    data: RwLock<()>,
    lock: RwLock<()>,
    stopped: Mutex<Option<Stopped>>,
    /// A checkpoint is under way.
    flying: Mutex<bool>,
    landed: Condvar,
    entered: Counter,
    closed: Counter,
    moves: AtomicU64,
}

struct Stopped {
    reason: Arc<str>,
    /// An error did it, and not somebody who asked for it.
    failed: bool,
}

/// An operation under way. The checkpoint waits until it is dropped.
#[must_use = "the operation ends when this is dropped"]
pub struct Entered<'g>(#[expect(dead_code, reason = "held, not read")] RwLockReadGuard<'g, ()>);

/// The gate is closed: no operation is under way and none begins until this is dropped. Whoever is given it may place
/// blocks without entering.
#[must_use = "the gate opens when this is dropped"]
pub struct Cut<'g> {
    #[expect(dead_code, reason = "held, not read")]
    lock: RwLockWriteGuard<'g, ()>,
    #[expect(dead_code, reason = "held, not read")]
    data: RwLockWriteGuard<'g, ()>,
}

/// Data of files is written, or read; see [`Gate::data`] and [`Gate::reading`].
#[must_use = "the work ends when this is dropped"]
pub struct Moving<'g>(#[expect(dead_code, reason = "held, not read")] RwLockReadGuard<'g, ()>);

impl Default for Gate {
    fn default() -> Self {
        Self::new()
    }
}

impl Gate {
    /// An open gate.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            reading: RwLock::new(READING, ()),
            data: RwLock::new(DATA, ()),
            lock: RwLock::new(Rank::GATE, ()),
            stopped: Mutex::new(Rank::LEAF, None),
            flying: Mutex::new(Rank::LEAF, false),
            landed: Condvar::new(),
            entered: Counter::new(),
            closed: Counter::new(),
            moves: AtomicU64::new(0),
        }
    }

    /// Begins an operation; waits while a checkpoint is being cut.
    ///
    /// # Errors
    /// The volume has stopped.
    pub fn enter(&self) -> Result<Entered<'_>> {
        let guard = self.lock.read();
        self.check()?;
        self.entered.add(1);
        Ok(Entered(guard))
    }

    /// Begins to write data of a file, from the choice of its place to the pointer. Whoever holds this counts as inside
    /// the gate, and may enter it as well.
    ///
    /// # Errors
    /// The volume has stopped.
    pub fn data(&self) -> Result<Moving<'_>> {
        let guard = self.data.read();
        self.check()?;
        Ok(Moving(guard))
    }

    /// Begins to read blocks whose addresses are looked up from here on: they hold what they held until this is dropped.
    pub fn reading(&self) -> Moving<'_> {
        Moving(self.reading.read())
    }

    /// Waits for all operations and writes of data to end and lets none begin.
    pub fn close(&self) -> Cut<'_> {
        let data = self.data.write();
        let lock = self.lock.write();
        self.closed.add(1);
        Cut { lock, data }
    }

    /// As [`Gate::close`], and no checkpoint is under way either.
    pub fn close_at_rest(&self) -> Cut<'_> {
        self.wait_for_landing();
        let cut = self.close();
        // One that was cut just before; no other can be.
        self.wait_for_landing();
        cut
    }

    /// A checkpoint has been cut and is under way. The gate is closed.
    pub fn depart(&self) {
        *self.flying.lock() = true;
    }

    /// No checkpoint is under way any more.
    pub fn land(&self) {
        *self.flying.lock() = false;
        self.landed.notify_all();
    }

    /// Is a checkpoint under way?
    #[must_use]
    pub fn is_flying(&self) -> bool {
        *self.flying.lock()
    }

    /// Waits until no checkpoint is under way: all blocks that have their places by now are on the device then.
    pub fn wait_for_landing(&self) {
        let mut flying = self.flying.lock();
        while *flying {
            self.landed.wait(&mut flying);
        }
    }

    /// Changes when blocks of files have moved without the doing of their inode: after their pointers have changed, and
    /// before their old places can be used again ([`Gate::wait_for_readers`]). Whoever remembers addresses compares.
    #[must_use]
    pub fn moves(&self) -> u64 {
        self.moves.load(Ordering::SeqCst)
    }

    /// Waits for all who read now. Whoever begins later looks addresses up later, too, and trusts none that it knew before.
    /// May be called with [`Gate::data`].
    pub fn wait_for_readers(&self) {
        self.moves.fetch_add(1, Ordering::SeqCst);
        drop(self.reading.write());
    }

    /// Lets no more changes through, for good, because of an error. The first reason is kept.
    pub fn stop(&self, reason: &str) {
        self.stopped.lock().get_or_insert_with(|| Stopped { reason: reason.into(), failed: true });
    }

    /// The same because somebody asked for it.
    pub fn end(&self, reason: &str) {
        self.stopped.lock().get_or_insert_with(|| Stopped { reason: reason.into(), failed: false });
    }

    /// Why the volume has stopped, if it has.
    #[must_use]
    pub fn stopped(&self) -> Option<Arc<str>> {
        self.stopped.lock().as_ref().map(|stopped| stopped.reason.clone())
    }

    /// Fails if nothing becomes durable any more: for whoever wants that.
    ///
    /// # Errors
    /// EIO, with the reason.
    pub fn check_durable(&self) -> Result<()> {
        self.stopped().map_or(Ok(()), |reason| Err(cairn_vfs::Error::stopped(&reason).into()))
    }

    /// Fails if an error stopped the volume.
    ///
    /// # Errors
    /// As [`Gate::check_durable`].
    pub fn check_failed(&self) -> Result<()> {
        let failed = self.stopped.lock().as_ref().is_some_and(|stopped| stopped.failed);
        if failed { self.check_durable() } else { Ok(()) }
    }

    /// Fails if the volume has stopped.
    ///
    /// # Errors
    /// It has, with the reason: EIO if somebody asked for it, as of a volume that is no longer there.
    pub fn check(&self) -> Result<()> {
        match &*self.stopped.lock() {
            Some(Stopped { reason, failed: true }) => Err(Error::Stopped(reason.clone())),
            Some(Stopped { reason, failed: false }) => Err(cairn_vfs::Error::stopped(reason).into()),
            None => Ok(()),
        }
    }

    /// How often it was entered, and closed.
    #[must_use]
    pub fn counts(&self) -> (u64, u64) {
        (self.entered.get(), self.closed.get())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering::SeqCst};

    use super::*;

    #[test]
    fn a_cut_sees_no_operation_half_done() {
        let gate = Gate::new();
        let (first, second) = (AtomicU32::new(0), AtomicU32::new(0));
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..2000 {
                        let _inside = gate.enter().unwrap();
                        first.fetch_add(1, SeqCst);
                        std::hint::spin_loop();
                        second.fetch_add(1, SeqCst);
                    }
                });
            }
            for _ in 0..200 {
                let _cut = gate.close();
                let seen = first.load(SeqCst);
                std::thread::yield_now();
                assert_eq!((seen, seen), (first.load(SeqCst), second.load(SeqCst)));
            }
        });
        assert_eq!(gate.counts(), (8000, 200));
    }

    #[test]
    fn a_stopped_gate_keeps_its_first_reason() {
        let gate = Gate::new();
        gate.stop("disk on fire");
        gate.stop("disk gone");
        assert!(matches!(gate.enter().map(drop), Err(Error::Stopped(reason)) if &*reason == "disk on fire"));
        drop(gate.close());
    }
}
