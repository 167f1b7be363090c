//! Runs the unmodified fs_mark through mounts.

use std::path::Path;

use serde_json::Value;

use super::subjects::{OFF, ON, load, row};
use crate::error::{Error, Result};
use crate::experiment::{Context, Findings};
use crate::fs_mark::program;
use crate::fs_mark::{Load, SyncMethod};
use crate::leaving::Scratch;
use crate::mounted::{Available, Mounted, Server, command, is_installed, run};
use crate::section::{Builder, Metric};
use crate::volume;

const JOURNAL: u64 = 16 << 20;
const DEVICE: u64 = 1 << 30;

/// Adds the table, or a note with the reason why it is missing.
pub(super) fn measure(context: &Context, findings: &mut Findings) -> Result<()> {
    let available = Available::here(context);
    let Some(cairn) = available.cairn else {
        findings.notes.extend(available.missing);
        return Ok(());
    };
    if !is_installed("fs_mark") {
        findings.notes.push(
            "Nothing through mounts: fs_mark is not installed (apt-get install fsmark).".into(),
        );
        return Ok(());
    }
    let metrics = vec![
        Metric::higher("files_per_s", "files/s"),
        Metric::lower("transactions", "transactions"),
    ];
    let title = "Through a mount, by the unmodified fs_mark; journal of 16 MiB";
    let subjects = [OFF, ON];
    let mut builder = Builder::new("mounted", title, &subjects, metrics);
    context.progress.expect(context.repetitions * SyncMethod::ALL.len());
    for repetition in 0..context.repetitions {
        for sync in SyncMethod::ALL {
            context.progress.show(&format!("fs_mark {}", row(sync)));
            let load =
                Load { files: load(context.scale, sync).files / 4, ..load(context.scale, sync) };
            for option in context.order(repetition, 2).map(|index| subjects[index]) {
                let server = Server::Cairn { program: cairn.clone(), options: option.into() };
                builder.add(&row(sync), option, &one(context, server, &cairn, &load)?);
            }
            context.progress.step();
        }
    }
    findings.sections.push(builder.finish());
    findings
        .notes
        .push("Through a mount: an image in the scratch directory, a quarter of the files.".into());
    Ok(())
}

fn one(
    context: &Context,
    server: Server,
    cairn: &Path,
    load: &Load,
) -> Result<Vec<(&'static str, f64)>> {
    let directory = Scratch::new(&context.scratch)?;
    let (image, point) = (directory.path().join("image"), directory.path().join("mnt"));
    std::fs::create_dir(&point).map_err(Error::host(&point))?;
    volume::make(&volume::image_file(&image, DEVICE)?.0, Some(JOURNAL))?;
    let mounted = Mounted::new(server, &image, &point)?;
    let mut figures =
        vec![("files_per_s", program::files_per_s(mounted.point(), directory.path(), load)?)];
    figures.extend(transactions(cairn, mounted.point()).map(|count| ("transactions", count)));
    mounted.unmount()?;
    Ok(figures)
}

/// The number of transactions in `cairn stats`.
fn transactions(cairn: &Path, point: &Path) -> Option<f64> {
    let json = run(command(cairn).args(["stats", "--json"]).arg(point)).ok()?;
    let json: Value = serde_json::from_str(&json).ok()?;
    json["journal"]["transactions"].as_f64()
}
