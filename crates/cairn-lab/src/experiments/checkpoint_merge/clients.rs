//! Clients in closed loops: how many of them share a checkpoint.

use std::time::Instant;

use super::load::{counters, directory, times, touch_and_fsync, volume};
use super::subjects::{ON, SUBJECTS};
use crate::error::{Error, Result};
use crate::experiment::Context;
use crate::section::{Axis, Builder, Metric, Section};
use crate::volume::counter;

/// Numbers of clients.
pub(super) const CLIENTS: [u32; 7] = [1, 2, 4, 8, 16, 32, 64];

/// The median time of a checkpoint.
const WHOLE: &str = "whole_p50_ms";
/// The lines of the chart, and their metrics.
const LATENCIES: [(&str, &str); 3] =
    [("one checkpoint", WHOLE), ("fsync p50", "p50_ms"), ("fsync p99", "p99_ms")];

/// The name of a row.
pub(super) fn row(clients: u32) -> String {
    if clients == 1 { "1 client".to_owned() } else { format!("{clients} clients") }
}

pub(super) fn metrics() -> Vec<Metric> {
    vec![
        Metric::lower("per_1000", "checkpoints/1,000 requests"),
        Metric::higher("requests_per_s", "requests/s"),
        Metric::lower("p50_ms", "fsync p50 ms"),
        Metric::lower("p99_ms", "fsync p99 ms"),
        Metric::lower("checkpoints", "checkpoints"),
        Metric::higher("merged", "requests/batch"),
    ]
}

/// The table of both options, and the latency with merging as a chart.
pub(super) fn measure(context: &Context) -> Result<[Section; 2]> {
    let title = "Clients in a closed loop, each with its own directory";
    let mut builder = Builder::new("clients", title, &SUBJECTS, metrics());
    let title = "An fsync with merging, by the number of clients, beside the time of a checkpoint";
    let names = LATENCIES.map(|(name, _)| name);
    let mut latency = Builder::new("latency", title, &names, vec![Metric::lower("ms", "ms")]);
    context.progress.expect(context.repetitions * CLIENTS.len());
    for repetition in 0..context.repetitions {
        for clients in CLIENTS {
            context.progress.show(&row(clients));
            // About the same number of checkpoints in each row, so that the start has the same
            // weight.
            let rounds = (context.scale.pick(200, 1000, 4000) / clients)
                .clamp(20, context.scale.pick(60, 250, 1000));
            for option in context.order(repetition, 2).map(|index| SUBJECTS[index]) {
                let mut figures = one(option, clients, rounds)?;
                for (name, metric) in LATENCIES {
                    let found = figures.iter().find(|(known, _)| *known == metric);
                    if let Some((_, ms)) = found.filter(|_| option == ON) {
                        latency.add(&row(clients), name, &[("ms", *ms)]);
                    }
                }
                figures.retain(|(name, _)| *name != WHOLE);
                builder.add(&row(clients), option, &figures);
            }
            context.progress.step();
        }
    }
    let at = CLIENTS.iter().map(|clients| (row(*clients), f64::from(*clients))).collect();
    let axis = Some(Axis { heading: "clients".to_owned(), at, marks: Vec::new() });
    Ok([builder.finish(), Section { axis, ..latency.finish() }])
}

fn one(option: &str, clients: u32, rounds: u32) -> Result<Vec<(&'static str, f64)>> {
    let volume = volume(option, &[1])?;
    let volume = &*volume;
    let directories: Vec<_> = (0..clients)
        .map(|client| directory(volume, &format!("dir-{client}")))
        .collect::<Result<_>>()?;
    volume.sync()?;
    let before = volume.report();
    let start = Instant::now();
    let mut all = times();
    std::thread::scope(|scope| {
        let run = |directory| {
            scope.spawn(move || -> Result<_> {
                let mut fsyncs = times();
                for number in 0..rounds {
                    touch_and_fsync(volume, directory, &format!("file-{number}"), &mut fsyncs)?;
                }
                Ok(fsyncs)
            })
        };
        let threads: Vec<_> = directories.into_iter().map(run).collect();
        for thread in threads {
            all += thread.join().map_err(|_| Error::Panicked)??;
        }
        Ok::<_, Error>(())
    })?;
    let seconds = start.elapsed().as_secs_f64();
    let after = volume.report();
    volume.unmount()?;
    let mut figures = counters(&before, &after);
    let requests = f64::from(clients * rounds);
    let checkpoints =
        figures.iter().find(|(name, _)| *name == "checkpoints").map(|(_, count)| *count);
    figures.extend(checkpoints.map(|count| ("per_1000", 1000.0 * count / requests)));
    figures.extend(counter(&after, "store.ckpt.whole_ns.p50").map(|ns| (WHOLE, ns / 1e6)));
    figures.push(("requests_per_s", requests / seconds));
    figures.push(("p50_ms", all.value_at_quantile(0.5) as f64 / 1e6));
    figures.push(("p99_ms", all.value_at_quantile(0.99) as f64 / 1e6));
    Ok(figures)
}
