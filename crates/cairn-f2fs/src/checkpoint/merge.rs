//! `checkpoint_merge`: one daemon writes one checkpoint for all who ask at the same time.
//!
//! Requests ([`Reason::Sync`], [`Reason::Fsync`]) queue, the daemon detaches the list, writes a checkpoint and hands its
//! result to all of them ([`super::queue`]); before that it lets those come whom it expects ([`super::gather`]). Other
//! reasons never queue: whoever has them needs this very checkpoint. Without the daemon (`nocheckpoint_merge`, a volume that
//! is read-only or whose checkpoints are disabled) each caller writes for itself. A caller that queued before the daemon
//! went serves all that wait.
//!
//! The daemon works for whoever is in the batch, so its thread should run at the highest priority among them: no caller then
//! waits for a checkpoint that a less important one writes in its own time.
//!
//! Locking: `daemon` (who starts and stops it) is held while the daemon ends, so nothing that a checkpoint takes may be held
//! by whoever switches; everything else is leaves.

use std::sync::{Arc, Weak};
use std::time::Duration;

use cairn_base::ranked_lock::{Mutex, Rank};
use cairn_base::runtime::{Daemon, DaemonHandle, Progress};
use cairn_base::stats::{Counter, Gauge, Histogram, Report};

use super::gather::Gather;
use super::queue::Queue;
use super::{Checkpoints, Reason};
use crate::error::Result;

/// Before every other lock of the volume but the one that callers of remount hold.
const DAEMON: Rank = Rank(60);

/// Requests, and who serves them.
pub struct Merge {
    queue: Queue<Request, Result<bool>>,
    gather: Mutex<Gather>,
    daemon: Mutex<Option<DaemonHandle>>,
    /// Counters.
    pub stats: MergeStats,
}

#[derive(Clone, Copy)]
struct Request {
    reason: Reason,
    /// When it was made.
    since: Duration,
}

/// Counters with the kernel's names and meanings, and what single requests waited.
#[derive(Debug, Default)]
pub struct MergeStats {
    /// Requests that wait now, those being served included.
    pub queued: Gauge,
    /// Checkpoints asked for on behalf of a batch.
    pub issued: Counter,
    /// Requests answered.
    pub total: Counter,
    /// Mean time that the requests of the last batch waited, in milliseconds.
    pub cur_ms: Gauge,
    /// Greatest of those means.
    pub peak_ms: Gauge,
    /// What each request waited, in nanoseconds.
    pub wait_ns: Histogram,
    /// Batches that were held back for more requests to come.
    pub gathered: Counter,
}

impl MergeStats {
    /// Adds the counters to a report.
    #[must_use]
    pub fn report(&self, report: Report) -> Report {
        report
            .with("queued", &self.queued)
            .with("issued", &self.issued)
            .with("total", &self.total)
            .with("cur_ms", &self.cur_ms)
            .with("peak_ms", &self.peak_ms)
            .with("wait_ns", &self.wait_ns)
            .with("gathered", &self.gathered)
    }

    /// Only one batch is served at a time.
    fn answered(&self, waits: &[Duration]) {
        let count = waits.len() as u64;
        waits.iter().for_each(|wait| self.wait_ns.record(u64::try_from(wait.as_nanos()).unwrap_or(u64::MAX)));
        let sum: Duration = waits.iter().sum();
        let mean = i64::try_from(sum.as_millis() / u128::from(count.max(1))).unwrap_or(i64::MAX);
        self.cur_ms.set(mean);
        self.peak_ms.set(self.peak_ms.get().max(mean));
        self.total.add(count);
        self.queued.add(-i64::try_from(count).unwrap_or(i64::MAX));
    }
}

impl Default for Merge {
    fn default() -> Self {
        Self {
            queue: Queue::new(),
            gather: Mutex::new(Rank::LEAF, Gather::default()),
            daemon: Mutex::new(DAEMON, None),
            stats: MergeStats::default(),
        }
    }
}

struct MergeDaemon(Weak<Checkpoints>);

impl Daemon for MergeDaemon {
    fn step(&self) -> Progress {
        let Some(checkpoints) = self.0.upgrade() else { return Progress::Done };
        checkpoints.serve_when_due()
    }
}

impl Checkpoints {
    /// Has a checkpoint written that holds everything done before this call. Returns whether
    /// anything had to be written. Merged with others if the reason allows it and there is a
    /// daemon. Call it without the operation lock.
    ///
    /// # Errors
    /// The volume has stopped, or stops now because of this error: all requests of a batch get the same.
    pub fn request(&self, reason: Reason) -> Result<bool> {
        let merges = matches!(reason, Reason::Sync | Reason::Fsync);
        if !merges || !self.is_merging() {
            return self.write(reason);
        }
        let runtime = &self.parts.runtime;
        self.merge.stats.queued.add(1);
        let request = Request { reason, since: runtime.monotonic() };
        self.merge.queue.ask(request, |event, ready| runtime.wait_until(event, ready), || self.serve())
    }

    /// Is there a daemon?
    #[must_use]
    pub fn is_merging(&self) -> bool {
        self.merge.queue.is_attended()
    }

    /// Starts the daemon if there is none. Where the system has no thread for it, everybody writes their own checkpoints.
    pub fn start_merging(self: &Arc<Self>) {
        let mut daemon = self.merge.daemon.lock();
        if daemon.is_none() {
            let body = Arc::new(MergeDaemon(Arc::downgrade(self)));
            match self.parts.runtime.spawn("f2fs_ckpt", self.merge.queue.arrived.clone(), body) {
                Ok(started) => {
                    *daemon = Some(started);
                    self.merge.queue.attend();
                }
                Err(error) => tracing::warn!("checkpoints are not merged: {error}"),
            }
        }
    }

    /// Ends the daemon if there is one. Whoever waits is served before this returns.
    pub fn stop_merging(&self) {
        let mut slot = self.merge.daemon.lock();
        let Some(daemon) = slot.take() else { return };
        self.merge.queue.desert();
        daemon.stop();
        // Requesters do it, too: whoever comes first.
        self.serve();
        let empty = || self.merge.queue.is_empty();
        self.parts.runtime.wait_until(&self.merge.queue.changed, &mut || empty());
    }

    /// The daemon's step.
    fn serve_when_due(&self) -> Progress {
        let waiting = self.merge.queue.waiting();
        if waiting == 0 {
            return Progress::Idle(None);
        }
        let now = self.parts.runtime.monotonic();
        let patience = self.merge.gather.lock().patience(waiting, now);
        if patience.is_some() {
            return Progress::Idle(patience);
        }
        self.serve();
        Progress::Worked
    }

    /// Writes one checkpoint for all who wait now, unless somebody else does.
    fn serve(&self) {
        let Some(batch) = self.merge.queue.detach() else { return };
        let runtime = &self.parts.runtime;
        let begin = runtime.monotonic();
        let for_all = batch.iter().any(|ticket| ticket.question.reason == Reason::Sync);
        let outcome = self.write(if for_all { Reason::Sync } else { Reason::Fsync });
        let end = runtime.monotonic();
        let waiting = self.merge.queue.waiting();
        let mut arrivals: Vec<_> = batch.iter().map(|ticket| ticket.question.since).collect();
        let gathered = self.merge.gather.lock().served(&mut arrivals, waiting, end.saturating_sub(begin));
        let waits: Vec<_> = batch.iter().map(|ticket| end.saturating_sub(ticket.question.since)).collect();
        let stats = &self.merge.stats;
        stats.gathered.add(gathered.into());
        stats.issued.add(1);
        stats.answered(&waits);
        self.merge.queue.answer(batch, &outcome);
    }
}
