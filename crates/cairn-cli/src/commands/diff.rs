//! `cairn diff`.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};

use cairn_build::{
    Change, CompareOptions, Difference, Kind, Limits, Node, Rules, Source, Tree, assemble, compare,
};

use super::build::failure;
use super::source_options::path_test;
use crate::failure::{Failure, Outcome, Status};
use crate::output::{Output, with_stdout};
use crate::print;

/// Arguments of `diff`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Example:
  cairn diff disk.img a.img
  cairn build new.img files/ && cairn diff new.img files/

Each side is an image, a directory, an archive or a container image. As for build, files/ means \
what is in the directory, and files the directory under its name. Kinds, contents, modes, owners, \
modification times, extended attributes and hard links are compared, and the values of both sides \
are printed where they are short. Status 0: nothing differs; 1: something does; 2 and above: \
trouble.")]
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

/// A side: what build would put into an image.
fn side(name: &OsStr, args: &Args) -> Outcome<Tree> {
    let rules = Rules { exclude: args.exclude.iter().map(path_test).collect(), ..Rules::default() };
    let source = Source { name: name.to_owned(), platform: None };
    assemble(&[source], rules, Limits::UNBOUNDED, std::env::temp_dir()).map_err(trouble)
}

/// As for diff(1), 1 means that something differs.
fn trouble(error: cairn_build::Error) -> Failure {
    as_trouble(failure(error))
}

fn as_trouble(failure: Failure) -> Failure {
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
    let printed = with_stdout(|output| {
        let mut printed = Ok(());
        let options = CompareOptions { times: !args.no_times, quick: false };
        let compared = compare(&first, &second, options, &mut |difference| {
            if !args.quiet && printed.is_ok() {
                printed = print(output, difference, (&first, &second));
            }
        });
        count = compared.map_err(trouble)?;
        printed
    });
    printed.map_err(as_trouble)?;
    if count == 0 { Ok(()) } else { Err(Failure::told(1)) }
}

fn print(
    output: &mut Output<'_>,
    difference: &Difference,
    (first, second): (&Tree, &Tree),
) -> Outcome {
    let nodes = first.find(&difference.path).zip(second.find(&difference.path));
    let words: Vec<String> = difference
        .what
        .iter()
        .map(|change| match nodes.and_then(|nodes| values(*change, nodes)) {
            Some(values) => format!("{} ({values})", change.word()),
            None => change.word().to_owned(),
        })
        .collect();
    output.bytes(b"/")?;
    output.escaped(&difference.path)?;
    writeln!(output, ": {}", words.join(", "))
}

/// What is on both sides, where that is short.
fn values(change: Change, (first, second): (&Node, &Node)) -> Option<String> {
    let both = |value: &dyn Fn(&Node) -> String| format!("{}, {}", value(first), value(second));
    Some(match change {
        Change::OnlyInFirst | Change::OnlyInSecond => return None,
        Change::Kind => both(&|node| print::kind(node.kind.file_kind()).to_owned()),
        Change::Contents => match (&first.kind, &second.kind) {
            (Kind::Regular(ours), Kind::Regular(theirs)) if ours.size == theirs.size => {
                return None;
            }
            (Kind::Regular(ours), Kind::Regular(theirs)) => {
                format!("{} bytes, {} bytes", ours.size, theirs.size)
            }
            (Kind::Symlink(ours), Kind::Symlink(theirs)) => {
                format!("{}, {}", print::escaped(ours), print::escaped(theirs))
            }
            (
                Kind::CharDevice(ours) | Kind::BlockDevice(ours),
                Kind::CharDevice(theirs) | Kind::BlockDevice(theirs),
            ) => {
                let number = |device| {
                    let (major, minor) = cairn_vfs::decode_device(device);
                    format!("{major}:{minor}")
                };
                format!("{}, {}", number(*ours), number(*theirs))
            }
            _ => return None,
        },
        Change::Mode => both(&|node| format!("{:04o}", node.metadata.permissions)),
        Change::Owner => both(&|node| format!("{}:{}", node.metadata.uid, node.metadata.gid)),
        Change::Time => both(&|node| print::time_exact(node.metadata.mtime)),
        Change::Links => both(&|node| node.links.to_string()),
        Change::Xattrs => attributes(first, second),
    })
}

/// The names of attributes that differ.
fn attributes(first: &Node, second: &Node) -> String {
    let (ours, theirs) = (&first.metadata.xattrs, &second.metadata.xattrs);
    let other = ours.iter().filter(|xattr| !theirs.contains(xattr));
    let more = theirs.iter().filter(|xattr| !ours.contains(xattr));
    let names: BTreeSet<&[u8]> = other.chain(more).map(|xattr| &*xattr.name).collect();
    names.into_iter().map(print::escaped).collect::<Vec<_>>().join(", ")
}
