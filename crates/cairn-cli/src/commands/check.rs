//! `cairn check`.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use cairn::{Checked, ImageSpec};
use cairn_check::{ExitStatus, Finding, Observer, Phase, Place, Report, Value};
use serde_json::{Value as Json, json};

use crate::failure::{Failure, Outcome, Status};
use crate::output::{Output, with_stdout};
use crate::progress::Steps;
use crate::{json, print, signals};

/// Arguments of `check`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Example:
  cairn check disk.img
  cairn check --json 'disk.img#2'

Reads all structures of a volume that nobody has mounted, compares each with the others, and \
writes nothing. A volume that was not unmounted cleanly is recovered in memory first. Each line \
says what is wrong, by a code that docs/check.md explains. Exit status, as e2fsck's: 0 the volume \
is sound, 4 it has defects, 8 it cannot be checked, 16 wrong usage, 32 ended by a signal.")]
pub struct Args {
    /// Print the findings as one JSON document.
    #[arg(long)]
    json: bool,
    /// f2fs: a further device of the volume. May be repeated.
    #[arg(long = "device", value_name = "DEVICE")]
    devices: Vec<PathBuf>,
    /// The image.
    image: OsString,
}

/// What a walk tells of its progress.
struct Watch {
    steps: Steps,
    cancelled: AtomicBool,
}

impl Observer for Watch {
    fn begin(&self, phase: Phase) {
        let Phase { number, of, what, total } = phase;
        self.steps.begin(&format!("{number}/{of} {what}"), total);
    }

    fn done(&self, steps: u64) {
        self.steps.set(steps);
    }

    fn is_cancelled(&self) -> bool {
        self.cancelled.load(Relaxed)
    }
}

/// Checks the volume.
///
/// # Errors
/// It has defects, it cannot be checked, or the result cannot be printed.
pub fn run(args: &Args) -> Outcome {
    checked(args).map_err(as_e2fsck)
}

/// Gives a failure the exit status that e2fsck has for it.
fn as_e2fsck(failure: Failure) -> Failure {
    let code = match failure.status {
        Status::Success => return failure,
        Status::Usage => ExitStatus::USAGE,
        _ => ExitStatus::OPERATIONAL,
    };
    failure.with_code(code.code())
}

/// The exit status of a wrong command line, if it is one of `check`.
#[must_use]
pub fn usage_status(words: &[OsString]) -> Option<u8> {
    let command = words.get(1).filter(|command| *command == "check");
    command.map(|_| ExitStatus::USAGE.code())
}

fn checked(args: &Args) -> Outcome {
    let image = ImageSpec::parse(&args.image)?;
    let watch =
        Arc::new(Watch { steps: Steps::start("checking"), cancelled: AtomicBool::new(false) });
    let stop = watch.clone();
    signals::on_ending(move || stop.cancelled.store(true, Relaxed))?;
    let checked = cairn::check(&image, &args.devices, watch.clone());
    watch.steps.end();
    let name = image.to_os_string();
    let checked = match checked {
        Ok(checked) => checked,
        Err(error) => {
            let failure = as_e2fsck(Failure::from(error));
            if args.json {
                with_stdout(|output| json::failure(output, &failure))?;
            }
            return Err(failure);
        }
    };
    with_stdout(|output| match args.json {
        true => writeln!(output, "{:#}", document(name.as_bytes(), &checked)),
        false => text(output, &print::escaped(name.as_bytes()), &checked),
    })?;
    match checked.report.exit_status() {
        ExitStatus::CLEAN => Ok(()),
        found => Err(Failure::new(Status::Success, "").with_code(found.code())),
    }
}

/// A line for each finding, and a summary in the words of e2fsck.
fn text(output: &mut Output<'_>, name: &str, checked: &Checked) -> Outcome {
    let Report { findings, counts, usage, recovered, cancelled } = &checked.report;
    for what in recovered {
        writeln!(output, "{name}: not unmounted cleanly; the {what} was replayed in memory")?;
    }
    for finding in findings {
        writeln!(output, "{finding}")?;
    }
    for (kind, count) in counts {
        let shown = findings.iter().filter(|finding| finding.kind.code == kind.code).count();
        let hidden = count.saturating_sub(shown as u64);
        if hidden > 0 {
            writeln!(output, "{}: {hidden} more", kind.code)?;
        }
    }
    let share = usage.fragmented as f64 * 100.0 / usage.files.max(1) as f64;
    writeln!(
        output,
        "{name}: {}/{} files ({share:.1}% non-contiguous), {}/{} blocks",
        usage.files, usage.files_most, usage.blocks, usage.blocks_most
    )?;
    let checker = checked.format.checker();
    match checked.report.count() {
        _ if *cancelled => writeln!(output, "{name}: ended before everything was checked"),
        0 => writeln!(output, "{name}: clean"),
        1 => writeln!(output, "{name}: 1 finding: {checker} can repair it"),
        count => writeln!(output, "{name}: {count} findings: {checker} can repair them"),
    }
}

fn document(name: &[u8], checked: &Checked) -> Json {
    let Report { findings, counts, usage, recovered, cancelled } = &checked.report;
    let counts: json::Object =
        counts.iter().map(|(kind, count)| (kind.code.to_owned(), (*count).into())).collect();
    let mut object = json::Object::new();
    json::insert_name(&mut object, "image", name);
    let rest = json!({
        "type": checked.format.to_string(),
        "clean": checked.report.count() == 0,
        "status": checked.report.exit_status().code(),
        "cancelled": cancelled,
        "recovered": recovered,
        "findings": findings.iter().map(finding).collect::<Vec<_>>(),
        "counts": counts,
        "files": usage.files,
        "files_most": usage.files_most,
        "directories": usage.directories,
        "fragmented": usage.fragmented,
        "blocks": usage.blocks,
        "blocks_most": usage.blocks_most,
        "block_size": usage.block_size,
    });
    if let Json::Object(rest) = rest {
        object.extend(rest);
    }
    Json::Object(object)
}

fn finding(finding: &Finding) -> Json {
    json!({
        "code": finding.kind.code,
        "severity": finding.kind.severity.name(),
        "place": place(&finding.place),
        "stored": finding.stored.as_ref().map(value),
        "computed": finding.computed.as_ref().map(value),
        "meaning": finding.kind.meaning,
        "repair": finding.kind.repair,
    })
}

fn value(value: &Value) -> Json {
    match value {
        Value::Number(number) => (*number).into(),
        other => other.to_string().into(),
    }
}

/// The known parts of a place.
fn place(place: &Place) -> Json {
    let mut object = json::Object::new();
    let numbers = [
        ("group", place.group),
        ("segment", place.segment),
        ("inode", place.inode),
        ("node", place.node),
        ("file_block", place.file_block),
        ("block", place.block),
        ("offset", place.offset),
    ];
    for (key, number) in numbers {
        if let Some(number) = number {
            object.insert(key.into(), number.into());
        }
    }
    if let Some(field) = place.field {
        object.insert("field".into(), field.into());
    }
    for (key, name) in [("name", &place.name), ("path", &place.path)] {
        if let Some(name) = name {
            json::insert_name(&mut object, key, name);
        }
    }
    Json::Object(object)
}
