//! `async-checkpoint`: a daemon that keeps part of the journal free (`async_checkpoint`) against
//! checkpoints when the journal is full (`noasync_checkpoint`).
//!
//! In process: the work of fs_mark on memory with the timing of a solid-state disk
//! ([`crate::paced`]), with the smallest possible journal, a small one, and one that never fills,
//! which is the yardstick. Each run begins with a new volume. Through a mount: the unmodified
//! fs_mark.

mod about;
mod goals;
pub(super) mod media;
mod mounted;
mod subjects;

use std::sync::Arc;

use cairn_block::BlockDevice;
use cairn_block::memory::MemoryDevice;

use crate::error::Result;
use crate::experiment::{Context, Experiment, Findings};
use crate::fs_mark::{self, Load, Marks, SyncMethod};
use crate::paced::{Pace, Paced};
use crate::section::{Builder, Metric};
use crate::volume::{self, growth};
use subjects::{JOURNALS, NEVER_FULL, OFF, ON, load, row, threads_row};

const DEVICE: u64 = 2048 << 20;

/// The entry in [`crate::experiments`].
pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "async-checkpoint",
    question: "Does the checkpoint daemon keep operations from waiting for a full journal?",
    run,
    about: Some(&about::ABOUT),
};

fn metrics() -> Vec<Metric> {
    vec![
        Metric::higher("files_per_s", "files/s"),
        Metric::higher("efficiency", "of never full"),
        Metric::lower("transactions", "transactions"),
        Metric::higher("files_per_commit", "files/commit"),
        Metric::lower("stalls", "stalls"),
        Metric::lower("stall_ms", "stalled ms"),
        Metric::lower("op_p50_us", "op p50 µs"),
        Metric::lower("op_p99_us", "op p99 µs"),
        Metric::lower("op_max_ms", "op max ms"),
        Metric::lower("fsync_p99_us", "fsync p99 µs"),
    ]
}

fn run(context: &Context) -> Result<Findings> {
    let mut findings = Findings { notes: notes(context), ..Findings::default() };
    in_process(context, &mut findings)?;
    shared_commits(context, &mut findings)?;
    if let Err(error) = mounted::measure(context, &mut findings) {
        // A failure through mounts keeps the results in process.
        findings.notes.push(format!("Through a mount: ended early: {error}."));
    }
    findings.goals = goals::all(&findings.sections);
    Ok(findings)
}

fn in_process(context: &Context, findings: &mut Findings) -> Result<()> {
    let mut builders =
        JOURNALS.map(|(id, title, _)| Builder::new(id, title, &[OFF, ON], metrics()));
    // All combinations of a journal and an option.
    let pairs: Vec<(usize, &str)> =
        (0..JOURNALS.len()).flat_map(|journal| [(journal, OFF), (journal, ON)]).collect();
    context.progress.expect(context.repetitions * SyncMethod::ALL.len());
    for repetition in 0..context.repetitions {
        for sync in SyncMethod::ALL {
            context.progress.show(&row(sync));
            let load = load(context.scale, sync);
            let mut found = Vec::new();
            for (journal, option) in
                context.order(repetition, pairs.len()).map(|index| pairs[index])
            {
                found.push((journal, option, one(JOURNALS[journal].2, option, &load)?));
            }
            let yardstick =
                found.iter().find(|(journal, option, _)| (*journal, *option) == (NEVER_FULL, OFF));
            let yardstick = yardstick.map_or(f64::NAN, |(_, _, marks)| marks.marks.files_per_s());
            for (journal, option, marks) in &found {
                builders[*journal].add(&row(sync), option, &marks.figures(yardstick));
            }
            context.progress.step();
        }
    }
    findings.sections.extend(builders.map(Builder::finish));
    Ok(())
}

