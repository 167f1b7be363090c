//! `checkpoint-merge`: a daemon that writes one checkpoint for all concurrent requests
//! (`checkpoint_merge`) against a checkpoint for each request (`nocheckpoint_merge`).
//!
//! The work is the proposal's three threads, on memory with the timing of a phone's storage that is
//! divided strictly by class ([`crate::lanes`]). A creates files and fsyncs their directory, B
//! writes a stream, C does the same as A in a class of little weight. Then 1 to 64 clients in
//! closed loops, some of them also through a mount.

mod about;
mod clients;
mod goals;
mod load;
mod mounted;
mod subjects;
mod threads;

use crate::error::Result;
use crate::experiment::{Context, Experiment, Findings};
use crate::section::{Builder, Metric};
use load::PHONE;
use subjects::SUBJECTS;
use threads::{WITH_C, WITHOUT_C};

/// The entry in [`crate::experiments`].
pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "checkpoint-merge",
    question: "Do concurrent requests share one checkpoint, without waiting for a client of lower \
        weight?",
    run,
    about: Some(&about::ABOUT),
};

fn run(context: &Context) -> Result<Findings> {
    let mut findings = Findings { notes: notes(context), ..Findings::default() };
    findings.sections.push(three_threads(context)?);
    findings.sections.extend(clients::measure(context)?);
    if let Err(error) = mounted::measure(context, &mut findings) {
        // A failure through mounts keeps the results in process.
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
        Metric::lower("closed_p99_us", "op lock p99 µs"),
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

fn notes(context: &Context) -> Vec<String> {
    vec![
        format!(
            "A: {} times touch of a new file and fsync of its directory. B: a stream of 128K \
             writes past the cache to one file, over and over. C: the same as A in another \
             directory, without end. Memory with {} µs a transfer, {} MiB/s and {} µs a flush is \
             divided strictly among A and the daemons, B, and C as 50 : 50 : 20: two in a class of \
             weight 100, one in a class of weight 20. A checkpoint is written in the class of the \
             thread that writes it.",
            context.scale.pick(60, 500, 1000),
            PHONE.request.as_micros(),
            PHONE.bandwidth >> 20,
            PHONE.flush.as_micros(),
        ),
        "Clients: each in its own directory, touch and fsync of the directory as soon as the last \
         one returned; the same memory, one class."
            .to_owned(),
        "The proposal: 68 s without and 48 s with merging (a 256 GB UFS of a phone, 1,000 rounds): \
         29 % less.".to_owned(),
    ]
}
