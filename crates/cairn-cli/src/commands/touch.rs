//! `cairn touch`.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;

use cairn_vfs::{Caller, Error, FileSystem, NewInode, SetAttributes, SetTime, Timestamp, walk};

use super::on_volume::OnVolume;
use crate::date;
use crate::failure::{Failure, Outcome};
use crate::operands::{LongHelp, Operands};
use crate::output::Output;
use crate::session::{Access, ImageArg, now, shown};

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
    /// Change a symbolic link itself, not what it leads to.
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
            let path = reference.as_bytes();
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
    args.operands.each(fs, |path| one(fs, args, path, &set).map_err(|error| Failure::volume(shown(path), &error)))
}

fn parse_stamp(text: &str) -> Result<Timestamp, String> {
    date::parse_stamp(text, now().map_err(|failure| failure.to_string())?)
}

fn times(atime: SetTime, mtime: SetTime) -> SetAttributes {
    SetAttributes { atime: Some(atime), mtime: Some(mtime), ..Default::default() }
}

fn one(fs: &dyn FileSystem, args: &Args, path: &[u8], set: &SetAttributes) -> cairn_vfs::Result<()> {
    let ino = match walk::resolve(fs, path, !args.no_dereference) {
        Ok(found) => found.ino,
        Err(Error::NotFound) if args.no_create || args.no_dereference => return Ok(()),
        Err(Error::NotFound) => {
            let (parent, name) = walk::resolve_parent(fs, path)?;
            let made = fs.create(parent.ino, name, NewInode::Regular, 0o644, &Caller::ROOT)?;
            fs.forget(made.ino, 1);
            made.ino
        }
        Err(error) => return Err(error),
    };
    fs.setattr(ino, set).map(drop)
}
