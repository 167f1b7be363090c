//! The work of fs_mark with one thread: a growing checkpoint list, and the workload of the
//! regression of 2023, in which the walk did not stop.

use std::sync::Mutex;
use std::time::Instant;

use cairn_base::stats::Report;
use cairn_block::memory::MemoryDevice;

use super::subjects::MODES;
use crate::error::Result;
use crate::experiment::Context;
use crate::fs_mark::{self, Load, SyncMethod};
use crate::scale::Scale;
use crate::section::{Builder, Metric, Section};
use crate::volume::{self, counter, growth};

/// Ids of the tables and their rows.
pub(super) const GROWING: &str = "growing-list";
pub(super) const GROWING_ROW: &str = "-D 2 -N 2560 -S 1 -s 4096";
pub(super) const VISITS: &str = "visits";
pub(super) const VISITS_ROW: &str = "-s 1024 -n 10000 -D 100 -N 100";
/// Metrics.
pub(super) const LONG_RATE: &str = "files_per_s_long";
pub(super) const EXCESS: &str = "looks_beyond_freed_per_cleaning";
/// The number of transactions of a long list.
pub(super) const LONG: u64 = 3000;

/// Number of files of the growing list. At least every sixteenth file leaves a transaction on the
/// list.
pub(super) fn count(scale: Scale) -> usize {
    scale.pick(2000, 56_000, 400_000)
}

fn metrics(first: &[Metric]) -> Vec<Metric> {
    let mut metrics = first.to_vec();
    metrics.extend([
        Metric::lower("transactions", "transactions"),
        Metric::higher("list_len", "listed at the end"),
        Metric::lower("looks", "looks"),
        Metric::higher("freed", "freed"),
        Metric::lower(EXCESS, "(looks − freed)/cleaning"),
    ]);
    metrics
}

/// The reported workload: the list grows by a transaction for every sixteenth file.
pub(super) fn growing_list(context: &Context) -> Result<Section> {
    let rates =
        [Metric::higher("files_per_s", "files/s"), Metric::higher(LONG_RATE, "files/s, long list")];
    let mut builder =
        Builder::new(GROWING, "One thread, fsync after each file", &MODES, metrics(&rates));
    let files = count(context.scale);
    let load = Load {
        threads: 1,
        files,
        size: 4096,
        directories: 2,
        per_directory: 2560,
        sync: SyncMethod::BeforeClose,
    };
    // About ten log blocks for each file, and some more.
    let journal = (files as u64 * 14 * 4096).next_power_of_two().max(64 << 20);
    context.progress.expect(context.repetitions);
    context.progress.show(GROWING_ROW);
    for repetition in 0..context.repetitions {
        for mode in context.order(repetition, MODES.len()).map(|index| MODES[index]) {
            builder.add(GROWING_ROW, mode, &one(&load, journal, mode)?);
        }
        context.progress.step();
    }
    Ok(builder.finish())
}

/// The workload of the regression of 2023. The blocks looked at must not exceed the freed blocks
/// and the transactions.
pub(super) fn visits(context: &Context) -> Result<Section> {
    let rates = [Metric::higher("files_per_s", "files/s")];
    let mut builder = Builder::new(VISITS, "The regression of 2023", &MODES, metrics(&rates));
    let files = context.scale.pick(1000, 10_000, 10_000);
    let load = Load {
        threads: 1,
        files,
        size: 1024,
        directories: 100,
        per_directory: 100,
        sync: SyncMethod::BeforeClose,
    };
    context.progress.expect(context.repetitions);
    context.progress.show(VISITS_ROW);
    for repetition in 0..context.repetitions {
        for mode in context.order(repetition, MODES.len()).map(|index| MODES[index]) {
            let mut figures = one(&load, 16 << 20, mode)?;
            figures.retain(|(name, _)| *name != LONG_RATE);
            builder.add(VISITS_ROW, mode, &figures);
        }
        context.progress.step();
    }
    Ok(builder.finish())
}

fn one(load: &Load, journal: u64, mode: &str) -> Result<Vec<(&'static str, f64)>> {
    // A journal takes at most half of the volume.
    let size = 2 * journal + load.files as u64 * 16384 + (256 << 20);
    let device: std::sync::Arc<dyn cairn_block::BlockDevice> =
        std::sync::Arc::new(MemoryDevice::new(size));
    volume::make(&device, Some(journal))?;
    let volume = volume::open(&device, &format!("{mode},noasync_checkpoint,cache=2G"))?;
    let before = volume.report();
    // The time when the list became long, and the number of files until then.
    let long_since = Mutex::new(None);
    let watch = |files: u64| {
        if files.is_multiple_of(256) {
            let mut since = long_since.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            let is_long = || counter(&volume.report(), "journal.list_len") >= Some(LONG as f64);
            if since.is_none() && is_long() {
                *since = Some((Instant::now(), files));
            }
        }
    };
    let marks = fs_mark::run(&*volume, load, &watch)?;
    let end = Instant::now();
    let after = volume.report();
    volume.unmount()?;
    let mut figures = vec![("files_per_s", marks.files_per_s())];
    let long_since = long_since.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    if let Some((since, files)) = long_since.filter(|(_, files)| *files < marks.files) {
        figures.push((LONG_RATE, (marks.files - files) as f64 / (end - since).as_secs_f64()));
    }
    figures.extend(counts(&before, &after));
    Ok(figures)
}

fn counts(before: &Report, after: &Report) -> Vec<(&'static str, f64)> {
    let grown = |name: &str| growth(before, after, &format!("journal.{name}"));
    let (transactions, looks, freed) =
        (grown("transactions"), grown("clean_steps"), grown("freed"));
    // A commit cleans once. A handle that needs log space cleans as well.
    let excess = || Some((looks? - freed?) / grown("clean_calls")?);
    let all = [
        ("transactions", transactions),
        ("list_len", counter(after, "journal.list_len")),
        ("looks", looks),
        ("freed", freed),
        (EXCESS, excess()),
    ];
    all.into_iter().filter_map(|(name, value)| Some((name, value?))).collect()
}
