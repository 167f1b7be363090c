//! The journal (`journal_t`): what its parts share, and how it is aborted.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use cairn_base::Tid;
use cairn_base::ranked_lock::Mutex;
use cairn_base::runtime::{DaemonHandle, Event, Runtime};
use cairn_base::told::TOLD;
use cairn_cache::block::BufferCache;

use crate::area::{FORCED, JournalArea, write_superblock};
use crate::checkpoint::list::CheckpointClean;
use crate::format::blocks::BlockLayout;
use crate::state::State;
use crate::stats::JournalStats;

/// An open journal. The crate's documentation tells the stages of a transaction.
pub struct Journal {
    pub(crate) area: JournalArea,
    pub(crate) buffers: Arc<BufferCache>,
    pub(crate) runtime: Arc<dyn Runtime>,
    pub(crate) layout: BlockLayout,
    /// Commit blocks get a CRC-32 of their transaction (`Compat::CHECKSUM`).
    pub(crate) has_transaction_crc32: bool,
    /// Most credits of a transaction (`j_max_transaction_buffers`).
    pub(crate) max_transaction_buffers: u32,
    pub(crate) state: Mutex<State>,
    /// Wakes the callers of [`Journal::wait`] when `state` has changed.
    pub(crate) changed: Event,
    /// Wakes a leader when the callers that it waits for have arrived.
    pub(crate) batch_complete: Event,
    /// Wakes the commit daemon.
    pub(crate) commit_wake: Arc<Event>,
    pub(crate) commit_daemon: Mutex<Option<DaemonHandle>>,
    /// See [`Journal::set_postpones_commits`].
    pub(crate) postpones_commits: OnceLock<Box<dyn Fn() -> bool + Send + Sync>>,
    /// Wakes the checkpoint daemon.
    pub(crate) checkpoint_wake: Arc<Event>,
    /// Locked before `state`.
    pub(crate) checkpoint_daemon: Mutex<Option<DaemonHandle>>,
    pub(crate) stats: JournalStats,
}

impl Journal {
    /// Blocks until the condition holds.
    pub(crate) fn wait(&self, mut ready: impl FnMut(&State) -> bool) {
        self.runtime.wait_until(&self.changed, &mut || ready(&self.state.lock()));
    }

    /// Number of the newest transaction that was started. No change made so far is in a later one.
    pub fn newest_tid(&self) -> Tid {
        self.state.lock().newest_tid()
    }

    /// True if the transaction is durable.
    pub fn is_committed(&self, tid: Tid) -> bool {
        self.state.lock().committing.is_committed(tid)
    }

    /// Why the journal was aborted, if it was.
    pub fn aborted(&self) -> Option<Arc<str>> {
        self.state.lock().aborted.clone()
    }

    /// Aborts the journal for good (`jbd2_journal_abort`): nothing more is logged, the log tail
    /// stays where it is, and every waiter and later caller gets an error. The first reason is
    /// kept.
    pub fn abort(&self, reason: &str) {
        let Some((superblock, callbacks)) = self.state.lock().abort(reason) else { return };
        tracing::error!(target: TOLD, reason, "journal aborted");
        // The superblock tells the next fsck. If the device refuses it, nothing more can be done.
        let _ = write_superblock(&self.area, &superblock, FORCED);
        for callback in callbacks {
            callback(false);
        }
        self.wake_all();
    }

    /// Aborts the journal without writing anything, as if the power failed now.
    pub fn abort_hard(&self, reason: &str) {
        self.state.lock().aborted.get_or_insert_with(|| reason.into());
        self.wake_all();
    }

    fn wake_all(&self) {
        self.changed.notify();
        self.commit_wake.notify();
        self.checkpoint_wake.notify();
    }

    /// Changes how checkpointed transactions are found, at once.
    pub fn set_checkpoint_clean(&self, mode: CheckpointClean) {
        self.state.lock().checkpointing.clean_mode = mode;
    }

    /// Changes the age at which the commit daemon commits a transaction.
    pub fn set_commit_interval(&self, interval: Duration) {
        self.state.lock().running.commit_interval = interval;
        self.commit_wake.notify();
    }

    /// The commit daemon does not commit while this is true: a commit that nobody waits for would
    /// find no room on the device and abort the journal. The daemon asks with no lock held, once a
    /// second. Only the first call has an effect.
    pub fn set_postpones_commits(&self, postpones: impl Fn() -> bool + Send + Sync + 'static) {
        self.postpones_commits.get_or_init(|| Box::new(postpones));
    }

    /// Counters since the journal was opened.
    #[must_use]
    pub fn stats(&self) -> &JournalStats {
        &self.stats
    }

    /// Free blocks of the log.
    #[must_use]
    pub fn free_blocks(&self) -> u32 {
        self.state.lock().log.free()
    }
}
