//! A handle (`handle_t`): the part of one operation in the running transaction.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use cairn_base::ranked_lock::{Rank, RankToken, enter};
use cairn_base::{Pba, Tid};
use cairn_cache::block::{Buffer, BufferGuard};

use crate::error::{Error, Result};
use crate::journal::Journal;
use crate::transaction::{CommitCallback, RunningTransaction};

/// An operation in progress. Dropping the handle stops it (`jbd2_journal_stop`).
///
/// A transaction with an open handle cannot be committed. The operation must therefore be short,
/// and must not wait for a commit.
#[must_use = "the operation ends when its handle is dropped"]
pub struct Handle {
    journal: Arc<Journal>,
    tid: Tid,
    credits: AtomicU32,
    /// Blocks revoked through this handle in this transaction.
    revoked: AtomicU32,
    /// False between two transactions of [`Handle::restart`].
    joined: bool,
    _rank: RankToken,
}

/// A transaction's number as [`Buffer::set_joined`] takes it, where 0 means no transaction.
fn joined_mark(tid: Tid) -> u64 {
    u64::from(tid.0) + 1
}

impl Handle {
    pub(crate) fn new(journal: Arc<Journal>, tid: Tid, credits: u32) -> Self {
        Self {
            journal,
            tid,
            credits: AtomicU32::new(credits),
            revoked: AtomicU32::new(0),
            joined: true,
            _rank: enter(Rank::Operation),
        }
    }

    /// Number of the handle's transaction.
    #[must_use]
    pub fn tid(&self) -> Tid {
        self.tid
    }

    /// Blocks that the operation may still change.
    #[must_use]
    pub fn credits_left(&self) -> u32 {
        self.credits.load(Ordering::Relaxed)
    }

    /// Write access to a metadata block (`jbd2_journal_get_write_access`). The block joins the
    /// transaction.
    ///
    /// # Errors
    /// The journal was aborted.
    ///
    /// # Panics
    /// In debug builds, if the handle has no credit left.
    pub fn get_write_access<'b>(&self, buffer: &'b Arc<Buffer>) -> Result<BufferGuard<'b>> {
        self.add_buffer(buffer)?;
        Ok(buffer.modify())
    }

    /// A metadata block that was just allocated (`jbd2_journal_get_create_access`). It is filled
    /// with zeros and not read. A revoke of the block in this transaction is cancelled.
    ///
    /// # Errors
    /// The journal was aborted.
    pub fn get_create_access(&self, pba: Pba) -> Result<Arc<Buffer>> {
        let buffer = self.journal.buffers.create(pba);
        self.add_buffer(&buffer)?;
        Ok(buffer)
    }

    fn add_buffer(&self, buffer: &Arc<Buffer>) -> Result<()> {
        if buffer.joined() == joined_mark(self.tid) {
            return Ok(());
        }
        self.with_transaction(|running| {
            if running.buffers.insert(buffer.pba(), buffer.clone()).is_none() {
                self.use_credit(running);
            }
            running.revokes.remove(&buffer.pba());
        })?;
        buffer.set_joined(joined_mark(self.tid));
        Ok(())
    }

    fn use_credit(&self, running: &mut RunningTransaction) {
        let left = self.credits.load(Ordering::Relaxed);
        if left == 0 {
            // The caller asked for too few. `SPARE_LOG_BLOCKS` makes this safe in release builds.
            self.journal.stats.overdrafts.add(1);
            debug_assert!(false, "a handle changed more blocks than it has credits for");
            return;
        }
        self.credits.store(left - 1, Ordering::Relaxed);
        running.outstanding_credits -= 1;
    }

    fn with_transaction<R>(&self, work: impl FnOnce(&mut RunningTransaction) -> R) -> Result<R> {
        let mut state = self.journal.state.lock();
        state.check_aborted()?;
        let running = state.running.with_tid(self.tid);
        Ok(work(running.expect("the transaction of an open handle is running")))
    }

    /// Frees a metadata block (`jbd2_journal_forget` and `jbd2_journal_revoke`). Its changes in
    /// this transaction are dropped. Recovery does not replay older versions, and none is written
    /// to its home location after this transaction has committed.
    ///
    /// A handle may start one revoke block without a credit; each further one costs a credit.
    ///
    /// # Errors
    /// The journal was aborted, or there is no credit for another revoke block.
    pub fn forget(&self, pba: Pba) -> Result<()> {
        self.reserve_revoke()?;
        let dropped = self.with_transaction(|running| {
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
        let revoked = self.revoked.fetch_add(1, Ordering::Relaxed);
        if revoked == 0 || !revoked.is_multiple_of(per_block) {
            return Ok(());
        }
        if self.credits_left() == 0 && !self.extend(1)? {
            return Err(Error::TooLarge { credits: 1, largest: 0 });
        }
        self.with_transaction(|running| {
            self.use_credit(running);
            running.revoke_blocks += 1;
        })
    }

    /// Calls `callback` with `true` when the transaction is durable, or with `false` when the
    /// journal was aborted before.
    pub fn on_commit(&self, callback: CommitCallback) {
        let mut callback = Some(callback);
        {
            let mut guard = self.journal.state.lock();
            let state = &mut *guard;
            if state.aborted.is_none()
                && let Some(running) = state.running.with_tid(self.tid)
            {
                running.callbacks.extend(callback.take());
            }
        }
        if let Some(callback) = callback {
            callback(false);
        }
    }

    /// Asks for `credits` more (`jbd2_journal_extend`). False if the transaction or the log is too
    /// full.
    ///
    /// # Errors
    /// The journal was aborted.
    pub fn extend(&self, credits: u32) -> Result<bool> {
        let journal = &self.journal;
        let mut guard = journal.state.lock();
        let state = &mut *guard;
        state.check_aborted()?;
        let reserved = state.committing.reserved_log_blocks();
        let running =
            state.running.with_tid(self.tid).expect("the transaction of an open handle is running");
        let needed = running.log_blocks_with(&journal.layout, credits).saturating_add(reserved);
        let full =
            running.would_overflow(&journal.layout, credits, journal.max_transaction_buffers);
        if running.locked || full || needed > state.log.free() {
            return Ok(false);
        }
        running.outstanding_credits += credits;
        self.credits.fetch_add(credits, Ordering::Relaxed);
        Ok(true)
    }

    /// Stops the handle and starts it again in a transaction with room for `credits`
    /// (`jbd2_journal_restart`). The changes so far may become durable without those that follow.
    /// The caller holds no lock that ranks above the handle.
    ///
    /// # Errors
    /// The journal was aborted.
    pub fn restart(&mut self, credits: u32) -> Result<()> {
        self.leave();
        // Joining waits until a locked or full transaction is committed.
        let tid = self.journal.join_running(credits)?;
        (self.tid, self.credits, self.joined) = (tid, AtomicU32::new(credits), true);
        self.revoked = AtomicU32::new(0);
        Ok(())
    }

    fn leave(&mut self) {
        if !std::mem::take(&mut self.joined) {
            return;
        }
        let last = {
            let mut state = self.journal.state.lock();
            let left = self.credits.swap(0, Ordering::Relaxed);
            match state.running.with_tid(self.tid) {
                Some(running) => {
                    running.updates -= 1;
                    running.outstanding_credits -= left;
                    running.updates == 0 && running.locked
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
