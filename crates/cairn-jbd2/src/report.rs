//! The journal's counters by name: the section `journal` of a volume's report.
//!
//! `average` and `checkpoint` hold the figures of jbd2's `info` file, with its names and units.

use cairn_base::stats::{Counter, Report};

use crate::checkpoint::keep_free::KeepFree;
use crate::checkpoint::list::CheckpointClean;
use crate::journal::Journal;
use crate::stats::JournalStats;

/// What the report needs of the state, read under one lock.
struct Snapshot {
    blocks: u32,
    free: u32,
    low_water: u32,
    threshold: u32,
    percent: u8,
    clean: CheckpointClean,
    pending: usize,
    pending_mean: f64,
    listed: usize,
    reclaimable: u32,
}

impl Journal {
    fn snapshot(&self) -> Snapshot {
        let state = self.state.lock();
        let checkpointing = &state.checkpointing;
        Snapshot {
            blocks: state.log.blocks(),
            free: state.log.free(),
            low_water: state.log.low_water(),
            threshold: checkpointing.threshold(state.log.blocks(), state.log.free()),
            percent: checkpointing.keep_free.map_or(0, KeepFree::percent),
            clean: checkpointing.clean_mode,
            pending: checkpointing.list.len(),
            pending_mean: checkpointing.mean_length(),
            listed: checkpointing.list.listed(),
            reclaimable: checkpointing.list.reclaimable(),
        }
    }

    /// The counters, for the section `journal` of a volume's report.
    #[must_use]
    pub fn report(&self) -> Report {
        let (stats, snapshot) = (&self.stats, self.snapshot());
        let mut report = commits(stats);
        report.set("max_blocks", self.max_transaction_buffers);
        report.set("average", averages(stats));
        report.set("checkpoint", checkpoint(stats, &snapshot));
        report.set("stalls", stalls(stats));
        report
            .with("checkpointed", &stats.checkpointed)
            .with("forced_checkpoints", &stats.forced_checkpoints)
            .with("superseded", &stats.superseded)
            .with("dropped_superseded", &stats.dropped_superseded)
            .with("checkpoint_clean", snapshot.clean.name())
            .with("clean_calls", &stats.clean_calls)
            .with("clean_steps", &stats.clean_steps)
            .with("freed", &stats.freed)
            .with("list_len", snapshot.listed)
            .with("pending_transactions", snapshot.pending)
            .with("pending_transactions_mean", snapshot.pending_mean)
            .with("blocks", snapshot.blocks)
            .with("free_blocks", snapshot.free)
            .with("free_blocks_low_water", snapshot.low_water)
            .with("reclaimable_blocks", snapshot.reclaimable)
    }
}

fn commits(stats: &JournalStats) -> Report {
    Report::new()
        .with("transactions", &stats.transactions)
        .with("requested", &stats.requested)
        .with("commit_waits", &stats.commit_waits)
        .with("handles", &stats.handles)
        .with("overdrafts", &stats.overdrafts)
        .with("blocks_logged", &stats.blocks_logged)
        .with("log_blocks", &stats.log_blocks)
        .with("revokes", &stats.revokes)
        .with("commit_ns", &stats.commit_ns)
}

/// Means over all transactions, in the units of jbd2.
fn averages(stats: &JournalStats) -> Report {
    let transactions = stats.transactions.get();
    let per = |total: u64, unit: f64| {
        if transactions == 0 { 0.0 } else { ratio(total, transactions) / unit }
    };
    let ms = |counter: &Counter| per(counter.get(), 1e6);
    Report::new()
        .with("waiting_for_transaction_ms", ms(&stats.waiting_ns))
        .with("request_delay_ms", ms(&stats.request_delay_ns))
        .with("running_transaction_ms", ms(&stats.running_ns))
        .with("transaction_was_being_locked_ms", ms(&stats.locked_ns))
        .with("flushing_data_ms", ms(&stats.flushing_ns))
        .with("logging_transaction_ms", ms(&stats.logging_ns))
        .with("transaction_commit_time_us", per(stats.commit_ns.total(), 1e3))
        .with("handles_per_transaction", per(stats.handles.get(), 1.0))
        .with("blocks_per_transaction", per(stats.blocks_logged.get(), 1.0))
        .with("logged_blocks_per_transaction", per(stats.log_blocks.get(), 1.0))
}

fn checkpoint(stats: &JournalStats, snapshot: &Snapshot) -> Report {
    Report::new()
        .with("chp_time_ms", ratio(stats.checkpoint_ns.get(), 1_000_000))
        .with("forced_to_close", &stats.forced_to_close)
        .with("written", &stats.checkpoint_blocks)
        .with("dropped", &stats.superseded)
        .with("async_percent", u64::from(snapshot.percent))
        .with("async_threshold_blocks", snapshot.threshold)
        .with("async_runs", &stats.async_runs)
        .with("async_buffers_written", &stats.async_blocks)
        .with("sync_buffers_written", &stats.sync_blocks)
        .with("left_out", &stats.left_out)
        .with("tail_moves", &stats.tail_moves)
}

/// Waits of handles for log space.
fn stalls(stats: &JournalStats) -> Report {
    let all = stats.stall_ns.summary();
    Report::new()
        .with("count", all.count)
        .with("total_ns", all.total)
        .with("max_ns", all.max)
        .with("p99_ns", all.p99)
}

#[expect(clippy::cast_precision_loss, reason = "a mean for the report")]
fn ratio(total: u64, by: u64) -> f64 {
    total as f64 / by as f64
}
