//! Clients through a mount, by system calls.

use std::fs::File;
use std::path::Path;
use std::time::Instant;

use serde_json::Value;

use super::clients::{metrics, row};
use super::load::{DEVICE, times};
use super::subjects::SUBJECTS;
use crate::error::{Error, Result};
use crate::experiment::{Context, Findings};
use crate::leaving::Scratch;
use crate::mounted::{Available, Mounted, Server, command, run};
use crate::section::Builder;
use crate::volume;

/// Numbers of clients.
const CLIENTS: [u32; 3] = [1, 4, 16];

/// Adds the table, or a note with the reason why it is missing.
pub(super) fn measure(context: &Context, findings: &mut Findings) -> Result<()> {
    let available = Available::here(context);
    let Some(cairn) = available.cairn else {
        findings.notes.extend(available.missing);
        return Ok(());
    };
    let mut builder =
        Builder::new("mounted", "Clients through a mount, an image on disk", &SUBJECTS, metrics());
    context.progress.expect(context.repetitions * CLIENTS.len());
    for repetition in 0..context.repetitions {
        for clients in CLIENTS {
            context.progress.show(&format!("mounted: {}", row(clients)));
            for option in context.order(repetition, 2).map(|index| SUBJECTS[index]) {
                let server = Server::Cairn { program: cairn.clone(), options: option.into() };
                builder.add(&row(clients), option, &one(context, server, &cairn, clients)?);
            }
            context.progress.step();
        }
    }
    findings.sections.push(builder.finish());
    Ok(())
}

fn one(
    context: &Context,
    server: Server,
    cairn: &Path,
    clients: u32,
) -> Result<Vec<(&'static str, f64)>> {
    let directory = Scratch::new(&context.scratch)?;
    let (image, point) = (directory.path().join("image"), directory.path().join("mnt"));
    std::fs::create_dir(&point).map_err(Error::host(&point))?;
    volume::make_f2fs(&volume::image_file(&image, DEVICE)?.0)?;
    let mounted = Mounted::new(server, &image, &point)?;
    let rounds = context.scale.pick(20, 100, 500);
    let before = counters(cairn, &point)?;
    let start = Instant::now();
    let mut all = times();
    std::thread::scope(|scope| {
        let point = &point;
        let threads: Vec<_> = (0..clients)
            .map(|client| scope.spawn(move || client_work(point, client, rounds)))
            .collect();
        for thread in threads {
            all += thread.join().map_err(|_| Error::Panicked)??;
        }
        Ok::<_, Error>(())
    })?;
    let seconds = start.elapsed().as_secs_f64();
    let after = counters(cairn, &point)?;
    mounted.unmount()?;
    let requests = f64::from(clients * rounds);
    let checkpoints = after.written - before.written;
    let mut figures = vec![
        ("checkpoints", checkpoints),
        ("per_1000", 1000.0 * checkpoints / requests),
        ("requests_per_s", requests / seconds),
        ("p50_ms", all.value_at_quantile(0.5) as f64 / 1e6),
        ("p99_ms", all.value_at_quantile(0.99) as f64 / 1e6),
    ];
    if after.issued > before.issued {
        figures.push(("merged", (after.total - before.total) / (after.issued - before.issued)));
    }
    Ok(figures)
}

fn client_work(point: &Path, client: u32, rounds: u32) -> Result<hdrhistogram::Histogram<u64>> {
    let path = point.join(format!("dir-{client}"));
    std::fs::create_dir(&path).map_err(Error::host(&path))?;
    let directory = File::open(&path).map_err(Error::host(&path))?;
    let mut fsyncs = times();
    for number in 0..rounds {
        let file = path.join(format!("file-{number}"));
        drop(File::create(&file).map_err(Error::host(&file))?);
        let start = Instant::now();
        directory.sync_all().map_err(Error::host(&path))?;
        fsyncs.saturating_record(u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX));
    }
    Ok(fsyncs)
}

struct Counters {
    written: f64,
    total: f64,
    issued: f64,
}

/// The counters in `cairn stats`.
fn counters(cairn: &Path, point: &Path) -> Result<Counters> {
    let json = run(command(cairn).args(["stats", "--json"]).arg(point))?;
    let json: Value = serde_json::from_str(&json)
        .map_err(|error| Error::Program(format!("cairn stats {}: {error}", point.display())))?;
    let section = &json["store"]["ckpt"];
    let number = |value: &Value| value.as_f64().unwrap_or(0.0);
    let written =
        section["written"].as_object().map_or(0.0, |reasons| reasons.values().map(number).sum());
    Ok(Counters { written, total: number(&section["total"]), issued: number(&section["issued"]) })
}
