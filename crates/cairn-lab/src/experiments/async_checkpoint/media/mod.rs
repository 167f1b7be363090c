//! `async-media`: the checkpoint daemon on storage that people have ([`crate::media`]), from SD
//! cards to NVMe, with journals of 4 to 64 MiB.
//!
//! The time is that of a model ([`crate::clock`]): a run on an SD card takes as long as one on
//! NVMe, and the figures do not depend on this machine.

mod goals;
mod linux;
mod parts;
pub(in crate::experiments) mod rates;
pub(in crate::experiments) mod run;
mod subjects;

use cairn_jbd2::CheckpointParts;

use crate::error::Result;
use crate::experiment::{Context, Experiment, Findings};
use crate::fs_mark::{Load, SyncMethod};
use crate::media::{self, Medium};
use crate::processors::{CREATE, FSYNC};
use crate::section::{Builder, Metric};
use rates::Rates;
use run::{SEED, run_on};
use subjects::{
    JOURNALS, NEVER, NEVER_FULL, OFF, ON, SUBJECTS, load, modes, most_repetitions, row,
};

/// The entry in [`crate::experiments`].
pub(in crate::experiments) const EXPERIMENT: Experiment = Experiment {
    name: "async-media",
    question: "On which storage does the checkpoint daemon keep operations from waiting?",
    run,
    about: None,
};

fn metrics() -> Vec<Metric> {
    vec![
        Metric::higher("files_per_s", "files/s"),
        Metric::higher("efficiency", "of never full"),
        Metric::higher("bound", "most of never full"),
        Metric::lower("fill_per_s", "home blocks/s needed"),
        Metric::higher("home_per_s", "home blocks/s possible"),
        Metric::lower("transactions", "transactions"),
        Metric::lower("stalls", "stalls"),
        Metric::lower("stall_ms", "stalled ms"),
        Metric::lower("op_p99_ms", "op p99 ms"),
        Metric::lower("op_p999_ms", "op p99.9 ms"),
        Metric::lower("op_max_ms", "op max ms"),
        Metric::lower("fsync_p99_ms", "fsync p99 ms"),
    ]
}

fn run(context: &Context) -> Result<Findings> {
    let mut findings = Findings { notes: notes(context), ..Findings::default() };
    let mut builders =
        media::ALL.map(|medium| Builder::new(medium.id, medium.title, &SUBJECTS, metrics()));
    let modes = modes(context.scale);
    let repetitions = context.repetitions.min(most_repetitions(context.scale));
    context.progress.expect(repetitions * media::ALL.len() * modes.len());
    for repetition in 0..repetitions {
        for (medium, builder) in media::ALL.iter().zip(&mut builders) {
            for sync in modes {
                context.progress.show(&format!("{}: -S {}", medium.title, *sync as usize));
                let load = load(context.scale, *sync);
                add(builder, *medium, *sync, &load, SEED + repetition as u64)?;
                context.progress.step();
            }
        }
    }
    findings.sections.extend(builders.map(Builder::finish));
    findings.goals = goals::all(&findings.sections, modes);
    let parts = parts::measure(context, repetitions)?;
    findings.goals.extend(parts::goals(&parts));
    findings.sections.push(parts);
    match linux::measure(context, &mut findings.notes) {
        Ok(section) => findings.sections.extend(section),
        // The tables of the model are kept.
        Err(error) => {
            findings.notes.push(format!("Linux on the same storage: ended early: {error}."));
        }
    }
    Ok(findings)
}

/// Adds one repetition of a mode with all journals.
fn add(
    builder: &mut Builder,
    medium: Medium,
    sync: SyncMethod,
    load: &Load,
    seed: u64,
) -> Result<()> {
    let one = |medium, journal, option, load, seed| {
        run_on(medium, journal, option, CheckpointParts::all(), load, seed)
    };
    let never = one(medium, NEVER_FULL, OFF, load, seed)?;
    for (name, bytes) in JOURNALS {
        let row = row(name, sync);
        let off = one(medium, bytes, OFF, load, seed)?;
        let on = one(medium, bytes, ON, load, seed)?;
        builder.add(&row, OFF, &off.figures(&never));
        builder.add(&row, ON, &on.figures(&never));
        builder.add(&row, ON, &Rates::of(&off, &on, &never).figures());
        builder.add(&row, NEVER, &never.figures(&never));
    }
    Ok(())
}

fn notes(context: &Context) -> Vec<String> {
    let files = |sync| load(context.scale, sync).files;
    let costs = media::ALL.map(|medium| {
        format!(
            "{}: {} µs for the first block of a write elsewhere, {} µs for each further one, {} \
             streams kept apart, {} µs a block read, {} µs a flush",
            medium.title,
            medium.random.as_micros(),
            medium.sequential.as_micros(),
            medium.streams,
            medium.read.as_micros(),
            medium.flush.as_micros()
        )
    });
    vec![
        format!(
            "fs_mark's work as in async-checkpoint, 32 threads; files a thread: {} with -S 1, 3 \
             and 5 (half of them in the table of parts), {} with -S 4 and 6, {} with -S 0 and 2. \
             A journal of 64 MiB fills with --scale full only.",
            files(SyncMethod::Reverse),
            files(SyncMethod::SyncThenReverse),
            files(SyncMethod::Never)
        ),
        format!("In the time of a model, in blocks of 4 KiB. {}.", costs.join(". ")),
        format!(
            "Two processors; a file takes {} µs of one of them, an fsync {} µs. Repetitions: at \
             most {}, because only the order of threads differs.",
            CREATE.as_micros(),
            FSYNC.as_micros(),
            most_repetitions(context.scale)
        ),
        "Home blocks/s needed: blocks that are not superseded before they are written home, at the \
         speed of a journal that never fills. Possible: those that the device writes home in the \
         time that such a run leaves it. Most of never full: what the device allows if it does \
         both.".to_owned(),
        "Parts: as Linux: the handle that finds less than a quarter of the log free writes the \
         blocks of the oldest transaction, in batches of 64, with a flush and a superblock for \
         each transaction; it first commits the running transaction if that holds one of the \
         blocks; each fsync commits by itself.".to_owned(),
    ]
}
