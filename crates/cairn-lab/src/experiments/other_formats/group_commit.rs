//! Clients in a closed loop that each fsync a new file on ext4: how many share a commit, with and
//! without a leader that waits for the callers of the last commit.

use cairn_jbd2::CheckpointParts as Parts;

use crate::error::Result;
use crate::experiment::Context;
use crate::experiments::async_checkpoint::media::run::{SEED, run_on};
use crate::fs_mark::{Load, SyncMethod};
use crate::media;
use crate::section::{Builder, Metric, Section};

pub(super) const ID: &str = "group-commit";
/// A leader commits at once.
pub(super) const AT_ONCE: &str = "at once";
/// A leader waits for the callers of the last commit.
pub(super) const GATHERED: &str = "gathered";
pub(super) const PER_1000: &str = "commits_per_1000";
pub(super) const NOTE: &str = "Group commit: clients that create, write and fsync a file each, \
    over and over, on the model of NVMe, a journal that never fills. gathered is how ext4's \
    journal works here: the first caller waits for those that shared the last commit. A shared \
    commit is what a merged checkpoint is on F2FS.";
const CLIENTS: [usize; 7] = [1, 2, 4, 8, 16, 32, 64];
const JOURNAL: u64 = 1 << 30;

pub(super) fn row(clients: usize) -> String {
    format!("{clients} clients")
}

/// Measures the table.
pub(super) fn measure(context: &Context) -> Result<Section> {
    let metrics = vec![
        Metric::lower(PER_1000, "commits per 1,000 fsyncs"),
        Metric::higher("fsyncs_per_s", "fsyncs/s"),
        Metric::lower("fsync_p99_ms", "fsync p99 ms"),
    ];
    let title = "Group commit of ext4: clients that fsync in a closed loop, model of NVMe";
    let mut builder = Builder::new(ID, title, &[AT_ONCE, GATHERED], metrics);
    context.progress.expect(CLIENTS.len());
    for clients in CLIENTS {
        context.progress.show(&row(clients));
        let load = Load {
            threads: clients,
            files: (context.scale.pick(640, 3200, 12_800) / clients).max(20),
            size: 4096,
            directories: 16,
            per_directory: 256,
            sync: SyncMethod::BeforeClose,
        };
        let medium = media::ALL[media::ALL.len() - 1];
        for (subject, parts) in
            [(AT_ONCE, Parts::all() - Parts::SHARED_COMMITS), (GATHERED, Parts::all())]
        {
            let run = run_on(medium, JOURNAL, "noasync_checkpoint", parts, &load, SEED)?;
            let marks = &run.marks;
            let figures = [
                (PER_1000, 1000.0 * run.transactions / marks.files as f64),
                ("fsyncs_per_s", marks.files_per_s()),
                ("fsync_p99_ms", marks.syncs.value_at_quantile(0.99) as f64 / 1e6),
            ];
            builder.add(&row(clients), subject, &figures);
        }
        context.progress.step();
    }
    Ok(builder.finish())
}
