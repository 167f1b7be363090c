//! `cairn lab crash`.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use cairn::ImageSpec;
use cairn_lab::crash::{Extent, Failure as Found, Format, Options, Report, replay, search, text};

use super::super::build::failure;
use super::common::{command_line, stop_at_a_signal};
use super::record;
use crate::failure::{Failure, Outcome, Status};
use crate::output::with_stdout;
use crate::usage::number;

/// Operations of a run, and crash states of a run, if nothing else is said.
const OPERATIONS: usize = 60;
const STATES: usize = 200;

/// Arguments of `lab crash`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  cairn lab crash --format ext4 --modes default --states 40
  cairn lab crash --format ext4 --modes default,small-log --seed 7 --rounds 20 --kernel
  cairn lab crash --exhaustive --format f2fs
  cairn lab crash --keep found.txt || cairn lab crash --replay found.txt
  cairn lab crash --image disk.img --states 40 -- sh -c 'echo 1 >file && sync file'

A run does seeded operations on a volume in memory and records every write and flush. Crash states \
are made at every flush (all unflushed writes lost, all kept, all subsets of up to four blocks) \
and \
at seeded moments (seeded subsets, and blocks torn at 512 bytes). Each is recovered by Cairn, \
whose \
recovery is cut as well, and a copy by e2fsck or fsck.f2fs if it is installed. What was made \
durable must be there, and nothing may be left to repair.
With --image, a program runs in a mount of a copy of the image, and what it wrote is cut: the \
volume \
must be recoverable and hold what was fsynced.
The exit status is 0 if nothing was found and 1 if something was: its operations, of which all \
that \
can be left out are left out, and the state, which --replay repeats.
The JSON form is one object: \"schema\", \"search\", \"command\", \"searched\" (\"format\", \
\"mode\", \
\"options\", \"seed\", \"runs\", \"operations\", \"states\", \"judges\", \"seconds\"; a judge has \
\"name\", \"states\", \"promises\" and \"refused\"), \"failure\" (a text or null), \
\"stopped\" (by a signal) and \"notes\".")]
pub(super) struct CrashArgs {
    /// Search this format only.
    #[arg(long, value_name = "FORMAT", value_parser = ["ext4", "f2fs"])]
    format: Option<String>,
    /// Search these modes only: of ext4 default, small-log, checkpoint-ahead, checkpoint-when-full,
    /// small-folios, no-orphan-file, no-checksums; of F2FS default, greedy, lfs, full,
    /// checksums, zoned.
    #[arg(long, value_name = "MODE,…", value_delimiter = ',')]
    modes: Vec<String>,
    /// The first seed.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Seeds for each mode.
    #[arg(long, value_name = "N", default_value_t = 1,
          value_parser = number(1..=1_000_000_u64, 20))]
    rounds: u64,
    /// Operations of a run.
    #[arg(long, value_name = "N", default_value_t = OPERATIONS,
          value_parser = number(1..=10_000_usize, OPERATIONS))]
    operations: usize,
    /// Most crash states of a run.
    #[arg(long, value_name = "N", default_value_t = STATES,
          value_parser = number(1..=1_000_000_usize, STATES))]
    states: usize,
    /// Also mount every eighth state with the kernel's ext4. It needs root and loop devices.
    #[arg(long, conflicts_with = "exhaustive")]
    kernel: bool,
    /// Instead of seeded runs, all histories of one and two operations over a few names, each made
    /// durable in each possible way, with their last power cuts.
    #[arg(long, conflicts_with_all = ["seed", "rounds", "operations", "states"])]
    exhaustive: bool,
    /// Repeat what an earlier search has found, which is in this file.
    #[arg(long, value_name = "FILE",
          conflicts_with_all = ["format", "modes", "seed", "rounds", "operations", "exhaustive"])]
    replay: Option<PathBuf>,
    /// Print what is found as it is, without a search for fewer operations.
    #[arg(long)]
    no_shrink: bool,
    /// Instead of seeded runs, search what a program writes to a copy of this image. The copy is in
    /// memory and mounted through FUSE; the image is only read.
    #[arg(long, value_name = "IMAGE", requires = "program",
          conflicts_with_all = ["format", "modes", "rounds", "operations", "exhaustive", "replay"])]
    image: Option<OsString>,
    /// The program, which runs in the mount, and its arguments.
    #[arg(last = true, value_name = "PROGRAM", requires = "image")]
    program: Vec<OsString>,
    /// Write what is found to this file, too: with --image the wrong state as an image.
    #[arg(long, value_name = "FILE")]
    keep: Option<PathBuf>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

