//! The journal: its state, and what callers ask of it.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use cairn_base::ranked_lock::{Mutex, Rank};
use cairn_base::runtime::{DaemonHandle, Event, Runtime};
use cairn_base::{Pba, Tid};
use cairn_cache::block::BufferCache;

use crate::area::JournalArea;
use crate::checkpoint::daemon::check_threshold;
use crate::checkpoint::list::{CheckpointClean, CheckpointList};
use crate::error::{Error, Result};
use crate::format::blocks::BlockLayout;
use crate::format::superblock::{MIN_BLOCKS, Superblock};
use crate::format::{Compat, Incompat};
use crate::lead::CommitDaemon;
use crate::log_space::{self, LogSpace};
use crate::recovery::{read_superblock, write_superblock};
use crate::stats::JournalStats;
use crate::transaction::Running;

/// How a journal is run.
#[derive(Clone, Copy, Debug)]
pub struct JournalOptions {
    /// A transaction is committed at the latest this long after its first handle.
    pub commit_interval: Duration,
    /// The volume's metadata has checksums, so the log gets them, too (third layout); `None` leaves the log as it is.
    pub checksums: Option<bool>,
    /// The volume's block numbers have 64 bits, however small it is now.
    pub wide: bool,
    /// Percentage of the log that a daemon keeps free (`async_checkpoint`); `None`: it is checkpointed when it is full.
    pub async_checkpoint: Option<u8>,
    /// How finished transactions are found (`checkpoint_clean`).
    pub checkpoint_clean: CheckpointClean,
}

impl Default for JournalOptions {
    fn default() -> Self {
        Self {
            commit_interval: Duration::from_secs(5),
            checksums: None,
            wide: false,
            async_checkpoint: None,
            checkpoint_clean: CheckpointClean::default(),
        }
    }
}

/// What changes under the journal's lock.
pub(crate) struct State {
    pub running: Option<Running>,
    /// Number of the transaction that opens next.
    pub next_tid: Tid,
    /// The transaction being committed.
    pub committing: Option<Tid>,
    /// Log blocks set aside for the committing transaction and not taken yet.
    pub committing_needs: u32,
    /// Addresses that the transaction being written holds, in order.
    pub committing_blocks: Vec<Pba>,
    /// First log block of the transaction being written to the log.
    pub writing_from: Option<u32>,
    /// The committing transaction's images are being pinned: nobody may change a buffer.
    pub pinning: bool,
    /// Last durable transaction.
    pub committed: Tid,
    pub log: LogSpace,
    pub checkpoint: CheckpointList,
    /// Blocks being written home right now.
    pub going_home: HashSet<Pba>,
    /// Somebody is checkpointing.
    pub checkpointing: bool,
    /// Somebody is writing a superblock with a new tail.
    pub moving_tail: bool,
    /// Percentage of the log that the daemon keeps free.
    pub async_checkpoint: Option<u8>,
    /// How finished transactions are found.
    pub clean: CheckpointClean,
    pub commit_interval: Duration,
    /// A leader lets others come, until so many wait for the running transaction.
    pub gathering: Option<u32>,
    /// Callers that the last commit was made for.
    pub last_waiters: u32,
    /// What a commit takes: a mean that follows the last few.
    pub commit_mean: Duration,
    /// Transactions on the list, averaged over the last commits.
    pub pending_mean: f64,
    pub superblock: Superblock,
    pub aborted: Option<Arc<str>>,
}

/// An open journal. See the crate's documentation for the life of a transaction.
pub struct Journal {
    pub(crate) area: JournalArea,
    pub(crate) buffers: Arc<BufferCache>,
    pub(crate) runtime: Arc<dyn Runtime>,
    pub(crate) layout: BlockLayout,
    pub(crate) legacy_checksum: bool,
    pub(crate) largest: u32,
    pub(crate) state: Mutex<State>,
    /// Something in `state` has changed that a waiter may wait for.
    pub(crate) changed: Event,
    /// All are there for whom a leader waits.
    pub(crate) arrived: Event,
    pub(crate) wake: Arc<Event>,
    daemon: Mutex<Option<DaemonHandle>>,
    pub(crate) checkpoint_wake: Arc<Event>,
    /// Taken before `state`.
    pub(crate) checkpoint_daemon: Mutex<Option<DaemonHandle>>,
    stats: JournalStats,
}

