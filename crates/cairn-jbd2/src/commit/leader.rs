//! Who commits. The first caller that waits for a commit becomes its leader and does the work; the
//! others wait for the leader. The commit daemon becomes a leader as any caller does.
//!
//! Before it commits, a leader may wait for other callers that share the commit
//! ([`crate::state::batching`]). A leader that cannot continue without the commit does not.

use cairn_base::Tid;

use crate::checkpoint::parts::CheckpointParts;
use crate::error::{Error, Result};
use crate::journal::Journal;
use crate::state::batching::MAX_BATCH_TIME;
use crate::state::{State, log_space};
use crate::transaction::RunningTransaction;

/// Why a caller needs a commit.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Reason {
    /// Its changes must be durable (fsync).
    Durability,
    /// It needs the next transaction, or log space.
    Progress,
    /// The transaction is old, or its commit was requested.
    Age,
}

/// A caller on the way to its commit.
#[derive(Clone, Copy)]
struct Caller {
    reason: Reason,
    /// It has waited for another leader's commit.
    contended: bool,
    /// It has waited for other callers, or must not.
    batched: bool,
}

/// What a caller does next.
enum Step {
    /// The transaction is durable.
    Done,
    /// Another leader commits: wait for it.
    WaitForLeader,
    /// Become the leader, and wait for other callers first.
    WaitForBatch,
    /// Another leader waits for other callers, of which this is one.
    JoinBatch,
    /// The caller is the leader: the transaction is locked.
    Commit,
}

impl Journal {
    /// Makes a transaction durable (`jbd2_complete_transaction`). Returns at once if it is.
    ///
    /// # Errors
    /// The journal was aborted, or the device failed.
    pub fn commit_and_wait(&self, tid: Tid) -> Result<()> {
        self.complete(tid, Reason::Durability)
    }

    /// Makes all changes so far durable (`jbd2_journal_force_commit`).
    ///
    /// # Errors
    /// The journal was aborted, or the device failed.
    pub fn force_commit(&self) -> Result<()> {
        let tid = {
            let state = self.state.lock();
            state.check_aborted()?;
            let running = state.running.transaction().map(|running| running.tid);
            running.or(state.committing.tid())
        };
        tid.map_or(Ok(()), |tid| self.commit_at_once(tid))
    }

    /// Makes a transaction durable for a caller that cannot continue without it.
    pub(crate) fn commit_at_once(&self, tid: Tid) -> Result<()> {
        self.complete(tid, Reason::Progress)
    }

    /// Makes a transaction durable for the commit daemon.
    pub(super) fn commit_by_age(&self, tid: Tid) -> Result<()> {
        self.complete(tid, Reason::Age)
    }

    fn complete(&self, tid: Tid, reason: Reason) -> Result<()> {
        let mut caller = Caller { reason, contended: false, batched: reason != Reason::Durability };
        if reason == Reason::Durability {
            self.count_waiter(tid);
        }
        loop {
            match self.next_step(tid, caller)? {
                Step::Done => return Ok(()),
                Step::Commit => match self.take_locked()? {
                    Some(running) => self.commit_transaction(running)?,
                    None => return self.flush_file_data(),
                },
                Step::WaitForLeader => {
                    caller.contended = true;
                    self.wait(|state| is_over(state, tid) || state.committing.is_idle());
                }
                Step::WaitForBatch => {
                    self.wait_for_batch(tid);
                    caller.batched = true;
                }
                Step::JoinBatch => {
                    let mut over = || {
                        let state = self.state.lock();
                        is_over(&state, tid) || state.batching.target().is_none()
                    };
                    caller.batched |=
                        !self.runtime.wait_until_timeout(&self.changed, MAX_BATCH_TIME, &mut over);
                }
            }
        }
    }