/// Measures how many files share a commit when many threads fsync.
fn shared_commits(context: &Context, findings: &mut Findings) -> Result<()> {
    let metrics = metrics().into_iter().filter(|metric| metric.name != "efficiency").collect();
    let title = "Shared commits: threads that fsync each file, a journal that never fills";
    let mut builder = Builder::new("shared-commits", title, &[OFF], metrics);
    context.progress.expect(context.repetitions);
    context.progress.show("shared commits");
    for _ in 0..context.repetitions {
        for threads in [1, 8, 32] {
            let load = Load { threads, ..load(context.scale, SyncMethod::BeforeClose) };
            let figures = one(JOURNALS[NEVER_FULL].2, OFF, &load)?.figures(f64::NAN);
            let figures: Vec<_> =
                figures.into_iter().filter(|(name, _)| *name != "efficiency").collect();
            builder.add(&threads_row(threads), OFF, &figures);
        }
        context.progress.step();
    }
    findings.sections.push(builder.finish());
    Ok(())
}

/// The marks of one run, and the growth of its counters.
struct Run {
    marks: Marks,
    transactions: Option<f64>,
    stalls: Option<f64>,
    stall_ns: Option<f64>,
}

fn one(journal: u64, option: &str, load: &Load) -> Result<Run> {
    let memory: Arc<dyn BlockDevice> = Arc::new(MemoryDevice::new(DEVICE));
    volume::make(&memory, Some(journal))?;
    let paced = Arc::new(Paced::new(memory, Pace::SSD));
    let device: Arc<dyn BlockDevice> = paced.clone();
    let volume = volume::open(&device, option)?;
    let before = volume.report();
    let marks = fs_mark::run(&*volume, load, &|_| {})?;
    let after = volume.report();
    paced.stop_pacing();
    volume.unmount()?;
    let grown = |path| growth(&before, &after, path);
    Ok(Run {
        marks,
        transactions: grown("journal.transactions"),
        stalls: grown("journal.stalls.count"),
        stall_ns: grown("journal.stalls.total_ns"),
    })
}

impl Run {
    fn figures(&self, yardstick: f64) -> Vec<(&'static str, f64)> {
        let marks = &self.marks;
        let micros = |nanoseconds: u64| nanoseconds as f64 / 1e3;
        let mut figures = vec![
            ("files_per_s", marks.files_per_s()),
            ("efficiency", marks.files_per_s() / yardstick),
            ("op_p50_us", micros(marks.changes.value_at_quantile(0.5))),
            ("op_p99_us", micros(marks.changes.value_at_quantile(0.99))),
            ("op_max_ms", micros(marks.changes.max()) / 1e3),
        ];
        if !marks.syncs.is_empty() {
            figures.push(("fsync_p99_us", micros(marks.syncs.value_at_quantile(0.99))));
        }
        if let Some(transactions) = self.transactions {
            figures.push(("transactions", transactions));
            figures.push(("files_per_commit", marks.files as f64 / transactions));
        }
        figures.extend(self.stalls.map(|stalls| ("stalls", stalls)));
        figures.extend(self.stall_ns.map(|ns| ("stall_ms", ns / 1e6)));
        figures
    }
}

fn notes(context: &Context) -> Vec<String> {
    let files = |sync| load(context.scale, sync).files;
    let one = load(context.scale, SyncMethod::Never);
    let pace = Pace::SSD;
    vec![
        format!(
            "fs_mark's work: {} threads, files of {} bytes, {} directories in turn of {} files; {} \
             files a thread, {} with -S 1, 3 and 5, {} with -S 4 and 6. -S: 0 nothing, 1 fsync \
             before close, 2 sync and one fsync, 3 fsync in reverse order at the end, 4 sync and \
             3, 5 fsync in order at the end, 6 sync and 5.",
            one.threads,
            one.size,
            one.directories,
            one.per_directory,
            one.files,
            files(SyncMethod::Reverse),
            files(SyncMethod::SyncThenReverse)
        ),
        format!(
            "In process, on memory paced as one queue: {} µs a transfer, {} MiB/s, {} µs a flush. \
             A new volume for each run.",
            pace.request.as_micros(),
            pace.bandwidth >> 20,
            pace.flush.as_micros()
        ),
        "op: creating and writing one file. A stall: a handle waited for room in the \
         journal."
            .to_owned(),
        "of never full: files/s relative to noasync_checkpoint with the largest journal, in the \
         same repetition."
            .to_owned(),
    ]
}
