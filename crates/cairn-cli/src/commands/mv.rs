//! `cairn mv`.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;

use cairn_vfs::{FileSystem, RenameMode, walk};

use super::ln::inside;
use super::on_volume::OnVolume;
use crate::failure::{Failure, Outcome};
use crate::output::Output;
use crate::session::{Access, ImageArg, shown};

/// Arguments of `mv`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Example:
  cairn mv disk.img /etc/hosts.new /etc/hosts")]
pub struct Args {
    /// Do not replace what exists.
    #[arg(short = 'n', long)]
    pub no_clobber: bool,
    /// Exchange the two.
    #[arg(long, conflicts_with = "no_clobber")]
    pub exchange: bool,
    /// The image.
    #[command(flatten)]
    pub image: ImageArg,
    /// The old name.
    pub from: OsString,
    /// The new name, or a directory to move it to.
    pub to: OsString,
}

impl OnVolume for Args {
    fn image(&self) -> &ImageArg {
        &self.image
    }

    fn access(&self) -> Access {
        Access::Write
    }

    fn run(&self, fs: &dyn FileSystem, _: &mut Output<'_>) -> Outcome {
        rename(fs, self)
    }
}

/// Renames.
///
/// # Errors
/// The source does not exist, or the target cannot be replaced.
pub fn rename(fs: &dyn FileSystem, args: &Args) -> Outcome {
    let from = args.from.as_bytes();
    let to = if args.exchange { args.to.as_bytes().to_vec() } else { inside(fs, args.to.as_bytes(), from) };
    let mode = match (args.no_clobber, args.exchange) {
        (true, _) => RenameMode::NoReplace,
        (_, true) => RenameMode::Exchange,
        _ => RenameMode::Replace,
    };
    let failed = |path: &[u8], error| Failure::volume(shown(path), &error);
    let (parent, name) = walk::resolve_parent(fs, from).map_err(|error| failed(from, error))?;
    walk::lookup(fs, parent.ino, name).map_err(|error| failed(from, error))?;
    let (new_parent, new_name) = walk::resolve_parent(fs, &to).map_err(|error| failed(&to, error))?;
    fs.rename(parent.ino, name, new_parent.ino, new_name, mode).map_err(|error| failed(&to, error))
}
