//! `cairn rm`.

use std::sync::Arc;

use cairn_base::Ino;
use cairn_vfs::{Error, FileKind, FileSystem, walk};

use super::on_volume::OnVolume;
use crate::failure::{self, Failure, Outcome, Status};
use crate::operands::Operands;
use crate::output::Output;
use crate::session::{Access, ImageArg, shown};
use crate::tree::{self, Passed, check_trailing_slash, last_name};

/// Arguments of `rm`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Example:
  cairn rm -r disk.img /var/cache/apt")]
pub struct Args {
    /// Remove directories with everything in them.
    #[arg(short = 'r', short_alias = 'R', long)]
    pub recursive: bool,
    /// Ignore names that do not exist.
    #[arg(short = 'f', long)]
    pub force: bool,
    /// Remove empty directories, too.
    #[arg(short = 'd', long)]
    pub dir: bool,
    /// Print what is done.
    #[arg(short = 'v', long)]
    pub verbose: bool,
    /// What to remove.
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

    fn run(&self, fs: &dyn FileSystem, output: &mut Output<'_>) -> Outcome {
        remove(fs, self, output)
    }
}

/// Removes.
///
/// # Errors
/// A name does not exist, is a directory and -r was not given, or is damaged.
pub fn remove(fs: &dyn FileSystem, args: &Args, output: &mut Output<'_>) -> Outcome {
    let mut removal = Removal { fs, args, passed: Passed::by_writer(), output };
    let done = args.operands.each(fs, |path| removal.operand(path));
    failure::all([done, removal.passed.end()])
}

struct Removal<'a, 'o> {
    fs: &'a dyn FileSystem,
    args: &'a Args,
    passed: Passed,
    output: &'a mut Output<'o>,
}

/// A directory on the path down: how to remove it, and its remaining entries.
struct Level {
    parent: Ino,
    path: Vec<u8>,
    ino: Ino,
    entries: Vec<(Vec<u8>, Ino)>,
    /// True if an entry in it cannot be removed, so the directory cannot be removed either.
    stays: bool,
}

impl Removal<'_, '_> {
    fn operand(&mut self, path: &[u8]) -> Outcome {
        let args = self.args;
        let failed = |error: Error| Failure::volume(shown(path), &error);
        let names_itself = matches!(last_name(path), b"." | b"..");
        let (parent, name) = match walk::resolve_parent(self.fs, path) {
            Ok(found) => found,
            Err(Error::Invalid(_)) if last_name(path).is_empty() || names_itself => {
                let what =
                    if names_itself { ". and .. cannot" } else { "the root directory cannot" };
                let message = format!(
                    "{}: {what} be removed: name what is in it, as in '{}'",
                    shown(path),
                    "/*"
                );
                return Err(Failure::new(Status::Failed, message));
            }
            Err(Error::NotFound) if args.force => return Ok(()),
            Err(error) => return Err(failed(error)),
        };
        let found = match walk::lookup(self.fs, parent.ino, name) {
            Err(Error::NotFound) if args.force => return Ok(()),
            found => found.map_err(failed)?,
        };
        check_trailing_slash(path, found.kind)?;
        match found.kind {
            FileKind::Directory if args.recursive => self.tree(parent.ino, path, found.ino),
            FileKind::Directory if args.dir => {
                self.fs.rmdir(parent.ino, name).map_err(failed)?;
                self.removed("removed directory ", path)
            }
            FileKind::Directory => Err(Failure::needs_recursive(shown(path))),
            _ => {
                self.fs.unlink(parent.ino, name).map_err(failed)?;
                self.removed("removed ", path)
            }
        }
    }

    fn removed(&mut self, what: &str, path: &[u8]) -> Outcome {
        if self.args.verbose { self.output.done(&[(what, path)]) } else { Ok(()) }
    }

    /// Removes the deepest entries first. The stack is on the heap, because the volume decides the
    /// depth.
    fn tree(&mut self, parent: Ino, path: &[u8], ino: Ino) -> Outcome {
        let mut levels = vec![self.level(parent, path.to_vec(), ino)?];
        while let Some(mut level) = levels.pop() {
            let Some((name, ino)) = level.entries.pop() else {
                let removed = || self.fs.rmdir(level.parent, last_name(&level.path));
                let gone = !level.stays && self.pass(&level.path, removed())?;
                if gone {
                    self.removed("removed directory ", &level.path)?;
                }
                if let Some(above) = levels.last_mut().filter(|_| !gone) {
                    above.stays = true;
                }
                continue;
            };
            let path = tree::join(&level.path, &name);
            let looped = levels.iter().any(|above| above.ino == ino) || level.ino == ino;
            let directory = level.ino;
            let is_directory = self.fs.getattr(ino).map(|found| found.kind == FileKind::Directory);
            let next = match is_directory {
                Ok(true) if looped => Err(Error::Corrupt(Arc::new(walk::TreeError::Repeated(ino)))),
                Ok(false) => self.fs.unlink(directory, &name).map(|()| None),
                found => found.map(|_| Some((directory, path.clone(), ino))),
            };
            match next {
                Ok(below) => {
                    levels.push(level);
                    match below {
                        Some((parent, path, ino)) => levels.push(self.level(parent, path, ino)?),
                        None => self.removed("removed ", &path)?,
                    }
                }
                Err(error) => {
                    self.pass(&path, Err(error))?;
                    level.stays = true;
                    levels.push(level);
                }
            }
        }
        Ok(())
    }

    fn level(&mut self, parent: Ino, path: Vec<u8>, ino: Ino) -> Outcome<Level> {
        let (entries, damage) = walk::list_past_damage(self.fs, ino);
        let stays = !self.pass(&path, damage.map_or(Ok(()), Err))?;
        let entries =
            entries.into_iter().map(|entry| (entry.name.into_bytes(), entry.ino)).collect();
        Ok(Level { parent, path, ino, entries, stays })
    }

    /// False if it failed only for this file; the command continues.
    fn pass(&mut self, path: &[u8], done: cairn_vfs::Result<()>) -> Outcome<bool> {
        match done {
            Ok(()) => Ok(true),
            Err(error) => self
                .passed
                .pass(Failure::volume(shown(path), &error), tree::complain)
                .map(|()| false),
        }
    }
}
