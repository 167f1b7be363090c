//! `buffered-io`: the page cache with large mappings and folios (`buffered_iomap`) against the
//! per-block path (`nobuffered_iomap`), in the rows of the kernel proposal.
//!
//! In process: the same volume on the same device is opened with each option in turn. A row's
//! figure is the throughput of sequential calls of one size. Counters are differences over the
//! timed parts. Memory that a cache recycles has been touched before, as in a process that has run
//! for some time.

mod about;
mod copy;
mod f2fs;
mod goals;
mod journal;
mod measure;
mod memory;
mod mounted;
mod rows;
mod subjects;

use std::collections::BTreeMap;

use crate::error::Result;
use crate::experiment::{Context, Experiment, Findings};
use crate::section::{Builder, Metric};
use measure::{BOUND, Bench, Figures, Sizes};
use rows::Line;
use subjects::MEMCPY;

pub(super) use f2fs::{ON_F2FS, on_f2fs};
pub(super) use subjects::{LARGE, PER_BLOCK};

/// The entry in [`crate::experiments`].
pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "buffered-io",
    question: "How much faster is buffered I/O with large mappings and folios than block by block?",
    run,
    about: Some(&about::ABOUT),
};

fn metrics() -> Vec<Metric> {
    vec![
        Metric::higher("mib_per_s", "MiB/s"),
        Metric::higher("iops", "IOPS"),
        Metric::lower("map_calls_per_mib", "map calls/MiB"),
        Metric::lower("folios_per_mib", "folios/MiB"),
        Metric::lower("journal_blocks_per_mib", "journal blocks/MiB"),
        Metric::higher("memcpy_fraction", "of memcpy"),
        Metric::higher(BOUND, "memcpy of all bytes, MiB/s"),
    ]
}

fn run(context: &Context) -> Result<Findings> {
    let sizes = Sizes::of(context.scale);
    let mut findings = Findings::default();
    let bench = Bench::new(&context.scratch, sizes)?;
    findings.notes = notes(&bench, sizes);
    in_process(context, &bench, &mut findings)?;
    findings.sections.push(memory::measure(context, &bench)?);
    journal::measure(context, &bench, &mut findings)?;
    if let Err(error) = mounted::measure(context, &mut findings) {
        // A failure through mounts keeps the results in process.
        findings.notes.push(format!("Through mounts: ended early: {error}."));
    }
    findings.goals = goals::all(&findings.sections);
    Ok(findings)
}

/// Measures all rows of all tables, interleaved.
fn in_process(context: &Context, bench: &Bench, findings: &mut Findings) -> Result<()> {
    let lines = rows::all();
    let mut builders: Vec<Builder> = rows::SECTIONS
        .iter()
        .map(|(id, title)| Builder::new(id, title, &[PER_BLOCK, LARGE, MEMCPY], metrics()))
        .collect();
    context.progress.expect(context.repetitions * lines.len());
    for repetition in 0..context.repetitions {
        let mut copy_speed = BTreeMap::new();
        for line in &lines {
            context.progress.show(&line.name);
            let speed = *copy_speed
                .entry(line.block)
                .or_insert_with(|| copy::speed(line.block, bench.sizes()));
            one_row(context, bench, line, repetition, speed, &mut builders[line.section])?;
            context.progress.step();
        }
    }
    findings.sections.extend(builders.into_iter().map(Builder::finish));
    Ok(())
}

fn one_row(
    context: &Context,
    bench: &Bench,
    line: &Line,
    repetition: usize,
    mut copy: f64,
    builder: &mut Builder,
) -> Result<()> {
    // A cached row also has the plain copy as a subject.
    let subjects: &[&str] =
        if line.is_cached_write() { &[PER_BLOCK, LARGE, MEMCPY] } else { &[PER_BLOCK, LARGE] };
    let mut found: Vec<(&str, Figures)> = Vec::new();
    for subject in context.order(repetition, subjects.len()).map(|index| subjects[index]) {
        if subject == MEMCPY {
            copy = copy::speed(line.block, bench.sizes());
        } else {
            found.push((subject, bench.measure(line, subject)?));
        }
    }
    for (subject, figures) in found {
        builder.add(&line.name, subject, &figures.list(copy, line.copies()));
    }
    if subjects.contains(&MEMCPY) {
        let calls = copy * (1 << 20) as f64 / line.block as f64;
        builder.add(&line.name, MEMCPY, &[("mib_per_s", copy), ("iops", calls)]);
    }
    Ok(())
}

fn notes(bench: &Bench, sizes: Sizes) -> Vec<String> {
    vec![
        format!(
            "In process, ext4 with 4 KiB blocks. Writes go over files of {} MiB again and again \
             for at least {} ms; reads take a cold file of {} MiB (holes: as far as they come in \
             that time). On the disk files are half as large.",
            sizes.file >> 20,
            sizes.time.as_millis(),
            sizes.data >> 20
        ),
        "cached: nothing is written back; write-back: each pass ends with one fsync, which counts; \
         sync: an fsync after each write."
            .to_owned(),
        format!("ramdisk: memory of this process, touched before; disk: {}.", bench.disk_kind()),
        "memcpy: copying blocks of the same size into memory that was touched before, one after \
         the other, as a cached write does."
            .to_owned(),
        "memcpy of all bytes: the speed if only the copies took time: into the cache or out of it, \
         from a device in memory or to it, and those of blocks of the journal."
            .to_owned(),
        "Counters are differences over the timed parts; folios/MiB is what the cache holds at \
         their end.".to_owned(),
    ]
}
