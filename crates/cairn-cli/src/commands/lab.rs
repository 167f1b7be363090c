//! `cairn lab`.

use std::path::{Path, PathBuf};

use cairn_lab::progress::Progress;
use cairn_lab::{Context, Experiment, Scale, render};

use crate::failure::{Failure, Outcome, Status};
use crate::output::with_stdout;
use crate::usage::number;

/// Arguments of `lab`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  cairn lab buffered-io --html report.html
  cairn lab mount --scale full --json

The subjects of a table are measured in turn, in one run, on one device. A figure is a median; × is the median ratio to the \
baseline. Some measurements need /dev/fuse, root, fio or fs_mark. What is missing is left out, and a note says so.
The JSON form is one object whose names do not change: \"schema\", \"experiment\", \"question\", \"command\", \"version\", \"build\", \
\"started\", \"seconds\", \"scale\", \"repetitions\", \"machine\", \"sections\" (\"id\", \"title\", \"primary\", \"baseline\", \"subjects\", \
\"metrics\", \"rows\" with \"row\", \"subject\", \"ratio\" and \"values\"), \"goals\" and \"notes\"; each value has \"median\", \"min\", \
\"max\", \"q1\", \"q3\" and \"samples\".")]
pub struct Args {
    /// The name of an experiment. `list`, or no name, lists them all.
    experiment: Option<String>,
    /// How much work: quick (half a minute, too short for figures), default (less than ten
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
    /// Directory for the images and mount points of the measurement, which are removed at the end.
    /// Choose one on the disk to be measured.
    /// [default: a temporary directory]
    #[arg(long, value_name = "DIR")]
    scratch: Option<PathBuf>,
    /// Leave out the parts that need a mount.
    #[arg(long)]
    no_mount: bool,
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum Size {
    Quick,
    Default,
    Full,
}

/// Lists the experiments, or runs one.
///
/// # Errors
/// There is no such experiment, it fails, or the report cannot be written.
pub fn run(args: &Args) -> Outcome {
    let Some(name) = args.experiment.as_deref().filter(|name| *name != "list") else {
        return list(args.json);
    };
    let experiment = cairn_lab::find(name).ok_or_else(|| unknown(name))?;
    let page = args.html.as_deref().map(|path| reserve(path).map(|()| path)).transpose()?;
    let context = context(args);
    let record = cairn_lab::run(experiment, &context).map_err(|error| {
        Failure::new(Status::Failed, format!("lab {}: {error}", experiment.name))
    })?;
    drop(context);
    if let Some(path) = page {
        std::fs::write(path, render::html(&record)).map_err(|error| Failure::host(path, &error))?;
    }
    if args.json {
        let json = serde_json::to_value(&record);
        let json = json.map_err(|error| Failure::new(Status::Failed, format!("lab: {error}")))?;
        with_stdout(|output| writeln!(output, "{json:#}"))
    } else {
        with_stdout(|output| output.bytes(render::text(&record).as_bytes()))
    }
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

/// Makes the report's file before the measurement, so that a wrong path fails at once.
fn reserve(path: &Path) -> Outcome {
    let file = std::fs::OpenOptions::new().create(true).append(true).open(path);
    file.map(drop).map_err(|error| Failure::host(path, &error))
}

fn context(args: &Args) -> Context {
    let words = std::env::args()
        .enumerate()
        .map(|(index, word)| if index == 0 { "cairn".to_owned() } else { word });
    Context {
        scale: match args.scale {
            Size::Quick => Scale::Quick,
            Size::Default => Scale::Default,
            Size::Full => Scale::Full,
        },
        repetitions: args
            .reps
            .map_or(if matches!(args.scale, Size::Quick) { 1 } else { 5 }, usize::from),
        scratch: args.scratch.clone().unwrap_or_else(std::env::temp_dir),
        program: if args.no_mount { None } else { std::env::current_exe().ok() },
        command: words.collect::<Vec<_>>().join(" "),
        progress: Progress::new(),
    }
}
