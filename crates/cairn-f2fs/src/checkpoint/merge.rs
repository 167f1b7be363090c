//! `checkpoint_merge`: one daemon writes one checkpoint for all requests that arrive together.
//!
//! Requests ([`Reason::Sync`], [`Reason::Fsync`]) are queued. The daemon waits for further requests
//! that it expects ([`super::gather`]), detaches the list, writes a checkpoint, and gives its
//! result to all of them ([`super::queue`]). Other reasons are not queued, because they need a
//! checkpoint of their own. Without the daemon (`nocheckpoint_merge`, a volume that is read-only or
//! whose checkpoints are disabled) each caller writes its own. A caller that queued before the
//! daemon ended serves the list.
//!
//! The daemon works for all callers of the batch, so its thread should have the highest priority
//! among them. Then no caller waits for a checkpoint that a thread of low priority writes.
//!
//! Locking: `daemon` is held while the daemon is started or ends. A thread that does this must not
//! hold a lock that a checkpoint takes. All other locks are leaves.

use std::time::Duration;

use cairn_base::ranked_lock::{Mutex, Rank};
use cairn_base::runtime::DaemonHandle;
use cairn_base::stats::{Counter, Gauge, Histogram, Report};

use super::coming::Coming;
use super::gather::Gather;
use super::queue::Queue;
use super::reason::Reason;
use crate::error::Result;

/// Requests, and the daemon that serves them.
pub(crate) struct Merge {
    pub(super) queue: Queue<Request, Result<bool>>,
    pub(super) gather: Mutex<Gather>,
    pub(super) coming: Coming,
    pub(super) daemon: Mutex<Option<DaemonHandle>>,
    /// Counters.
    pub(crate) stats: MergeStats,
}

#[derive(Clone, Copy)]
pub(super) struct Request {
    pub(super) reason: Reason,
    /// Time of the request.
    pub(super) since: Duration,
}

/// Counters with the kernel's names and meanings, and the waiting times of single requests.
#[derive(Debug, Default)]
pub struct MergeStats {
    /// Requests that wait now, those being served included.
    pub queued: Gauge,
    /// Checkpoints asked for on behalf of a batch.
    pub issued: Counter,
    /// Requests answered.
    pub total: Counter,
    /// Mean time that the requests of the last batch waited, in milliseconds.
    pub(crate) cur_ms: Gauge,
    /// Greatest of those means.
    pub(crate) peak_ms: Gauge,
    /// Waiting time of each request, in nanoseconds.
    pub(crate) wait_ns: Histogram,
    /// Batches that were held back for more requests to come.
    pub(crate) gathered: Counter,
}

impl MergeStats {
    /// Adds the counters to a report.
    #[must_use]
    pub(crate) fn report(&self, report: Report) -> Report {
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
    pub(super) fn answered(&self, waits: &[Duration]) {
        let count = waits.len() as u64;
        waits.iter().for_each(|wait| {
            self.wait_ns.record(u64::try_from(wait.as_nanos()).unwrap_or(u64::MAX))
        });
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
            gather: Mutex::new(Rank::Leaf, Gather::default()),
            coming: Coming::default(),
            daemon: Mutex::new(Rank::CheckpointMerge, None),
            stats: MergeStats::default(),
        }
    }
}
