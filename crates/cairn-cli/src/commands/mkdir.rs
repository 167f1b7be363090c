//! `cairn mkdir`.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;

use cairn_vfs::{Caller, Error, FileKind, FileSystem, NewInode, walk};

use super::on_volume::OnVolume;
use crate::commands::chmod::parse_octal;
use crate::failure::{Failure, Outcome};
use crate::output::Output;
use crate::session::{Access, ImageArg, shown};

/// Arguments of `mkdir`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Example:
  cairn mkdir -p disk.img /srv/www/html")]
pub struct Args {
    /// Make missing parents too, and accept directories that exist.
    #[arg(short = 'p', long)]
    pub parents: bool,
    /// Permissions in octal.
    #[arg(short = 'm', long, default_value = "755", value_parser = parse_octal)]
    pub mode: u32,
    /// The image.
    #[command(flatten)]
    pub image: ImageArg,
    /// Directories to make.
    #[arg(required = true)]
    pub paths: Vec<OsString>,
}

impl OnVolume for Args {
    fn image(&self) -> &ImageArg {
        &self.image
    }

    fn access(&self) -> Access {
        Access::Write
    }

    fn run(&self, fs: &dyn FileSystem, _: &mut Output<'_>) -> Outcome {
        make(fs, self)
    }
}

/// Makes directories, owned by root.
///
/// # Errors
/// A name exists, or a parent does not.
pub fn make(fs: &dyn FileSystem, args: &Args) -> Outcome {
    for path in &args.paths {
        let path = path.as_bytes();
        let made = if args.parents { make_all(fs, path, args.mode) } else { make_one(fs, path, args.mode) };
        made.map_err(|error| Failure::volume(shown(path), &error))?;
    }
    Ok(())
}

fn make_one(fs: &dyn FileSystem, path: &[u8], mode: u32) -> cairn_vfs::Result<()> {
    let (parent, name) = walk::resolve_parent(fs, path)?;
    let made = fs.create(parent.ino, name, NewInode::Directory, mode, &Caller::ROOT)?;
    fs.forget(made.ino, 1);
    Ok(())
}

fn make_all(fs: &dyn FileSystem, path: &[u8], mode: u32) -> cairn_vfs::Result<()> {
    let ends = (1..=path.len()).filter(|end| {
        let slash = path.get(*end).is_none_or(|byte| *byte == b'/');
        slash && path.get(end - 1) != Some(&b'/')
    });
    for end in ends {
        let prefix = path.get(..end).unwrap_or(path);
        let mode = if end == path.len() { mode } else { 0o755 };
        match walk::resolve(fs, prefix, true) {
            Ok(found) if found.kind == FileKind::Directory => {}
            Ok(_) => return Err(Error::NotDirectory),
            Err(Error::NotFound) => make_one(fs, prefix, mode)?,
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
