//! `cairn mv`.

use cairn_vfs::{Attributes, Error, FileKind, FileSystem, RenameMode, walk};

use super::destination::{Destination, Place, Transfer, same_file};
use super::on_volume::OnVolume;
use crate::failure::{Failure, Outcome, Status};
use crate::output::Output;
use crate::session::{Access, ImageArg, shown};
use crate::tree::check_trailing_slash;
use crate::{failure, pattern};

/// Arguments of `mv`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  cairn mv disk.img /etc/hosts.new /etc/hosts
  cairn mv disk.img '/var/log/*.gz' /old /srv/archive")]
pub struct Args {
    /// Leave existing files as they are, without a message.
    #[arg(short = 'n', long, overrides_with = "force")]
    pub no_clobber: bool,
    /// Replace existing files, the default (undoes an earlier -n).
    #[arg(short = 'f', long, overrides_with = "no_clobber")]
    pub force: bool,
    /// Treat the destination as a name, even if it is a directory.
    #[arg(short = 'T', long)]
    pub no_target_directory: bool,
    /// Exchange the two.
    #[arg(long, conflicts_with = "no_clobber")]
    pub exchange: bool,
    /// Print what is done.
    #[arg(short = 'v', long)]
    pub verbose: bool,
    /// The old names, and the new one.
    #[command(flatten)]
    pub transfer: Transfer,
}

impl OnVolume for Args {
    fn image(&self) -> &ImageArg {
        &self.transfer.image
    }

    fn access(&self) -> Access {
        Access::Write
    }

    fn run(&self, fs: &dyn FileSystem, output: &mut Output<'_>) -> Outcome {
        rename(fs, self, output)
    }
}

/// Renames.
///
/// # Errors
/// A source does not exist, or a target cannot be replaced.
pub fn rename(fs: &dyn FileSystem, args: &Args, output: &mut Output<'_>) -> Outcome {
    let sources = pattern::expand(fs, &args.transfer.sources)?;
    let path = args.transfer.destination()?;
    if args.no_target_directory && sources.len() > 1 {
        return Err(Failure::usage("mv: -T takes one source: leave -T out, or the others"));
    }
    let destination = if args.no_target_directory || args.exchange && sources.len() == 1 {
        Destination::name(fs, path)
    } else {
        Destination::find(fs, path, sources.len())?
    };
    let mode = match (args.no_clobber, args.exchange) {
        (true, _) => RenameMode::NoReplace,
        (_, true) => RenameMode::Exchange,
        _ => RenameMode::Replace,
    };
    failure::each(sources, |from| {
        let failed = |error| Failure::volume(shown(&from), &error);
        let (parent, name) = match walk::resolve_parent(fs, &from) {
            Err(Error::Invalid(_)) => {
                return Err(unmovable(
                    &from,
                    "the root directory, . and .. cannot be moved: name a directory",
                ));
            }
            found => found.map_err(failed)?,
        };
        let found = walk::lookup(fs, parent.ino, name).map_err(failed)?;
        check_trailing_slash(&from, found.kind)?;
        let to = destination.place(name, found.kind == FileKind::Directory)?;
        if mode == RenameMode::Replace && is_same_file(fs, &found, &from, &to)? {
            return Err(same_file(&shown(&from), &shown(&to.path)));
        }
        match fs.rename(parent.ino, name, to.parent, &to.name, mode) {
            Err(Error::Exists) if args.no_clobber => return Ok(()),
            Err(Error::Invalid(_)) if found.kind == FileKind::Directory => {
                return Err(unmovable(
                    &from,
                    "a directory cannot be moved into itself: give another destination",
                ));
            }
            // Either may be immutable, or its directory.
            Err(Error::NotPermitted) => return Err(to.forbidden("from", &from)),
            renamed => renamed.map_err(|error| to.failed(&error))?,
        }
        let what = if args.exchange { "exchanged " } else { "renamed " };
        if args.verbose { output.done(&[(what, &from), (" -> ", &to.path)]) } else { Ok(()) }
    })
}

/// As in mv(1), two names of one file do not replace each other, and neither do a symbolic link and
/// its target. Only the link would be left, and it would point to itself.
fn is_same_file(fs: &dyn FileSystem, found: &Attributes, from: &[u8], to: &Place) -> Outcome<bool> {
    let Some(existing) = to.existing(fs)? else { return Ok(false) };
    let pointed_to = || walk::resolve(fs, from, true).is_ok_and(|at| at.ino == existing.ino);
    Ok(found.ino == existing.ino || found.kind == FileKind::Symlink && pointed_to())
}

fn unmovable(path: &[u8], why: &str) -> Failure {
    Failure::new(Status::Failed, format!("{}: {why}", shown(path)))
}
