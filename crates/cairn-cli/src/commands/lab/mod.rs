//! `cairn lab`.

mod common;
mod crash;
mod record;

use std::path::{Path, PathBuf};

use cairn_lab::compare::{Change, changes, is_comparable};
use cairn_lab::progress::Progress;
use cairn_lab::{Context, Experiment, Record, Scale, render};

use self::common::{command_line, leave_nothing};
use super::build::failure;
use crate::failure::{Failure, Outcome, Status};
use crate::output::with_stdout;
use crate::usage::number;

/// Arguments of `lab`.
#[derive(Debug, clap::Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "\
Examples:
  cairn lab buffered-io --html report.html
  cairn lab mount --scale full --json
  cairn lab all --json > before.json
  cairn lab all --compare before.json
  cairn lab crash --format ext4 --modes default --states 40

The subjects of a table are measured in turn, in one run, on one device. A figure is a median; × \
is the median ratio to the baseline. Some measurements need /dev/fuse, root, fio or fs_mark. What \
is missing is left out, and a note says so.
The JSON form is one object whose names do not change: \"schema\", \"experiment\", \"question\", \
\"command\", \"version\", \"build\", \"started\", \"seconds\", \"scale\", \"repetitions\", \
\"machine\", \"sections\" (\"id\", \"title\", \"primary\", \"baseline\", \"subjects\", \
\"metrics\", \"rows\" with \"row\", \"subject\", \"ratio\" and \"values\"), \"goals\", \
\"proposal\" and \"notes\"; each value has \"median\", \"min\", \"max\", \"q1\", \"q3\" and \
\"samples\". `all` gives an object with \"schema\" and \"records\". --compare adds \"changes\"."
)]
pub struct Args {
    #[command(subcommand)]
    search: Option<Search>,
    /// The name of an experiment. `all` runs those of the improvements of the write path, `list`,
    /// or no name, lists all.
    experiment: Option<String>,
    /// How much work of an experiment: quick (half a minute, no verdicts), default (less than ten
    /// minutes), full.
    #[arg(long, value_enum, default_value_t = Size::Default)]
    scale: Size,
    /// Interleaved repetitions. [default: 5; 1 with --scale quick]
    #[arg(long, value_name = "N", value_parser = number(1..=1000_u16, 5))]
    reps: Option<u16>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
    /// Also write a report with charts to this file.
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Say what has changed beyond noise since the JSON of an earlier run, which is in this file.
    #[arg(long, value_name = "FILE")]
    compare: Option<PathBuf>,
    /// Directory for the images and mount points of the measurement, which are removed at the end.
    /// Choose one on the disk to be measured.
    /// [default: a temporary directory]
    #[arg(long, value_name = "DIR")]
    scratch: Option<PathBuf>,
    /// Leave out the parts that need a mount.
    #[arg(long)]
    no_mount: bool,
    /// Commit with so many listed transactions, while checkpoint-clean counts the instructions.
    #[arg(long, hide = true, value_name = "LISTED")]
    counted_commits: Option<u32>,
    /// Write checkpoints with so many files in memory, while other-formats counts the instructions.
    #[arg(long, hide = true, value_name = "FILES")]
    counted_checkpoints: Option<u32>,
}

