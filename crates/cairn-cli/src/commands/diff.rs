//! `cairn diff`.

use std::ffi::{OsStr, OsString};
use std::path::Path;

use cairn_build::{Difference, Limits, Rules, Source, Tree, assemble, compare};

use super::build::{failure, path_test};
use crate::failure::{Failure, Outcome, Status};
use crate::output::{Output, with_stdout};

/// Arguments of `diff`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Example:
  cairn diff disk.img a.img
  cairn build new.img files/ && cairn diff new.img files/

Each side is an image, a directory, an archive or a container image. Kinds, contents, modes, \
owners, modification times, extended attributes and hard links are compared. Status 0: nothing \
differs; 1: something does; 2 and above: trouble.")]
pub struct Args {
    /// Print nothing; the status says it.
    #[arg(short = 'q', long)]
    quiet: bool,
    /// Do not compare modification times.
    #[arg(long)]
    no_times: bool,
    /// Leave out what matches, as for build. May be repeated.
    #[arg(long, value_name = "PATTERN")]
    exclude: Vec<OsString>,
    /// The first side.
    first: OsString,
    /// The second side.
    second: OsString,
}

/// A side. A directory means what is in it.
fn side(name: &OsStr, args: &Args) -> Outcome<Tree> {
    let mut name = name.to_owned();
    if Path::new(&name).is_dir() {
        name.push("/");
    }
    let rules = Rules { exclude: args.exclude.iter().map(path_test).collect(), ..Rules::default() };
    let source = Source { name, platform: None };
    assemble(&[source], rules, Limits::UNBOUNDED, std::env::temp_dir()).map_err(trouble)
}

/// As for diff(1), 1 means that something differs.
fn trouble(error: cairn_build::Error) -> Failure {
    let failure = failure(error);
    match failure.status {
        Status::Failed => Failure::usage(failure.to_string()),
        _ => failure,
    }
}

/// Compares, and prints a line for each path that differs.
///
/// # Errors
/// Something differs (status 1), or a side cannot be read.
pub fn run(args: &Args) -> Outcome {
    let (first, second) = (side(&args.first, args)?, side(&args.second, args)?);
    let mut count = 0;
    with_stdout(|output| {
        let mut printed = Ok(());
        let compared = compare(&first, &second, !args.no_times, &mut |difference| {
            if !args.quiet && printed.is_ok() {
                printed = print(output, difference);
            }
        });
        count = compared.map_err(trouble)?;
        printed
    })?;
    if count == 0 { Ok(()) } else { Err(Failure::told(1)) }
}

fn print(output: &mut Output<'_>, difference: &Difference) -> Outcome {
    let words: Vec<&str> = difference.what.iter().map(|change| change.word()).collect();
    output.bytes(b"/")?;
    output.name(&difference.path)?;
    writeln!(output, ": {}", words.join(", "))
}
