//! `cairn rm`.

use std::ffi::OsString;

use cairn_base::Ino;
use cairn_vfs::{Error, FileKind, FileSystem, walk};

use super::on_volume::OnVolume;
use crate::failure::{Failure, Outcome};
use crate::output::Output;
use crate::pattern;
use crate::session::{Access, ImageArg, shown};

/// Arguments of `rm`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Example:
  cairn rm -r disk.img /var/cache/apt")]
pub struct Args {
    /// Remove directories with everything in them.
    #[arg(short = 'r', short_alias = 'R', long)]
    pub recursive: bool,
    /// Say nothing about names that do not exist.
    #[arg(short = 'f', long)]
    pub force: bool,
    /// The image.
    #[command(flatten)]
    pub image: ImageArg,
    /// What to remove.
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
        remove(fs, self)
    }
}

/// Removes.
///
/// # Errors
/// A name does not exist, or is a directory and -r was not given.
pub fn remove(fs: &dyn FileSystem, args: &Args) -> Outcome {
    for path in pattern::expand(fs, &args.paths)? {
        let path = path.as_slice();
        match remove_path(fs, path, args.recursive) {
            Err(Error::NotFound) if args.force => {}
            done => done.map_err(|error| Failure::volume(shown(path), &error))?,
        }
    }
    Ok(())
}

fn remove_path(fs: &dyn FileSystem, path: &[u8], recursive: bool) -> cairn_vfs::Result<()> {
    let (parent, name) = walk::resolve_parent(fs, path)?;
    let found = walk::lookup(fs, parent.ino, name)?;
    match found.kind {
        FileKind::Directory if recursive => remove_tree(fs, parent.ino, name, found.ino),
        FileKind::Directory => Err(Error::IsDirectory),
        _ => fs.unlink(parent.ino, name),
    }
}

/// A directory on the way down: how to remove it, and what is still in it.
struct Level {
    parent: Ino,
    name: Vec<u8>,
    ino: Ino,
    entries: Vec<(Vec<u8>, Ino)>,
}

/// Deepest first, with a stack of our own: depth is the volume's choice.
fn remove_tree(fs: &dyn FileSystem, parent: Ino, name: &[u8], ino: Ino) -> cairn_vfs::Result<()> {
    let level = |parent, name: Vec<u8>, ino| -> cairn_vfs::Result<Level> {
        let entries = walk::list(fs, ino)?.into_iter().map(|entry| (entry.name.into_bytes(), entry.ino)).collect();
        Ok(Level { parent, name, ino, entries })
    };
    let mut levels = vec![level(parent, name.to_vec(), ino)?];
    while let Some(mut current) = levels.pop() {
        let Some((name, ino)) = current.entries.pop() else {
            fs.rmdir(current.parent, &current.name)?;
            continue;
        };
        let is_directory = fs.getattr(ino)?.kind == FileKind::Directory;
        let directory = current.ino;
        let looped = levels.iter().any(|level| level.ino == ino) || directory == ino;
        levels.push(current);
        if !is_directory {
            fs.unlink(directory, &name)?;
        } else if looped {
            return Err(Error::Loop);
        } else {
            levels.push(level(directory, name, ino)?);
        }
    }
    Ok(())
}
