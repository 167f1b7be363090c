//! The journal: its state, and what callers ask of it.

use std::sync::Arc;
use std::time::Duration;

use cairn_base::Tid;
use cairn_base::ranked_lock::{Mutex, Rank};
use cairn_base::runtime::{Daemon, DaemonHandle, Event, Progress, Runtime};
use cairn_base::stats::Report;
use cairn_cache::block::BufferCache;

use crate::area::JournalArea;
use crate::error::{Error, Result};
use crate::format::blocks::BlockLayout;
use crate::format::superblock::{MIN_BLOCKS, Superblock};
use crate::format::{Compat, Incompat};
use crate::handle::Handle;
use crate::log_space::{self, LogSpace};
use crate::recovery::{read_superblock, write_superblock};
use crate::stats::JournalStats;
use crate::transaction::{CheckpointList, Running};

/// How a journal is run.
#[derive(Clone, Copy, Debug)]
pub struct JournalOptions {
    /// A transaction is committed at the latest this long after its first handle.
    pub commit_interval: Duration,
    /// The volume's metadata has checksums, so the log gets them, too (third layout); `None` leaves the log as it is.
    pub checksums: Option<bool>,
    /// The volume's block numbers have 64 bits, however small it is now.
    pub wide: bool,
}

impl Default for JournalOptions {
    fn default() -> Self {
        Self { commit_interval: Duration::from_secs(5), checksums: None, wide: false }
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
    /// First log block of the transaction being written to the log.
    pub writing_from: Option<u32>,
    /// The committing transaction's images are being pinned: nobody may change a buffer.
    pub pinning: bool,
    /// Last durable transaction.
    pub committed: Tid,
    pub log: LogSpace,
    pub checkpoint: CheckpointList,
    /// Blocks being written home right now.
    pub going_home: std::collections::HashSet<cairn_base::Pba>,
    /// Somebody is checkpointing.
    pub checkpointing: bool,
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
    options: JournalOptions,
    pub(crate) state: Mutex<State>,
    /// Something in `state` has changed that a waiter may wait for.
    pub(crate) changed: Event,
    wake: Arc<Event>,
    daemon: Mutex<Option<DaemonHandle>>,
    stats: JournalStats,
}

struct CommitDaemon(std::sync::Weak<Journal>);

impl Daemon for CommitDaemon {
    fn step(&self) -> Progress {
        let Some(journal) = self.0.upgrade() else { return Progress::Done };
        journal.commit_if_due()
    }
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
            options,
            state: Mutex::new(
                Rank::JOURNAL,
                State {
                    running: None,
                    next_tid,
                    committing: None,
                    committing_needs: 0,
                    writing_from: None,
                    pinning: false,
                    committed: Tid(next_tid.0.wrapping_sub(1)),
                    log,
                    checkpoint: CheckpointList::default(),
                    going_home: std::collections::HashSet::new(),
                    checkpointing: false,
                    superblock,
                    aborted: None,
                },
            ),
            changed: Event::new(),
            wake: Arc::new(Event::new()),
            daemon: Mutex::new(Rank::LEAF, None),
            stats: JournalStats::default(),
        });
        let daemon = Arc::new(CommitDaemon(Arc::downgrade(&journal)));
        *journal.daemon.lock() = Some(runtime.spawn("jbd2", journal.wake.clone(), daemon));
        Ok(journal)
    }

    /// Starts an operation that changes at most `credits` blocks. Waits while the running transaction is being locked, and for
    /// room in the log. No folio, mapping, allocator or buffer lock may be held.
    ///
    /// # Errors
    /// The journal has stopped, or no transaction can hold that much.
    pub fn begin(self: &Arc<Self>, credits: u32) -> Result<Handle> {
        let tid = self.begin_unguarded(credits)?;
        Ok(Handle::new(self.clone(), tid, credits))
    }

    /// Joins the running transaction; the caller ends what it began.
    pub(crate) fn begin_unguarded(&self, credits: u32) -> Result<Tid> {
        if credits > self.largest {
            return Err(Error::TooLarge { credits, largest: self.largest });
        }
        loop {
            match self.admit(credits) {
                Admission::Joined { tid, first } => {
                    if first {
                        self.wake.notify();
                    }
                    self.stats.handles.add(1);
                    return Ok(tid);
                }
                Admission::Aborted(reason) => return Err(Error::Aborted(reason)),
                Admission::TransactionFull(tid) => self.commit_and_wait(tid)?,
                Admission::Busy => self.wait(|state| {
                    state.aborted.is_some() || !(state.pinning || state.running.as_ref().is_some_and(|r| r.locked))
                }),
                Admission::LogFull => {
                    self.stats.forced_checkpoints.add(1);
                    self.make_log_space()?;
                }
            }
        }
    }

    fn admit(&self, credits: u32) -> Admission {
        let mut guard = self.state.lock();
        let state = &mut *guard;
        if let Some(reason) = &state.aborted {
            return Admission::Aborted(reason.clone());
        }
        if state.pinning {
            return Admission::Busy;
        }
        let needs = match &state.running {
            Some(running) if running.locked => return Admission::Busy,
            Some(running) if self.would_overfill(running, credits) => return Admission::TransactionFull(running.tid),
            Some(running) => running.needs_with(&self.layout, credits),
            None => log_space::needed(&self.layout, credits, 0) + 1,
        };
        if needs.saturating_add(state.committing_needs).saturating_add(RESERVE) > state.log.free() {
            return Admission::LogFull;
        }
        let first = state.running.is_none();
        if first {
            let tid = state.next_tid;
            state.next_tid = tid.next();
            state.running = Some(Running::new(tid, self.runtime.monotonic()));
        }
        let running = state.running.as_mut().expect("a transaction is open");
        running.handles += 1;
        running.promised += credits;
        Admission::Joined { tid: running.tid, first }
    }

    /// True if so many credits more make the transaction too large. One without open handles takes any admissible handle unless it
    /// holds something already.
    pub(crate) fn would_overfill(&self, running: &Running, credits: u32) -> bool {
        let per_block = u32::try_from(self.layout.revokes_per_block()).unwrap_or(u32::MAX);
        let revokes = running.revoke_count() / per_block + running.revoke_blocks;
        running.copies().saturating_add(credits).saturating_add(revokes) > self.largest
    }

    /// Room in the log: checkpoints what has committed, or commits what is running if nothing has.
    fn make_log_space(&self) -> Result<()> {
        let (logged, committing, blocks) = {
            let state = self.state.lock();
            (!state.checkpoint.is_empty(), state.committing, state.log.blocks())
        };
        match committing {
            _ if logged => self.checkpoint(blocks / 4),
            Some(tid) => self.commit_and_wait(tid),
            None => self.commit_running(),
        }
    }

    /// Blocks until the condition holds.
    pub(crate) fn wait(&self, mut ready: impl FnMut(&State) -> bool) {
        self.runtime.wait_until(&self.changed, &mut || ready(&self.state.lock()));
    }

    /// Makes a transaction durable. The caller leads the commit if nobody else does. Returns at once if it is already durable.
    ///
    /// # Errors
    /// The journal has stopped.
    pub fn commit_and_wait(&self, tid: Tid) -> Result<()> {
        loop {
            match self.try_lead(tid, true) {
                Lead::Done => return Ok(()),
                Lead::Aborted(reason) => return Err(Error::Aborted(reason)),
                // Nothing to log; file data written so far is still to be made durable.
                Lead::Empty => {
                    return self.buffers.device().flush().map_err(|error| {
                        self.abort(&format!("flush failed: {error}"));
                        Error::from(error)
                    });
                }
                Lead::Mine(running) => {
                    self.stats.requested.add(1);
                    self.commit(running)?;
                }
                Lead::Wait => {
                    self.wait(|state| state.aborted.is_some() || state.committed.is_at_or_after(tid) || can_lead(state))
                }
            }
        }
    }

    /// Asks for a commit without waiting for it.
    pub fn request_commit(&self, tid: Tid) {
        {
            let mut state = self.state.lock();
            match &mut state.running {
                Some(running) if running.tid == tid => running.requested = true,
                _ => return,
            }
        }
        self.wake.notify();
    }

    /// Makes everything durable that was changed so far.
    ///
    /// # Errors
    /// The journal has stopped.
    pub fn commit_running(&self) -> Result<()> {
        let tid = {
            let state = self.state.lock();
            if let Some(reason) = &state.aborted {
                return Err(Error::Aborted(reason.clone()));
            }
            match (&state.running, state.committing) {
                (Some(running), _) => running.tid,
                (None, Some(tid)) => tid,
                (None, None) => return Ok(()),
            }
        };
        self.commit_and_wait(tid)
    }

    /// The commit daemon's step: commits what is old enough or was asked for.
    fn commit_if_due(&self) -> Progress {
        let now = self.runtime.monotonic();
        let (tid, due) = {
            let state = self.state.lock();
            match &state.running {
                _ if state.aborted.is_some() => return Progress::Idle(None),
                Some(running) => {
                    let age = now.saturating_sub(running.started);
                    let left = self.options.commit_interval.saturating_sub(age);
                    (running.tid, if running.requested { Duration::ZERO } else { left })
                }
                None => return Progress::Idle(None),
            }
        };
        if due > Duration::ZERO {
            return Progress::Idle(Some(due));
        }
        // An error has latched; whoever asks next is told.
        let _ = self.commit_and_wait(tid);
        Progress::Worked
    }

    fn try_lead(&self, tid: Tid, requested: bool) -> Lead {
        let mut guard = self.state.lock();
        let state = &mut *guard;
        if state.committed.is_at_or_after(tid) {
            return Lead::Done;
        }
        if let Some(reason) = &state.aborted {
            return Lead::Aborted(reason.clone());
        }
        if !can_lead(state) {
            return Lead::Wait;
        }
        let Some(running) = &mut state.running else { return Lead::Done };
        if running.tid.is_after(tid) {
            return Lead::Done;
        }
        running.requested |= requested;
        running.locked = true;
        let tid = running.tid;
        state.committing = Some(tid);
        drop(guard);
        // Handles that are open may finish; new ones wait.
        self.wait(|state| state.aborted.is_some() || state.running.as_ref().is_none_or(|running| running.handles == 0));
        let mut guard = self.state.lock();
        let state = &mut *guard;
        if let Some(reason) = &state.aborted {
            return Lead::Aborted(reason.clone());
        }
        let running = state.running.as_mut().expect("the leader alone takes the locked transaction");
        if running.buffers.is_empty() && running.revokes.is_empty() && running.hooks.is_empty() {
            // It stays open, as if it had just begun.
            (running.locked, running.requested, running.started) = (false, false, self.runtime.monotonic());
            running.revoke_blocks = 0;
            state.committing = None;
            drop(guard);
            self.changed.notify();
            return Lead::Empty;
        }
        let running = state.running.take().expect("it is there");
        state.committing_needs = log_space::needed(&self.layout, running.copies(), running.revoke_count());
        state.pinning = true;
        Lead::Mine(running)
    }

    /// The running transaction's number, or the last one's.
    pub fn running_tid(&self) -> Tid {
        let state = self.state.lock();
        state.running.as_ref().map_or(state.committed, |running| running.tid)
    }

    /// True if the transaction still takes handles or waits for them: its flush is yet to come.
    pub fn is_running(&self, tid: Tid) -> bool {
        self.state.lock().running.as_ref().is_some_and(|running| running.tid == tid)
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
    }

    /// Stops without writing anything more, as if power failed now.
    pub fn freeze(&self, reason: &str) {
        {
            let mut state = self.state.lock();
            state.aborted.get_or_insert_with(|| reason.into());
        }
        self.changed.notify();
        self.wake.notify();
    }

    /// Commits and checkpoints everything, marks the log empty and stops the daemon. The volume is clean afterwards, once its own
    /// superblock says so.
    ///
    /// # Errors
    /// The journal has stopped, or the device failed.
    pub fn shutdown(&self) -> Result<()> {
        self.commit_running()?;
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

    /// What it has done so far.
    #[must_use]
    pub fn stats(&self) -> &JournalStats {
        &self.stats
    }

    /// Its counters, for the section `journal` of a volume's report.
    #[must_use]
    pub fn report(&self) -> Report {
        let (free, blocks) = {
            let state = self.state.lock();
            (state.log.free(), state.log.blocks())
        };
        self.stats.report().with("free_blocks", free).with("blocks", blocks)
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

/// Log blocks that admission leaves free, for operations that change more than they asked for.
const RESERVE: u32 = 32;

/// `-EIO`, as Linux stores it in `s_errno`.
const ABORT_ERRNO: u32 = (-5_i32).cast_unsigned();

fn can_lead(state: &State) -> bool {
    state.committing.is_none()
}

enum Admission {
    Joined { tid: Tid, first: bool },
    TransactionFull(Tid),
    LogFull,
    Busy,
    Aborted(Arc<str>),
}

enum Lead {
    Done,
    Wait,
    Empty,
    Mine(Running),
    Aborted(Arc<str>),
}

impl State {
    /// First log block of the transaction after the last committed one: where one that is being written began, else the head.
    pub(crate) fn committing_start(&self) -> u32 {
        self.writing_from.unwrap_or_else(|| self.log.head())
    }
}