/// What is no measurement.
#[derive(Debug, clap::Subcommand)]
enum Search {
    /// Search for power cuts after which something is lost or damaged.
    Crash(crash::CrashArgs),
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum Size {
    Quick,
    Default,
    Full,
}

impl From<Size> for Scale {
    fn from(size: Size) -> Self {
        match size {
            Size::Quick => Self::Quick,
            Size::Default => Self::Default,
            Size::Full => Self::Full,
        }
    }
}

impl Args {
    /// True if the command damages volumes in memory, so that messages about them mean nothing.
    pub(crate) const fn damages_volumes(&self) -> bool {
        matches!(self.search, Some(Search::Crash(_)))
    }
}

/// Lists the experiments, or runs them.
///
/// # Errors
/// There is no such experiment, it fails, or the report cannot be written.
pub fn run(args: &Args) -> Outcome {
    if let Some(Search::Crash(args)) = &args.search {
        return crash::run(args);
    }
    let counted = match (args.counted_commits, args.counted_checkpoints) {
        (Some(listed), _) => Some(cairn_lab::commits_to_be_counted(listed)),
        (None, Some(files)) => Some(cairn_lab::checkpoints_to_be_counted(files)),
        (None, None) => None,
    };
    if let Some(done) = counted {
        return done.map_err(|error| Failure::new(Status::Failed, format!("lab: {error}")));
    }
    let Some(name) = args.experiment.as_deref().filter(|name| *name != "list") else {
        return list(args.json);
    };
    let experiments: Vec<&Experiment> = if name == "all" {
        cairn_lab::all().iter().filter(|experiment| experiment.is_of_the_write_path()).collect()
    } else {
        vec![cairn_lab::find(name).ok_or_else(|| unknown(name))?]
    };
    let earlier = args
        .compare
        .as_deref()
        .map(|path| earlier(path, &experiments, args.scale.into()))
        .transpose()?;
    let page = args.html.as_deref();
    page.map_or(Ok(()), cairn_build::check_replaceable).map_err(failure)?;
    leave_nothing()?;
    let mut records = Vec::new();
    for experiment in experiments {
        let context = context(args);
        let record = cairn_lab::run(experiment, &context).map_err(|error| {
            Failure::new(Status::Failed, format!("lab {}: {error}", experiment.name))
        })?;
        records.push(record);
        let changes = earlier.as_deref().map(|earlier| changed(earlier, &records));
        if let Some(path) = page {
            let html = render::html(&records, changes.as_deref());
            cairn_build::replace(path, html.as_bytes()).map_err(failure)?;
        }
        // Each table is shown as soon as it is there.
        if !args.json {
            let text = records.last().map(render::text).unwrap_or_default();
            with_stdout(|output| output.bytes(text.as_bytes()))?;
        }
    }
    let changes = earlier.map(|earlier| changed(&earlier, &records));
    if args.json {
        return print_json(name, &records, changes.as_deref());
    }
    changes.map_or(Ok(()), |changes| {
        with_stdout(|output| output.bytes(render::changes(&changes).as_bytes()))
    })
}

/// The records of a file that `--json` has written. One of them at least can be compared.
fn earlier(path: &Path, experiments: &[&Experiment], scale: Scale) -> Result<Vec<Record>, Failure> {
    let text = std::fs::read_to_string(path).map_err(|error| Failure::host(path, &error))?;
    let read = || -> serde_json::Result<Vec<Record>> {
        let mut json: serde_json::Value = serde_json::from_str(&text)?;
        match json.get_mut("records") {
            Some(records) => serde_json::from_value(records.take()),
            None => Ok(vec![serde_json::from_value(json)?]),
        }
    };
    let path = path.display();
    let records = read().map_err(|error| {
        Failure::usage(format!("lab: {path}: not a result of `cairn lab … --json`: {error}"))
    })?;
    let is_of = |record| experiments.iter().any(|one| is_comparable(record, one.name, scale));
    if records.iter().any(is_of) {
        return Ok(records);
    }
    let names: Vec<&str> = experiments.iter().map(|experiment| experiment.name).collect();
    Err(Failure::usage(format!(
        "lab: {path}: it has no result of {} with --scale {scale}: give the file of such a run",
        names.join(", ")
    )))
}

fn changed(earlier: &[Record], records: &[Record]) -> Vec<Change> {
    let of = |record: &Record| {
        earlier.iter().flat_map(|old| changes(old, record)).collect::<Vec<Change>>()
    };
    records.iter().flat_map(of).collect()
}

fn print_json(name: &str, records: &[Record], changes: Option<&[Change]>) -> Outcome {
    let failed = |error| Failure::new(Status::Failed, format!("lab: {error}"));
    let mut json = match records {
        [record] if name != "all" => serde_json::to_value(record).map_err(failed)?,
        _ => serde_json::json!({ "schema": cairn_lab::SCHEMA, "records": records }),
    };
    if let Some(changes) = changes {
        json["changes"] = serde_json::to_value(changes).map_err(failed)?;
    }
    with_stdout(|output| writeln!(output, "{json:#}"))
}

fn list(json: bool) -> Outcome {
    let all = cairn_lab::all();
    if json {
        let entry =
            |one: &Experiment| serde_json::json!({ "name": one.name, "question": one.question });
        with_stdout(|output| {
            writeln!(output, "{:#}", all.iter().map(entry).collect::<serde_json::Value>())
        })
    } else {
        with_stdout(|output| {
            all.iter().try_for_each(|one| writeln!(output, "{:<18} {}", one.name, one.question))
        })
    }
}

fn unknown(name: &str) -> Failure {
    let names: Vec<&str> = cairn_lab::all().iter().map(|experiment| experiment.name).collect();
    Failure::usage(format!("lab {name}: no such experiment: there are {}", names.join(", ")))
}

fn context(args: &Args) -> Context {
    Context {
        scale: args.scale.into(),
        repetitions: args
            .reps
            .map_or(if matches!(args.scale, Size::Quick) { 1 } else { 5 }, usize::from),
        scratch: args.scratch.clone().unwrap_or_else(std::env::temp_dir),
        program: if args.no_mount { None } else { std::env::current_exe().ok() },
        itself: std::env::current_exe().ok(),
        command: command_line(),
        progress: Progress::new(),
    }
}
