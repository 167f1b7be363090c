//! `cairn sync`: makes what is on an image the same as its sources, and changes only what differs.
//!
//! The image is compared first, and opened for writing only if something differs: otherwise not
//! one byte of it changes.

mod apply;
mod plan;
#[cfg(test)]
mod tests;

use std::ffi::OsString;
use std::fmt::Write as _;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use cairn_base::names::Escaped;
use cairn_build::{
    CompareOptions, Leftovers, Limits, PathTest, Rules, Source, Tree, assemble, is_layout,
    settle_times,
};

use super::build::failure;
use super::source_options::SourceOptions;
use crate::failure::{Failure, Outcome};
use crate::json;
use crate::output::{self, Output, with_stdout};
use crate::session::{Access, ImageArg, check_access, with_opened};
use apply::apply;
use plan::{Counts, LeftAlone, Plan};

/// Arguments of `sync`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  cairn sync rootfs/ disk.img
  cairn sync images/rootfs.tar files/ disk.img
  cairn sync --exclude '*.tmp' rootfs/ disk.img
  cairn sync --dry-run -v rootfs/ 'disk.img#2'

Afterwards the image holds what cairn build would put into a new one: what is not in the sources \
is removed, unless --keep is given, or --exclude matches it. What is equal is not written: a \
second run changes no byte. Nothing is removed for a tar archive without an end mark, which may \
have been cut off. Contents of files are compared, unless --quick is given. A file gets \
its new contents at once: a failure leaves the old ones, except where there is no room for both, \
and in files with several names.")]
pub struct Args {
    /// Keep what is on the image and not in the sources. A directory with entries in whose place a
    /// file would come is an error.
    #[arg(long)]
    keep: bool,
    /// Take files of the same size and modification time for equal, without reading them.
    #[arg(long)]
    quick: bool,
    /// Change nothing; say what would be changed.
    #[arg(short = 'n', long)]
    dry_run: bool,
    /// Print what is changed.
    #[arg(short = 'v', long, conflicts_with = "json")]
    verbose: bool,
    /// Print the counts as JSON.
    #[arg(long)]
    json: bool,
    /// What the sources are changed by. What --exclude matches is not removed, either.
    #[command(flatten)]
    changes: SourceOptions,
    /// A further device of an F2FS volume that spans several.
    #[arg(long = "device", value_name = "PATH")]
    devices: Vec<PathBuf>,
    /// Directories, archives, container images and other images; later ones go over earlier ones.
    #[arg(required = true, value_name = "SOURCE")]
    sources: Vec<OsString>,
    /// The image: a file, a block device or an address. What can follow its name: cairn --help.
    #[arg(value_name = "IMAGE")]
    image: OsString,
}

impl Args {
    /// The sources as they were named.
    #[must_use]
    pub fn sources(&self) -> &[OsString] {
        &self.sources
    }

    /// The image as it was named.
    #[must_use]
    pub fn image_name(&self) -> &OsString {
        &self.image
    }

    fn image(&self) -> ImageArg {
        ImageArg { image: self.image.clone(), devices: self.devices.clone() }
    }
}

/// Compares, and changes what differs.
///
/// # Errors
/// A source or the image cannot be read, or something cannot be changed.
pub fn run(args: &Args) -> Outcome {
    check_directories(args)?;
    with_stdout(|output| {
        let mut counts = None;
        let done = synced(args, output, &mut counts);
        match (&done, counts) {
            (Err(failure), counts) if args.json => {
                let counts = counts.map(|counts| object(&counts)).unwrap_or_default();
                json::failure_with(output, failure, counts)?;
            }
            (_, Some(counts)) => print(args, output, &counts)?,
            (_, None) => {}
        }
        done
    })
}