impl CrashArgs {
    fn options(&self) -> Options {
        let format = |name: &str| if name == "f2fs" { Format::F2fs } else { Format::Ext4 };
        Options {
            formats: self.format.as_deref().map(format).into_iter().collect(),
            modes: self.modes.clone(),
            seed: self.seed,
            rounds: self.rounds,
            operations: self.operations,
            states: self.states,
            kernel: self.kernel,
            exhaustive: self.exhaustive,
            shrink: !self.no_shrink,
            command: command_line(),
        }
    }
}

/// Searches, or replays.
///
/// # Errors
/// Something was found; or the search cannot be done.
pub(super) fn run(args: &CrashArgs) -> Outcome {
    // A wrong path fails before the search.
    args.keep.as_deref().map_or(Ok(()), cairn_build::check_replaceable).map_err(failure)?;
    if let Some(image) = &args.image {
        return of_program(args, &ImageSpec::parse(image)?);
    }
    stop_at_a_signal()?;
    let done = match &args.replay {
        Some(path) => replay(&read(path)?, args.states, args.kernel, command_line()),
        None => search(&args.options()),
    };
    let (report, found) =
        done.map_err(|error| Failure::new(Status::Failed, format!("lab crash: {error}")))?;
    tell(args, &report, found.as_ref())
}

fn of_program(args: &CrashArgs, image: &ImageSpec) -> Outcome {
    let extent = Extent {
        states: args.states,
        seed: args.seed,
        kernel: args.kernel,
        command: command_line(),
    };
    let place = |path: &PathBuf| {
        cairn::host::behind_links(path).map_err(|error| Failure::host(path, &error))
    };
    let keep = args.keep.as_ref().map(place).transpose()?;
    let (report, found) = record::run(image, &args.program, &extent, keep.as_deref())?;
    print(args, &report)?;
    let Some(found) = found else { return ended(&report) };
    let first = in_one_line(&found);
    let next = match keep {
        Some(path) => format!("the state is in {}", path.display()),
        None => "to get the state as an image, give --keep FILE".to_owned(),
    };
    Err(Failure::new(Status::Failed, format!("lab crash: {first}; {next}")))
}

/// What was found, in one line: the first, with the next one if it only introduces that.
fn in_one_line(found: &str) -> String {
    let mut lines = found.lines().map(str::trim).filter(|line| !line.is_empty());
    let mut line = lines.next().unwrap_or_default().to_owned();
    while let (true, Some(next)) = (line.ends_with(':'), lines.next()) {
        line = format!("{line} {next}");
    }
    line.trim_end_matches(':').to_owned()
}

/// Nothing was found: that says something only of a search that was not ended.
fn ended(report: &Report) -> Outcome {
    match report.stopped {
        false => Ok(()),
        true => Err(Failure::new(
            Status::Failed,
            "lab crash: ended by a signal: what is above is all that was searched",
        )),
    }
}

fn print(args: &CrashArgs, report: &Report) -> Outcome {
    if args.json {
        let json = serde_json::to_value(report)
            .map_err(|error| Failure::new(Status::Failed, format!("lab crash: {error}")))?;
        return with_stdout(|output| writeln!(output, "{json:#}"));
    }
    with_stdout(|output| output.bytes(text(report).as_bytes()))
}

fn tell(args: &CrashArgs, report: &Report, found: Option<&Found>) -> Outcome {
    print(args, report)?;
    let Some(found) = found else { return ended(report) };
    if let Some(path) = &args.keep {
        cairn_build::replace(path, found.to_string().as_bytes()).map_err(failure)?;
    }
    let first = in_one_line(&found.error);
    let again = match &args.keep {
        Some(path) => format!("cairn lab crash --replay {}", path.display()),
        None => {
            "put the lines after `found:` into a file, then cairn lab crash --replay FILE".into()
        }
    };
    Err(Failure::new(Status::Failed, format!("lab crash: {first}; to repeat it, {again}")))
}

fn read(path: &Path) -> Result<Found, Failure> {
    let bytes = std::fs::read(path).map_err(|error| Failure::host(path, &error))?;
    let wrong = |error: String| Failure::usage(format!("lab crash: {}: {error}", path.display()));
    let Ok(text) = String::from_utf8(bytes) else {
        let why = "it is no text of a search, and an image cannot be replayed: look at it with \
                   `cairn check`";
        return Err(wrong(why.into()));
    };
    text.parse().map_err(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_that_introduces_what_was_found_is_not_all_of_it() {
        for (found, line) in [
            ("cairn check finds:\next4.x: 1\next4.y", "cairn check finds: ext4.x: 1"),
            ("e2fsck -fn exits 4:\n\n  it is wrong:\nno", "e2fsck -fn exits 4: it is wrong: no"),
            ("a promised file is gone\nmore", "a promised file is gone"),
            ("it exits 4:\n", "it exits 4"),
        ] {
            assert_eq!(in_one_line(found), line);
        }
    }
}
