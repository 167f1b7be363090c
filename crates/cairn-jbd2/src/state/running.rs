//! The running transaction (`j_running_transaction`).

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use cairn_base::{Pba, Tid};
use cairn_cache::block::Buffer;

use crate::transaction::{CommitCallback, RunningTransaction};

/// Most buffers for which a table is kept: 4,096 take about 100 KB.
const SPARE: usize = 4096;

/// The running transaction, if there is one, and the number of the next.
pub(crate) struct Running {
    transaction: Option<RunningTransaction>,
    /// Number of the next transaction (`j_transaction_sequence`).
    next_tid: Tid,
    /// The table of an earlier transaction, empty: the next transaction takes its memory.
    spare: HashMap<Pba, Arc<Buffer>>,
    /// The commit daemon commits a transaction of this age (`j_commit_interval`).
    pub(crate) commit_interval: Duration,
    /// The commit daemon sleeps until it is woken. Otherwise it looks again before a transaction
    /// that starts now is due, and need not be woken for it.
    pub(crate) daemon_sleeps: bool,
    /// `next_tid` when the daemon last found no transaction.
    daemon_saw: Tid,
}

impl Running {
    /// No running transaction.
    pub(crate) fn new(next_tid: Tid, commit_interval: Duration) -> Self {
        let spare = HashMap::new();
        Self {
            transaction: None,
            next_tid,
            spare,
            commit_interval,
            daemon_sleeps: true,
            daemon_saw: next_tid,
        }
    }

    /// Number of the next transaction.
    pub(crate) fn next_tid(&self) -> Tid {
        self.next_tid
    }

    /// The running transaction.
    pub(crate) fn transaction(&self) -> Option<&RunningTransaction> {
        self.transaction.as_ref()
    }

    /// The running transaction, if it has this number.
    pub(crate) fn with_tid(&mut self, tid: Tid) -> Option<&mut RunningTransaction> {
        self.transaction.as_mut().filter(|running| running.tid == tid)
    }

    /// The commit daemon finds no transaction to commit: how long it sleeps. `None` is until it is
    /// woken. While fsyncs start and commit transactions, it looks again after the commit interval,
    /// so that none of them has to wake it.
    pub(crate) fn daemon_rests(&mut self) -> Option<Duration> {
        self.daemon_sleeps = self.daemon_saw == self.next_tid;
        self.daemon_saw = self.next_tid;
        (!self.daemon_sleeps).then_some(self.commit_interval)
    }

    /// True if no handle can join because the running transaction is locked.
    pub(crate) fn is_locked(&self) -> bool {
        self.transaction.as_ref().is_some_and(|running| running.locked)
    }

    /// True if no handle is open.
    pub(crate) fn has_no_updates(&self) -> bool {
        self.transaction.as_ref().is_none_or(|running| running.updates == 0)
    }

    /// The running transaction. Starts one if there is none (`jbd2_get_transaction`).
    pub(crate) fn get_or_start(
        &mut self,
        now: impl FnOnce() -> Duration,
    ) -> &mut RunningTransaction {
        let Self { transaction, next_tid, spare, .. } = self;
        transaction.get_or_insert_with(|| {
            let tid = *next_tid;
            *next_tid = tid.next();
            RunningTransaction::new(tid, now(), std::mem::take(spare))
        })
    }

    /// Keeps the memory of a committing transaction's table for the next one, unless the
    /// transaction was large.
    pub(crate) fn reuse(&mut self, emptied: HashMap<Pba, Arc<Buffer>>) {
        debug_assert!(emptied.is_empty(), "the table still lists buffers");
        if emptied.capacity() <= SPARE {
            self.spare = emptied;
        }
    }

    /// Closes the running transaction to new handles (`T_RUNNING` to `T_LOCKED`).
    pub(crate) fn lock(&mut self, now: Duration) {
        let Some(running) = &mut self.transaction else {
            debug_assert!(false, "there is no running transaction to lock");
            return;
        };
        debug_assert!(!running.locked, "transaction {} is locked already", running.tid);
        running.locked = true;
        running.locked_at = now;
    }

    /// Opens a locked transaction again that holds nothing, as if it had just started.
    pub(crate) fn unlock_empty(&mut self, now: Duration) {
        let Some(running) = &mut self.transaction else {
            debug_assert!(false, "there is no running transaction to unlock");
            return;
        };
        debug_assert!(
            running.locked && running.is_empty(),
            "transaction {} cannot be unlocked",
            running.tid
        );
        (running.locked, running.requested_at, running.started) = (false, None, now);
        (running.revoke_blocks, running.waiters) = (0, 0);
        (running.commit_requested, running.is_full) = (false, false);
    }

    /// Takes the locked transaction for its commit. `None` if there is none.
    pub(crate) fn take_locked(&mut self) -> Option<RunningTransaction> {
        let running = self.transaction.take()?;
        debug_assert!(
            running.locked,
            "transaction {} is committed without being locked",
            running.tid
        );
        debug_assert!(
            running.updates == 0,
            "transaction {} is committed with open handles",
            running.tid
        );
        Some(running)
    }

    /// Takes the commit callbacks of a transaction that will never be durable.
    pub(crate) fn take_callbacks(&mut self) -> Vec<CommitCallback> {
        self.transaction
            .as_mut()
            .map(|running| std::mem::take(&mut running.callbacks))
            .unwrap_or_default()
    }
}