/// Sets the counts when they are known, also those of a part after a failure.
fn synced(args: &Args, output: &mut Output<'_>, counts: &mut Option<Counts>) -> Outcome {
    let image = args.image();
    // What is no image must not be compared as another source.
    let found = cairn::inspect(&image.spec()?, &args.devices)?;
    let mut wanted = wanted(args)?;
    settle_times(&mut wanted, &|time| found.storable_time(time));
    say_what_is_kept(args, &wanted);
    let plan = planned(args, &wanted)?;
    if args.dry_run {
        for (what, path) in plan.steps() {
            say(args, output, what, path)?;
        }
    // An earlier run may have been killed when all was written: opening recovers the volume.
    } else if !plan.is_empty() || found.state() != "clean" {
        let mut has_begun = false;
        let done = with_opened(&image, Access::Write, |volume| {
            check_access(volume, Access::Write)?;
            has_begun = true;
            let fs = &**volume.filesystem();
            Leftovers::remove(fs);
            apply(fs, &wanted, &plan, &mut |what, path| say(args, output, what, path))
        });
        if let Err(failure) = done {
            // A step that was done is not on the image if the host refused what came later: what
            // is there counts.
            if has_begun {
                *counts = planned(args, &wanted).ok().map(|left| plan.counts_without(&left));
            }
            return Err(failure);
        }
    }
    *counts = Some(Counts { dry_run: args.dry_run, ..plan.counts() });
    Ok(())
}

/// What has to be done. The image is open meanwhile, and closed afterwards.
fn planned(args: &Args, wanted: &Tree) -> Outcome<Plan> {
    let options = CompareOptions { times: true, quick: args.quick };
    let present = on_image(args, args.changes.excludes())?;
    let left_alone = match args.changes.excludes().is_empty() {
        true => LeftAlone::default(),
        false => LeftAlone::new(&on_image(args, Vec::new())?, &present)?,
    };
    let keep = args.keep || !wanted.unended().is_empty();
    Plan::new(&present, wanted, options, keep, &left_alone)
}

/// Says why nothing is removed, if the sources may lack something.
fn say_what_is_kept(args: &Args, wanted: &Tree) {
    for name in wanted.unended().iter().filter(|_| !args.keep) {
        output::complain(format_args!(
            "{name}: warning: nothing is removed from the image, because the archive may have been \
             cut off: make it again, with an end mark"
        ));
    }
}

/// What the sources give.
fn wanted(args: &Args) -> Outcome<Tree> {
    let rules = args.changes.rules()?;
    let sources = args.changes.sources(&args.sources);
    assemble(&sources, rules, Limits::UNBOUNDED, std::env::temp_dir()).map_err(failure)
}

/// A directory without a slash goes under its name, as for build. Then everything else would be
/// removed, which nobody means.
fn check_directories(args: &Args) -> Outcome {
    let alone = |name: &&OsString| {
        let bytes = name.as_bytes();
        let ends = bytes.ends_with(b"/") || bytes.ends_with(b"/.") || matches!(bytes, b"." | b"..");
        !ends && !is_layout(Path::new(name)) && Path::new(name).is_dir()
    };
    match args.sources.iter().find(alone).filter(|_| !args.keep) {
        Some(name) => {
            let name = name.escaped();
            Err(Failure::usage(format!(
                "{name}: would be all that the image has: give {name}/ for what is in it, or add \
                 --keep"
            )))
        }
        None => Ok(()),
    }
}

/// What is on the image, but for what is excluded.
fn on_image(args: &Args, exclude: Vec<PathTest>) -> Outcome<Tree> {
    let rules = Rules { exclude, ..Rules::default() };
    let source = Source { name: args.image.clone(), platform: None };
    assemble(&[source], rules, Limits::UNBOUNDED, std::env::temp_dir()).map_err(failure)
}

fn say(args: &Args, output: &mut Output<'_>, what: &str, path: &[u8]) -> Outcome {
    if !args.verbose {
        return Ok(());
    }
    output.bytes(what.as_bytes())?;
    output.bytes(b" /")?;
    output.escaped(path)?;
    output.bytes(b"\n")
}

fn object(counts: &Counts) -> json::Object {
    let Counts { made, changed, removed, same, dry_run } = *counts;
    let mut object = json::Object::new();
    for (name, count) in [("made", made), ("changed", changed), ("removed", removed)] {
        object.insert(name.into(), count.into());
    }
    object.insert("same".into(), same.into());
    object.insert("dry_run".into(), dry_run.into());
    object
}

fn print(args: &Args, output: &mut Output<'_>, counts: &Counts) -> Outcome {
    let Counts { made, changed, removed, same, dry_run } = counts;
    if args.json {
        return writeln!(output, "{:#}", serde_json::Value::Object(object(counts)));
    }
    let mut line = String::new();
    let would = if *dry_run { "would be " } else { "" };
    let _ = write!(line, "{made} {would}made, {changed} {would}changed, {removed} {would}removed");
    writeln!(output, "{line}, {same} the same")
}
