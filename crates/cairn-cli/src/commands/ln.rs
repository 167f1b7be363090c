//! `cairn ln`.

use cairn_vfs::{Attributes, Caller, Error, FileKind, FileSystem, NewInode, walk};

use super::destination::{Destination, Place, Transfer, same_file};
use super::on_volume::OnVolume;
use crate::failure::{Failure, Outcome, Status};
use crate::output::Output;
use crate::session::{Access, ImageArg, shown};
use crate::tree::last_name;
use crate::{failure, pattern};

/// Arguments of `ln`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Example:
  cairn ln -s disk.img ../usr/lib/os-release /etc/os-release")]
pub struct Args {
    /// Make a symbolic link that contains the source as given.
    #[arg(short = 's', long)]
    pub symbolic: bool,
    /// Replace what has the name (and is not a directory).
    #[arg(short = 'f', long)]
    pub force: bool,
    /// Treat a destination that is a symbolic link to a directory as a name (with -f it is
    /// replaced).
    #[arg(short = 'n', long)]
    pub no_dereference: bool,
    /// Print what is done.
    #[arg(short = 'v', long)]
    pub verbose: bool,
    /// What the links lead to, and the name of the new one, or a directory for them.
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
        link(fs, self, output)
    }
}

/// Links.
///
/// # Errors
/// The source does not exist or is a directory (hard links), or the name exists.
pub fn link(fs: &dyn FileSystem, args: &Args, output: &mut Output<'_>) -> Outcome {
    let sources = &args.transfer.sources;
    let targets = match args.symbolic {
        true => sources
            .iter()
            .map(|source| pattern::path(source).map(<[u8]>::to_vec))
            .collect::<Outcome<_>>()?,
        false => pattern::expand(fs, sources)?,
    };
    let path = args.transfer.destination()?;
    let is_link =
        || walk::resolve(fs, path, false).is_ok_and(|found| found.kind == FileKind::Symlink);
    let destination = match args.no_dereference && targets.len() == 1 && is_link() {
        true => Destination::name(fs, path),
        false => Destination::find(fs, path, targets.len())?,
    };
    failure::each(targets, |target| {
        let place = destination.place(last_name(&target), false)?;
        one(fs, args, &target, &place)?;
        let arrow = if args.symbolic { " -> " } else { " => " };
        if args.verbose { output.done(&[("", &place.path), (arrow, &target)]) } else { Ok(()) }
    })
}

fn one(fs: &dyn FileSystem, args: &Args, target: &[u8], place: &Place) -> Outcome {
    let existing = if args.symbolic { None } else { Some(linkable(fs, target)?) };
    let make = |name: &[u8]| {
        let made = match &existing {
            Some(found) => fs.link(found.ino, place.parent, name),
            None => fs.create(place.parent, name, NewInode::Symlink(target), 0o777, &Caller::ROOT),
        };
        let made = made.map_err(|error| match error {
            // Either may be immutable.
            Error::NotPermitted if !args.symbolic => place.forbidden("for", target),
            error => place.failed(&error),
        })?;
        fs.forget(made.ino, 1);
        Ok(())
    };
    match place.existing(fs)? {
        Some(found) if existing.as_ref().is_some_and(|existing| existing.ino == found.ino) => {
            // If the name already leads to the same file, there is nothing to do.
            let is_other_name = walk::resolve_parent(fs, target)
                .is_ok_and(|(parent, name)| (parent.ino, name) != (place.parent, &place.name));
            if args.force && is_other_name {
                return Ok(());
            }
            Err(same_file(&shown(target), &shown(&place.path)))
        }
        Some(_) if !args.force => Err(Failure::new(
            Status::Failed,
            format!("{}: file exists: add -f to replace it", shown(&place.path)),
        )),
        _ => place.fill(fs, 0, make),
    }
}

/// The file at `target`, if it can have a hard link.
fn linkable(fs: &dyn FileSystem, target: &[u8]) -> Outcome<Attributes> {
    let found =
        walk::resolve(fs, target, false).map_err(|error| Failure::volume(shown(target), &error))?;
    if found.kind == FileKind::Directory {
        let message =
            format!("{}: a directory has one name only: add -s for a symbolic link", shown(target));
        return Err(Failure::new(Status::Failed, message));
    }
    Ok(found)
}
