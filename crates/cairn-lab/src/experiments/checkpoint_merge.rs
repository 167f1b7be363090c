//! `checkpoint-merge`: one daemon that writes one checkpoint for all who ask at the same time (`checkpoint_merge`) against each
//! writing its own (`nocheckpoint_merge`).
//!
//! The proposal's three threads, on memory that takes the time of a phone's storage and divides it strictly by class
//! ([`crate::lanes`]): A makes files and fsyncs their directory, B writes a stream, C does what A does in a class of little weight. Then
//! closed loops of 1 to 64 clients, and some of them through a mount.

mod clients;
mod goals;
mod mounted;
mod threads;

use std::sync::Arc;
use std::time::Duration;

use cairn_base::Ino;
use cairn_base::stats::Report;
use cairn_vfs::FileSystem;
use cairn_vfs::types::{Caller, NewInode};
use hdrhistogram::Histogram;

use crate::error::Result;
use crate::experiment::{Context, Experiment, Findings};
use crate::paced::Pace;
use crate::section::{Builder, Metric};
use crate::volume::growth;

const OFF: &str = "nocheckpoint_merge";
const ON: &str = "checkpoint_merge";
const SUBJECTS: [&str; 2] = [OFF, ON];
const DEVICE: u64 = 1 << 30;

/// Rows of the three threads.
const WITH_C: &str = "A, B and C";
const WITHOUT_C: &str = "A and B";

/// A phone's storage: 12,500 transfers a second, 400 MiB/s, 1.5 ms to flush.
const PHONE: Pace =
    Pace { request: Duration::from_micros(80), bandwidth: 400 << 20, flush: Duration::from_micros(1500) };

/// Registered in [`crate::experiments`].
pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "checkpoint-merge",
    question: "Do those who need a checkpoint at the same time share one, and does none of them wait for a less important one?",
    run,
};

fn run(context: &Context) -> Result<Findings> {
    let mut findings = Findings { notes: notes(context), ..Findings::default() };
    findings.sections.push(three_threads(context)?);
    findings.sections.push(clients::measure(context)?);
    if let Err(error) = mounted::measure(context, &mut findings) {
        // What was measured in process is not lost over it.
        findings.notes.push(format!("Through a mount: ended early: {error}."));
    }
    findings.goals = goals::all(&findings.sections);
    Ok(findings)
}

fn three_threads(context: &Context) -> Result<crate::Section> {
    let metrics = vec![
        Metric::lower("seconds", "A's s"),
        Metric::lower("p50_ms", "fsync p50 ms"),
        Metric::lower("p99_ms", "fsync p99 ms"),
        Metric::lower("max_ms", "fsync max ms"),
        Metric::lower("checkpoints", "checkpoints"),
        Metric::higher("merged", "requests/batch"),
        Metric::lower("closed_p99_us", "gate closed p99 µs"),
        Metric::lower("whole_p99_us", "checkpoint p99 µs"),
        Metric::higher("others", "C's fsyncs"),
        Metric::higher("stream_mib_s", "B's MiB/s"),
    ];
    let title = "The proposal's threads: A's time for its touch and fsync of the directory";
    let mut builder = Builder::new("threads", title, &SUBJECTS, metrics);
    context.progress.expect(context.repetitions * 2);
    for repetition in 0..context.repetitions {
        for (row, with_c) in [(WITH_C, true), (WITHOUT_C, false)] {
            context.progress.show(row);
            for option in context.order(repetition, 2).map(|index| SUBJECTS[index]) {
                let rounds = context.scale.pick(60, 500, 1000);
                builder.add(row, option, &threads::measure(option, rounds, with_c)?);
            }
            context.progress.step();
        }
    }
    Ok(builder.finish())
}

/// Makes a directory in the root.
fn directory(volume: &dyn FileSystem, name: &str) -> Result<Ino> {
    Ok(volume.create(volume.root(), name.as_bytes(), NewInode::Directory, 0o755, &Caller::ROOT)?.ino)
}

/// `touch` of a new file and `fsync` of its directory; the fsync's time goes to `times`, in nanoseconds.
fn touch_and_fsync(volume: &dyn FileSystem, directory: Ino, name: &str, times: &mut Histogram<u64>) -> Result<()> {
    let made = volume.create(directory, name.as_bytes(), NewInode::Regular, 0o644, &Caller::ROOT)?;
    let start = std::time::Instant::now();
    volume.fsync(directory, 0, false)?;
    times.saturating_record(u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX));
    volume.forget(made.ino, 1);
    Ok(())
}

/// Times from a microsecond to a minute.
fn times() -> Histogram<u64> {
    Histogram::new_with_bounds(1_000, 60_000_000_000, 3).expect("the bounds are in order")
}

/// What the daemon and the checkpoints did meanwhile.
fn counters(before: &Report, after: &Report) -> Vec<(&'static str, f64)> {
    let mut figures = Vec::new();
    let grown = |path: &str| growth(before, after, path);
    figures.extend(grown("store.ckpt.written").map(|written| ("checkpoints", written)));
    if let (Some(total), Some(issued)) = (grown("store.ckpt.total"), grown("store.ckpt.issued"))
        && issued > 0.0
    {
        figures.push(("merged", total / issued));
    }
    figures
}

fn micros(report: &Report, path: &str) -> Option<f64> {
    crate::volume::counter(report, path).map(|ns| ns / 1e3)
}

fn volume(option: &str, weights: &[u32]) -> Result<Arc<dyn FileSystem>> {
    let memory: Arc<dyn cairn_block::BlockDevice> = Arc::new(cairn_block::memory::MemoryDevice::new(DEVICE));
    crate::volume::make_f2fs(&memory)?;
    let lanes: Arc<dyn cairn_block::BlockDevice> = Arc::new(crate::lanes::Lanes::new(memory, PHONE, weights));
    crate::volume::open(&lanes, option)
}

fn notes(context: &Context) -> Vec<String> {
    vec![
        format!(
            "A: {} times touch of a new file and fsync of its directory. B: a stream of 128K writes past the cache to one file, over and over. C: the same as A in \
             another directory, without end. Memory with {} µs a transfer, {} MiB/s and {} µs a flush is divided strictly among A and the daemons, B, and C \
             as 50 : 50 : 20: two in a class of weight 100, one in a class of weight 20. A checkpoint is written in the class of the thread that writes it.",
            context.scale.pick(60, 500, 1000),
            PHONE.request.as_micros(),
            PHONE.bandwidth >> 20,
            PHONE.flush.as_micros(),
        ),
        "Clients: each in its own directory, touch and fsync of the directory as soon as the last one returned; the same memory, one class."
            .to_owned(),
        "The proposal: 68 s without and 48 s with merging (a 256 GB UFS of a phone, 1,000 rounds): 29 % less.".to_owned(),
    ]
}