impl Journal {
    /// Opens a journal that recovery has emptied.
    ///
    /// # Errors
    /// The log is not empty, or its superblock is damaged; the device failed.
    pub fn open(
        options: JournalOptions,
        buffers: Arc<BufferCache>,
        area: JournalArea,
        runtime: Arc<dyn Runtime>,
    ) -> Result<Arc<Self>> {
        check_threshold(options.async_checkpoint)?;
        let mut superblock = read_superblock(&area)?;
        let bad = |what, value, expected| Err(Error::Corrupt { block: 0, what, value, expected });
        if superblock.start != 0 {
            return bad("s_start", u64::from(superblock.start), "0: the log must be recovered first");
        }
        if superblock.blocks < MIN_BLOCKS {
            return bad("s_maxlen", u64::from(superblock.blocks), "at least 1024 blocks");
        }
        let needs_wide = buffers.device().geometry().size / u64::from(area.block_size) > u64::from(u32::MAX);
        choose_features(&mut superblock, &options, needs_wide);
        superblock.start = superblock.first;
        // The caller has taken note of an error of the last time: it is not about this time.
        superblock.errno = 0;
        let next_tid = superblock.sequence;
        write_superblock(&area, &superblock)?;
        let layout = BlockLayout::of(&superblock);
        let log = LogSpace::new(superblock.first, superblock.end(), next_tid);
        let journal = Arc::new(Self {
            largest: log_space::largest_transaction(&layout, log.blocks()),
            legacy_checksum: superblock.compat.contains(Compat::CHECKSUM) && layout.tags.tail() == 0,
            area,
            buffers,
            runtime: runtime.clone(),
            layout,
            state: Mutex::new(
                Rank::JOURNAL,
                State {
                    running: None,
                    next_tid,
                    committing: None,
                    committing_needs: 0,
                    committing_blocks: Vec::new(),
                    writing_from: None,
                    pinning: false,
                    committed: Tid(next_tid.0.wrapping_sub(1)),
                    log,
                    checkpoint: CheckpointList::default(),
                    going_home: HashSet::new(),
                    checkpointing: false,
                    moving_tail: false,
                    async_checkpoint: None,
                    clean: options.checkpoint_clean,
                    commit_interval: options.commit_interval,
                    gathering: None,
                    last_waiters: 0,
                    commit_mean: Duration::ZERO,
                    pending_mean: 0.0,
                    superblock,
                    aborted: None,
                },
            ),
            changed: Event::new(),
            arrived: Event::new(),
            wake: Arc::new(Event::new()),
            daemon: Mutex::new(Rank::LEAF, None),
            checkpoint_wake: Arc::new(Event::new()),
            checkpoint_daemon: Mutex::new(Rank(Rank::JOURNAL.0 - 1), None),
            stats: JournalStats::default(),
        });
        let daemon = Arc::new(CommitDaemon(Arc::downgrade(&journal)));
        *journal.daemon.lock() = Some(runtime.spawn("jbd2", journal.wake.clone(), daemon)?);
        journal.set_async_checkpoint(options.async_checkpoint)?;
        Ok(journal)
    }

    /// Blocks until the condition holds.
    pub(crate) fn wait(&self, mut ready: impl FnMut(&State) -> bool) {
        self.runtime.wait_until(&self.changed, &mut || ready(&self.state.lock()));
    }

    /// Number of the newest transaction that has begun, durable or not: nothing that was changed so far belongs to a later one.
    pub fn newest_tid(&self) -> Tid {
        let state = self.state.lock();
        let running = state.running.as_ref().map(|running| running.tid);
        running.or(state.committing).unwrap_or(state.committed)
    }

    /// True if the transaction is durable.
    pub fn is_committed(&self, tid: Tid) -> bool {
        self.state.lock().committed.is_at_or_after(tid)
    }

    /// Number of the last durable transaction.
    pub fn last_committed(&self) -> Tid {
        self.state.lock().committed
    }

    /// Why the journal has stopped, if it has.
    pub fn aborted(&self) -> Option<Arc<str>> {
        self.state.lock().aborted.clone()
    }

