//! A handle: one operation's part in the running transaction.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use cairn_base::ranked_lock::{Rank, RankToken, enter};
use cairn_base::{Pba, Tid};
use cairn_cache::block::{Buffer, BufferGuard};

use crate::error::{Error, Result};
use crate::journal::Journal;
use crate::transaction::{Hook, Running};

/// An operation in progress. Dropping it ends it.
///
/// While it is open its transaction cannot be committed, so it must be short and must not wait for a commit.
pub struct Handle {
    journal: Arc<Journal>,
    tid: Tid,
    credits: AtomicU32,
    /// Revokes recorded in this transaction.
    forgotten: AtomicU32,
    /// False between leaving one transaction and joining the next.
    joined: bool,
    _gate: RankToken,
}

/// Numbers in buffers start at 1; 0 is "none".
fn mark(tid: Tid) -> u64 {
    u64::from(tid.0) + 1
}

impl Handle {
    pub(crate) fn new(journal: Arc<Journal>, tid: Tid, credits: u32) -> Self {
        Self {
            journal,
            tid,
            credits: AtomicU32::new(credits),
            forgotten: AtomicU32::new(0),
            joined: true,
            _gate: enter(Rank::GATE),
        }
    }

    /// The transaction this handle belongs to.
    #[must_use]
    pub fn tid(&self) -> Tid {
        self.tid
    }

    /// Blocks that may still be changed.
    #[must_use]
    pub fn credits_left(&self) -> u32 {
        self.credits.load(Ordering::Relaxed)
    }

    /// Write access to a block, which joins the transaction.
    ///
    /// # Errors
    /// The journal has stopped.
    ///
    /// # Panics
    /// In debug builds, if the credits are used up: the operation's estimate is wrong.
    pub fn get_write_access<'b>(&self, buffer: &'b Arc<Buffer>) -> Result<BufferGuard<'b>> {
        self.join(buffer)?;
        Ok(buffer.modify())
    }

    fn join(&self, buffer: &Arc<Buffer>) -> Result<()> {
        if buffer.joined() == mark(self.tid) {
            return Ok(());
        }
        self.with_running(|running| {
            if running.buffers.insert(buffer.pba(), buffer.clone()).is_none() {
                self.use_credit(running);
            }
            running.revokes.remove(&buffer.pba());
        })?;
        buffer.set_joined(mark(self.tid));
        Ok(())
    }

    fn use_credit(&self, running: &mut Running) {
        let left = self.credits.load(Ordering::Relaxed);
        if left == 0 {
            // The operation's estimate is wrong. The log keeps a reserve for this (see `admit`), so nothing is lost.
            self.journal.stats().overdrafts.add(1);
            debug_assert!(false, "a handle changed more blocks than it asked for");
            return;
        }
        self.credits.store(left - 1, Ordering::Relaxed);
        running.promised -= 1;
    }

    fn with_running<R>(&self, work: impl FnOnce(&mut Running) -> R) -> Result<R> {
        let mut state = self.journal.state.lock();
        if let Some(reason) = &state.aborted {
            return Err(Error::Aborted(reason.clone()));
        }
        let running = state.running.as_mut().filter(|running| running.tid == self.tid);
        Ok(work(running.expect("a transaction with an open handle is running")))
    }

    /// A freshly allocated metadata block: zeros, not read; older revokes of it in this transaction no longer count.
    ///
    /// # Errors
    /// The journal has stopped.
    pub fn get_create_access(&self, pba: Pba) -> Result<Arc<Buffer>> {
        let buffer = self.journal.buffers.create(pba);
        self.join(&buffer)?;
        Ok(buffer)
    }

    /// A metadata block is being freed: its changes here are dropped, older copies in the log will not be replayed, and no older
    /// version goes home once this transaction has committed.
    ///
    /// A log block holds a hundred records and more; when this handle has filled one, the next one costs it a credit.
    ///
    /// # Errors
    /// The journal has stopped, or there is no credit for the next block of records.
    pub fn forget(&self, pba: Pba) -> Result<()> {
        self.reserve_revoke()?;
        let dropped = self.with_running(|running| {
            running.revokes.insert(pba);
            running.buffers.remove(&pba)
        })?;
        if let Some(buffer) = dropped {
            buffer.set_joined(0);
        }
        self.journal.buffers.forget(pba);
        Ok(())
    }

    fn reserve_revoke(&self) -> Result<()> {
        let per_block = u32::try_from(self.journal.layout.revokes_per_block()).unwrap_or(u32::MAX);
        let forgotten = self.forgotten.fetch_add(1, Ordering::Relaxed);
        if forgotten == 0 || !forgotten.is_multiple_of(per_block) {
            return Ok(());
        }
        if self.credits_left() == 0 && !self.extend(1)? {
            return Err(Error::TooLarge { credits: 1, largest: 0 });
        }
        self.with_running(|running| {
            self.use_credit(running);
            running.revoke_blocks += 1;
        })
    }

    /// Runs `hook` when the transaction is durable, or with `false` when it never will be.
    pub fn on_commit(&self, hook: Hook) {
        let mut hook = Some(hook);
        {
            let mut guard = self.journal.state.lock();
            let state = &mut *guard;
            if state.aborted.is_none()
                && let Some(running) = state.running.as_mut().filter(|running| running.tid == self.tid)
            {
                running.hooks.extend(hook.take());
            }
        }
        if let Some(hook) = hook {
            hook(false);
        }
    }

    /// Asks for `credits` more. False: the transaction or the log is too full.
    ///
    /// # Errors
    /// The journal has stopped.
    pub fn extend(&self, credits: u32) -> Result<bool> {
        let journal = &self.journal;
        let mut guard = journal.state.lock();
        let state = &mut *guard;
        if let Some(reason) = &state.aborted {
            return Err(Error::Aborted(reason.clone()));
        }
        let running = state.running.as_mut().expect("a transaction with an open handle is running");
        let needs = running.needs_with(&journal.layout, credits).saturating_add(state.committing_needs);
        if running.locked || journal.would_overfill(running, credits) || needs > state.log.free() {
            return Ok(false);
        }
        running.promised += credits;
        self.credits.fetch_add(credits, Ordering::Relaxed);
        Ok(true)
    }

    /// Ends the operation here and goes on in a transaction with room. What was changed so far may become durable without what
    /// follows. Nothing that ranks above the gate may be locked.
    ///
    /// # Errors
    /// The journal has stopped.
    pub fn restart(&mut self, credits: u32) -> Result<()> {
        self.leave();
        // A locked or full transaction is on its way out; joining waits for the next one.
        let joined = self.journal.begin_unguarded(credits)?;
        (self.tid, self.credits, self.joined) = (joined, AtomicU32::new(credits), true);
        self.forgotten = AtomicU32::new(0);
        Ok(())
    }

    /// Ends the operation; the same as dropping it.
    pub fn stop(self) {}

    fn leave(&mut self) {
        if !std::mem::take(&mut self.joined) {
            return;
        }
        let last = {
            let mut state = self.journal.state.lock();
            let left = self.credits.swap(0, Ordering::Relaxed);
            match state.running.as_mut().filter(|running| running.tid == self.tid) {
                Some(running) => {
                    running.handles -= 1;
                    running.promised -= left;
                    running.handles == 0 && running.locked
                }
                None => false,
            }
        };
        if last {
            self.journal.changed.notify();
        }
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.leave();
    }
}
