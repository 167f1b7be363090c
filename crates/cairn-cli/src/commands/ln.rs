//! `cairn ln`.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;

use cairn_vfs::{Caller, Error, FileKind, FileSystem, NewInode, walk};

use super::on_volume::OnVolume;
use crate::failure::{Failure, Outcome};
use crate::output::Output;
use crate::session::{Access, ImageArg, shown};

/// Arguments of `ln`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Example:
  cairn ln -s disk.img ../usr/lib/os-release /etc/os-release")]
pub struct Args {
    /// Make a symbolic link that holds TARGET as it is given.
    #[arg(short = 's', long)]
    pub symbolic: bool,
    /// Replace LINK if it exists (and is not a directory).
    #[arg(short = 'f', long)]
    pub force: bool,
    /// The image.
    #[command(flatten)]
    pub image: ImageArg,
    /// What the link leads to.
    pub target: OsString,
    /// The new name, or a directory to put it in.
    pub link: OsString,
}

impl OnVolume for Args {
    fn image(&self) -> &ImageArg {
        &self.image
    }

    fn access(&self) -> Access {
        Access::Write
    }

    fn run(&self, fs: &dyn FileSystem, _: &mut Output<'_>) -> Outcome {
        link(fs, self)
    }
}

/// Links.
///
/// # Errors
/// The target does not exist or is a directory (hard links), or the name exists.
pub fn link(fs: &dyn FileSystem, args: &Args) -> Outcome {
    let target = args.target.as_bytes();
    let path = inside(fs, args.link.as_bytes(), target);
    make(fs, args, target, &path).map_err(|error| Failure::volume(shown(&path), &error))
}

/// `path`, or `path/NAME` if it is a directory.
pub(super) fn inside(fs: &dyn FileSystem, path: &[u8], source: &[u8]) -> Vec<u8> {
    let name = source.split(|byte| *byte == b'/').rfind(|name| !name.is_empty()).unwrap_or_default();
    match walk::resolve(fs, path, true) {
        Ok(found) if found.kind == FileKind::Directory => [path, b"/", name].concat(),
        _ => path.to_vec(),
    }
}

fn make(fs: &dyn FileSystem, args: &Args, target: &[u8], path: &[u8]) -> cairn_vfs::Result<()> {
    let (parent, name) = walk::resolve_parent(fs, path)?;
    let existing = if args.symbolic { None } else { Some(walk::resolve(fs, target, false)?) };
    if matches!(&existing, Some(found) if found.kind == FileKind::Directory) {
        return Err(Error::NotPermitted);
    }
    if args.force {
        match fs.unlink(parent.ino, name) {
            Ok(()) | Err(Error::NotFound) => {}
            Err(error) => return Err(error),
        }
    }
    let made = match existing {
        Some(found) => fs.link(found.ino, parent.ino, name)?,
        None => fs.create(parent.ino, name, NewInode::Symlink(target), 0o777, &Caller::ROOT)?,
    };
    fs.forget(made.ino, 1);
    Ok(())
}