    /// Stops the journal for good: nothing more is logged, the tail never moves again, every waiter and later caller is told.
    /// The first reason is kept.
    pub fn abort(&self, reason: &str) {
        let (hooks, superblock) = {
            let mut state = self.state.lock();
            if state.aborted.is_some() {
                return;
            }
            state.aborted = Some(reason.into());
            let hooks = state.running.as_mut().map(|running| std::mem::take(&mut running.hooks)).unwrap_or_default();
            state.superblock.errno = ABORT_ERRNO;
            (hooks, state.superblock.clone())
        };
        tracing::error!(reason, "journal aborted");
        // Tells the next fsck. The device may be what failed; there is nothing to be done about that.
        let _ = write_superblock(&self.area, &superblock);
        for hook in hooks {
            hook(false);
        }
        self.changed.notify();
        self.wake.notify();
        self.checkpoint_wake.notify();
    }

    /// Stops without writing anything more, as if power failed now.
    pub fn abort_hard(&self, reason: &str) {
        {
            let mut state = self.state.lock();
            state.aborted.get_or_insert_with(|| reason.into());
        }
        self.changed.notify();
        self.wake.notify();
        self.checkpoint_wake.notify();
    }

    /// Commits and checkpoints everything, marks the log empty and stops the daemon. The volume is clean afterwards, once its own
    /// superblock says so.
    ///
    /// # Errors
    /// The journal has stopped, or the device failed.
    pub fn shutdown(&self) -> Result<()> {
        self.force_commit()?;
        self.stop_checkpointer();
        self.checkpoint_all()?;
        let daemon = self.daemon.lock().take();
        if let Some(daemon) = daemon {
            daemon.stop();
        }
        let superblock = {
            let mut state = self.state.lock();
            state.superblock.start = 0;
            state.superblock.sequence = state.next_tid;
            state.superblock.clone()
        };
        write_superblock(&self.area, &superblock).inspect_err(|error| self.abort(&error.to_string()))?;
        self.state.lock().aborted = Some("closed".into());
        Ok(())
    }

    /// Switches to another way of finding finished transactions, at once.
    pub fn set_checkpoint_clean(&self, mode: CheckpointClean) {
        self.state.lock().clean = mode;
    }

    /// How finished transactions are found.
    #[must_use]
    pub fn checkpoint_clean(&self) -> CheckpointClean {
        self.state.lock().clean
    }

    /// From now on a transaction is committed at the latest this long after its first handle.
    pub fn set_commit_interval(&self, interval: Duration) {
        self.state.lock().commit_interval = interval;
        self.wake.notify();
    }

    /// What it has done so far.
    #[must_use]
    pub fn stats(&self) -> &JournalStats {
        &self.stats
    }

    /// Blocks of the log that are free.
    #[must_use]
    pub fn free_blocks(&self) -> u32 {
        self.state.lock().log.free()
    }
}

/// The log is empty, so its layout can still change: revokes are always written, the rest follows the volume as in Linux.
fn choose_features(superblock: &mut Superblock, options: &JournalOptions, needs_wide: bool) {
    superblock.incompat |= Incompat::REVOKE;
    superblock
        .incompat
        .set(Incompat::BITS_64, superblock.incompat.contains(Incompat::BITS_64) || options.wide || needs_wide);
    let Some(checksums) = options.checksums else { return };
    superblock.incompat.remove(Incompat::CSUM_V2);
    superblock.incompat.set(Incompat::CSUM_V3, checksums);
    superblock.compat.remove(Compat::CHECKSUM);
}

/// `-EIO`, as Linux stores it in `s_errno`.
const ABORT_ERRNO: u32 = (-5_i32).cast_unsigned();

impl State {
    /// First log block of the transaction after the last committed one: where one that is being written began, else the head.
    pub(crate) fn committing_start(&self) -> u32 {
        self.writing_from.unwrap_or_else(|| self.log.head())
    }

    /// Averages the length of the list: an eighth of each new value.
    pub(crate) fn count_pending(&mut self) {
        #[expect(clippy::cast_precision_loss, reason = "a mean to be shown")]
        let now = self.checkpoint.pending() as f64;
        self.pending_mean += (now - self.pending_mean) / 8.0;
    }
}
