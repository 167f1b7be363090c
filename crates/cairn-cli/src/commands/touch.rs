//! `cairn touch`.

use std::ffi::OsString;

use cairn_vfs::{Attributes, Error, FileSystem, NewInode, SetAttributes, SetTime, Timestamp, walk};

use super::destination::{UMASK, create_plain};
use super::on_volume::OnVolume;
use crate::failure::{Failure, Outcome, Status};
use crate::operands::{LongHelp, Operands};
use crate::output::Output;
use crate::session::{Access, ImageArg, now, shown};
use crate::tree::unmade;
use crate::{date, pattern, print};

/// Arguments of `touch`.
#[derive(Debug, clap::Args)]
#[command(
    disable_help_flag = true,
    after_help = "\
Example:
  cairn touch -d '2026-11-21 05:21:00' disk.img /etc/stamp

Dates are UTC. New files are empty, belong to root and have mode 644."
)]
pub struct Args {
    /// --help.
    #[command(flatten)]
    pub help: LongHelp,
    /// Change the time of access only.
    #[arg(short = 'a')]
    pub access_only: bool,
    /// Change the time of modification only.
    #[arg(short = 'm')]
    pub modification_only: bool,
    /// Make no files.
    #[arg(short = 'c', long)]
    pub no_create: bool,
    /// Change a symbolic link itself, not its target.
    #[arg(short = 'h', long)]
    pub no_dereference: bool,
    /// This time instead of now.
    #[arg(short = 'd', long, value_name = "DATE", value_parser = date::parse)]
    pub date: Option<Timestamp>,
    /// As -d, in the form that POSIX has for touch.
    #[arg(
        short = 't',
        help = "As -d, in the form [[CC]YY]MMDDhhmm[.ss]",
        value_name = "STAMP",
        value_parser = parse_stamp,
        conflicts_with = "date"
    )]
    pub stamp: Option<Timestamp>,
    /// The times of this file on the image.
    #[arg(short = 'r', long, value_name = "PATH", conflicts_with_all = ["date", "stamp"])]
    pub reference: Option<OsString>,
    /// Files to touch.
    #[command(flatten)]
    pub operands: Operands,
}

impl OnVolume for Args {
    fn image(&self) -> &ImageArg {
        &self.operands.image
    }

    fn access(&self) -> Access {
        Access::Write
    }

    fn run(&self, fs: &dyn FileSystem, _: &mut Output<'_>) -> Outcome {
        touch(fs, self)
    }
}

/// Sets times; makes files that are missing.
///
/// # Errors
/// A directory of a path does not exist, or the volume refuses.
pub fn touch(fs: &dyn FileSystem, args: &Args) -> Outcome {
    let mut set = match (&args.reference, args.date.or(args.stamp)) {
        (Some(reference), _) => {
            let path = pattern::path(reference)?;
            let found = walk::resolve(fs, path, !args.no_dereference);
            let found = found.map_err(|error| Failure::volume(shown(path), &error))?;
            times(SetTime::To(found.atime), SetTime::To(found.mtime))
        }
        (None, Some(time)) => times(SetTime::To(time), SetTime::To(time)),
        (None, None) => times(SetTime::Now, SetTime::Now),
    };
    if args.access_only && !args.modification_only {
        set.mtime = None;
    }
    if args.modification_only && !args.access_only {
        set.atime = None;
    }
    args.operands.each(fs, |path| {
        let failed = |error| Failure::volume(shown(path), &error);
        let Some((target, made)) =
            target(fs, args, path).map_err(|error| unmade(fs, path, &error))?
        else {
            return Ok(());
        };
        let result = fs.setattr(target.ino, &set).map_err(failed)?;
        let Some((asked, limit)) = clamped(&set, &result) else { return Ok(()) };
        // Linux stores the nearest time without an error.
        undo(fs, &target, made.as_deref()).map_err(failed)?;
        let (asked, limit) = (print::time(asked), print::time(limit));
        let message = format!(
            "{}: this volume stores no {asked} UTC, the nearest is {limit} UTC",
            shown(path)
        );
        Err(Failure::new(Status::Failed, format!("{message}: give another date")))
    })
}

/// The time that was asked for and the one that was stored, if it is another second.
fn clamped(set: &SetAttributes, result: &Attributes) -> Option<(Timestamp, Timestamp)> {
    let other = |asked: Option<SetTime>, stored: Timestamp| match asked {
        Some(SetTime::To(time)) if time.seconds != stored.seconds => Some((time, stored)),
        _ => None,
    };
    other(set.mtime, result.mtime).or_else(|| other(set.atime, result.atime))
}

/// Restores the state before the command.
fn undo(fs: &dyn FileSystem, before: &Attributes, made: Option<&[u8]>) -> cairn_vfs::Result<()> {
    if let Some(path) = made {
        let (parent, name) = walk::resolve_parent(fs, path)?;
        return fs.unlink(parent.ino, name);
    }
    fs.setattr(before.ino, &times(SetTime::To(before.atime), SetTime::To(before.mtime))).map(drop)
}

fn parse_stamp(text: &str) -> Result<Timestamp, String> {
    date::parse_stamp(text, now().map_err(|failure| failure.to_string())?)
}

fn times(atime: SetTime, mtime: SetTime) -> SetAttributes {
    SetAttributes { atime: Some(atime), mtime: Some(mtime), ..Default::default() }
}

/// The file to touch, and its path if it was made for that.
fn target(
    fs: &dyn FileSystem,
    args: &Args,
    path: &[u8],
) -> cairn_vfs::Result<Option<(Attributes, Option<Vec<u8>>)>> {
    match walk::resolve(fs, path, !args.no_dereference) {
        Ok(found) => Ok(Some((found, None))),
        Err(Error::NotFound) if args.no_create || args.no_dereference => Ok(None),
        Err(Error::NotFound) => {
            let path = walk::behind_links(fs, path)?;
            let (parent, name) = walk::resolve_parent(fs, &path)?;
            let made = create_plain(fs, (parent.ino, name), NewInode::Regular, (0o666, UMASK))?;
            Ok(Some((made, Some(path))))
        }
        Err(error) => Err(error),
    }
}