    fn count_waiter(&self, tid: Tid) {
        let complete = {
            let mut guard = self.state.lock();
            let state = &mut *guard;
            let Some(running) = state.running.with_tid(tid) else { return };
            running.waiters += 1;
            state.batching.target().is_some_and(|target| running.waiters >= target)
        };
        if complete {
            self.batch_complete.notify();
        }
    }

    /// Waits until as many callers wait as for the last commit, or no more arrive.
    fn wait_for_batch(&self, tid: Tid) {
        let started = self.runtime.monotonic();
        let mut seen = 0;
        loop {
            let (waiters, target, patience) = {
                let mut state = self.state.lock();
                let waiters = state.running.with_tid(tid).map(|running| running.waiters);
                (waiters, state.batching.target(), state.batching.patience())
            };
            let (Some(waiters), Some(target)) = (waiters, target) else { break };
            let over = self.runtime.monotonic().saturating_sub(started) >= MAX_BATCH_TIME;
            if waiters >= target || waiters == seen || over {
                break;
            }
            seen = waiters;
            self.runtime.wait_until_timeout(&self.batch_complete, patience, &mut || {
                let mut state = self.state.lock();
                let is_open = |running: &&mut RunningTransaction| !running.locked;
                let complete = state
                    .running
                    .with_tid(tid)
                    .filter(is_open)
                    .is_none_or(|running| running.waiters >= target);
                complete || state.aborted.is_some()
            });
        }
        self.state.lock().batching.end();
    }

    /// Makes the caller the leader if the transaction is to be committed and there is no leader.
    fn next_step(&self, tid: Tid, caller: Caller) -> Result<Step> {
        let now = self.runtime.monotonic();
        let mut guard = self.state.lock();
        let state = &mut *guard;
        if state.committing.is_committed(tid) {
            return Ok(Step::Done);
        }
        state.check_aborted()?;
        if caller.reason != Reason::Age
            && let Some(running) = state.running.with_tid(tid)
        {
            running.requested_at.get_or_insert(now);
        }
        if !state.committing.is_idle() {
            return Ok(Step::WaitForLeader);
        }
        let Some(running) =
            state.running.transaction().filter(|running| !running.tid.is_after(tid))
        else {
            return Ok(Step::Done);
        };
        let shares = state.checkpointing.parts.contains(CheckpointParts::SHARED_COMMITS);
        if !caller.batched && shares {
            if state.batching.target().is_some() {
                return Ok(Step::JoinBatch);
            }
            if state.batching.try_begin(running.waiters, caller.contended) {
                return Ok(Step::WaitForBatch);
            }
        }
        state.committing.lock(running.tid);
        state.running.lock(now);
        Ok(Step::Commit)
    }

    /// The leader waits for open handles, and takes the locked transaction. `None` if it is empty.
    fn take_locked(&self) -> Result<Option<RunningTransaction>> {
        self.wait(|state| state.aborted.is_some() || state.running.has_no_updates());
        let mut guard = self.state.lock();
        let state = &mut *guard;
        state.check_aborted()?;
        if state.running.transaction().is_none_or(RunningTransaction::is_empty) {
            state.running.unlock_empty(self.runtime.monotonic());
            state.committing.unlock();
            drop(guard);
            self.changed.notify();
            return Ok(None);
        }
        let running =
            state.running.take_locked().expect("only the leader takes the locked transaction");
        let (metadata, revokes) = (running.metadata_blocks(), running.revoke_records());
        state.committing.freeze(log_space::transaction_blocks(&self.layout, metadata, revokes));
        Ok(Some(running))
    }

    /// A transaction without changes needs no commit. File data must be durable all the same.
    fn flush_file_data(&self) -> Result<()> {
        self.buffers.device().flush().map_err(|error| {
            self.abort(&format!("flush failed: {error}"));
            Error::from(error)
        })
    }
}

/// True if waiting for the commit of this transaction no longer has a purpose.
fn is_over(state: &State, tid: Tid) -> bool {
    state.aborted.is_some() || state.committing.is_committed(tid)
}
