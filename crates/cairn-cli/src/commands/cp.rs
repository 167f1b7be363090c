//! `cairn cp`: copies inside an image.
//!
//! Invariants: a directory is never copied into itself, so the walk over the source ends;
//! attributes of directories are set last, because work inside changes their times. Holes stay
//! holes. Data is copied inside the volume, not through files of the host.

use std::collections::HashMap;

use cairn_base::Ino;
use cairn_vfs::{
    Attributes, Caller, Error, FileKind, FileSystem, NewInode, SetAttributes, SetTime, XattrMode,
    acl, walk,
};

use super::destination::{
    Destination, Place, Transfer, UMASK, create_plain, in_the_way, same_file, write_back,
};
use super::on_volume::OnVolume;
use super::overwrite::{
    Contents, Made, OverwriteOptions, Target, check_readable, copy_contents, overwrite,
    remove_access_lists,
};
use crate::failure::{Failure, Outcome, Status};
use crate::output::Output;
use crate::session::{Access, ImageArg, shown};
use crate::tree::{self, Passed, last_name};
use crate::{failure, pattern};

/// Arguments of `cp`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  cairn cp -a disk.img /etc /etc.orig
  cairn cp disk.img /boot/config.txt /boot/config.bak

As cp(1): without -a or -p copies belong to root and have new times; with -r symbolic links are \
copied, without it they are followed. An existing file gets new contents and keeps its owner, \
mode, attributes and names; an existing symbolic link is written through. With -a a file of \
several names is replaced, and the other names keep the old contents.")]
pub struct Args {
    /// Everything: -r, -p, extended attributes, and hard links between copied files.
    #[arg(short = 'a', long)]
    pub archive: bool,
    /// Copy directories with everything in them.
    #[arg(short = 'r', short_alias = 'R', long)]
    pub recursive: bool,
    /// Keep owners, permissions and times.
    #[arg(short = 'p', long)]
    pub preserve: bool,
    /// Copy symbolic links, not what they lead to.
    #[arg(short = 'P', short_alias = 'd', long)]
    pub no_dereference: bool,
    /// Leave existing files as they are, without a message.
    #[arg(short = 'n', long, overrides_with = "force")]
    pub no_clobber: bool,
    /// Overwrite existing files (undoes an earlier -n), and replace a symbolic link that leads to
    /// itself.
    #[arg(short = 'f', long, overrides_with = "no_clobber")]
    pub force: bool,
    /// Make a new file in the place of an existing one.
    #[arg(long)]
    pub remove_destination: bool,
    /// Print what is done.
    #[arg(short = 'v', long)]
    pub verbose: bool,
    /// What to copy, and where.
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
        copy(fs, self, output)
    }
}

/// Copies.
///
/// # Errors
/// A source does not exist, is a directory without -r, or is to be copied into itself; the volume
/// is full.
pub fn copy(fs: &dyn FileSystem, args: &Args, output: &mut Output<'_>) -> Outcome {
    let sources = pattern::expand(fs, &args.transfer.sources)?;
    let destination = Destination::find(fs, args.transfer.destination()?, sources.len())?;
    let mut copy = Copy {
        fs,
        args,
        links: HashMap::new(),
        made: Made::default(),
        directories: Vec::new(),
        output,
    };
    let mut passed = Passed::by_writer();
    let copied = failure::each(sources, |source| copy.source(&source, &destination, &mut passed));
    failure::all([copied, copy.finish(&mut passed), passed.end()])
}

/// Bytes that a copy takes at least.
fn stored(of: &Attributes) -> u64 {
    of.sectors.saturating_mul(512).min(of.size)
}

struct Copy<'a, 'o> {
    fs: &'a dyn FileSystem,
    args: &'a Args,
    /// Copies of files with several names.
    links: HashMap<Ino, Ino>,
    /// The places that copies of the sources have taken.
    made: Made<Ino>,
    /// Copies of directories, and their future attributes.
    directories: Vec<(Place, Ino, Attributes)>,
    output: &'a mut Output<'o>,
}

impl Copy<'_, '_> {
    fn keeps_all(&self) -> bool {
        self.args.archive || self.args.preserve
    }

    fn source(
        &mut self,
        path: &[u8],
        destination: &Destination<'_>,
        passed: &mut Passed,
    ) -> Outcome {
        let recursive = self.args.recursive || self.args.archive;
        let follow = !recursive && !self.args.no_dereference;
        let failed = |error| Failure::volume(shown(path), &error);
        let found = walk::resolve(self.fs, path, follow).map_err(failed)?;
        let is_directory = found.kind == FileKind::Directory;
        if is_directory && !recursive {
            return Err(Failure::needs_recursive(shown(path)));
        }
        let start = destination.place(last_name(path), is_directory)?;
        if is_directory && self.is_inside(start.parent, found.ino).map_err(failed)? {
            let message =
                format!("{}: cannot be copied into itself: give another destination", shown(path));
            return Err(Failure::new(Status::Failed, message));
        }
        if !is_directory && !self.made.take(&start, found.ino)? {
            tree::complain(&format!("warning: {}: named more than once", shown(path)));
            return Ok(());
        }
        // Copies of the directories above the visited entry, outermost first.
        let mut above: Vec<(Place, Ino)> = Vec::new();
        tree::visit(self.fs, path, &found, passed, &mut |path, attributes, depth| {
            above.truncate(depth);
            let place = above
                .last()
                .map_or_else(|| start.clone(), |(at, ino)| at.below(*ino, last_name(path)));
            match self.entry(&place, path, attributes)? {
                Some(made) if attributes.kind == FileKind::Directory => {
                    self.directories.push((place.clone(), made, attributes.clone()));
                    above.push((place, made));
                    Ok(walk::Next::Continue)
                }
                _ => Ok(walk::Next::Skip),
            }
        })
    }

    /// True if `directory` is `root` or below it.
    fn is_inside(&self, mut directory: Ino, root: Ino) -> cairn_vfs::Result<bool> {
        for _ in 0..walk::DEFAULT_DEPTH {
            if directory == root {
                return Ok(true);
            }
            let above = walk::lookup(self.fs, directory, b"..")?.ino;
            if above == directory {
                return Ok(false);
            }
            directory = above;
        }
        Err(Error::Loop)
    }

    /// Copies one entry. None if an existing one is not to be replaced.
    fn entry(&mut self, place: &Place, path: &[u8], of: &Attributes) -> Outcome<Option<Ino>> {
        let existing = place.existing(self.fs)?;
        if of.kind == FileKind::Directory {
            return match existing {
                Some(found) if found.kind == FileKind::Directory => Ok(Some(found.ino)),
                Some(_) => Err(in_the_way(&shown(&place.path))),
                None => {
                    let made = self.create(place.parent, &place.name, NewInode::Directory, of);
                    let made = made.map_err(|error| place.failed(&error))?;
                    self.copied(path, place).map(|()| Some(made))
                }
            };
        }
        // The place already has the copy of another name of this file.
        let before = self.links.get(&of.ino).copied();
        if let Some(found) = existing.as_ref().filter(|found| before == Some(found.ino)) {
            return Ok(Some(found.ino));
        }
        if existing.is_some() && self.args.no_clobber {
            return Ok(None);
        }
        let target = match (of.kind, before) {
            (FileKind::Regular, None) => self.overwrite_options().target(self.fs, place)?,
            _ => Target::New,
        };
        if let Some(existing) = existing {
            if self.is_same(&existing, place, path, of) {
                return Err(same_file(&shown(path), &shown(&place.path)));
            }
            self.made.check(&existing, place, &target)?;
        }
        let made = match target {
            Target::Existing(old) => self.overwrite_existing(&old, place, path, of)?,
            Target::New => self.create_new(before, place, path, of)?,
        };
        if of.kind == FileKind::Symlink {
            self.made.link(made);
        }
        if self.args.archive && of.links > 1 {
            self.links.insert(of.ino, made);
        }
        self.copied(path, place).map(|()| Some(made))
    }

    fn overwrite_options(&self) -> OverwriteOptions {
        let Args { remove_destination, force, archive: replace_linked, .. } = *self.args;
        OverwriteOptions { remove_destination, force, replace_linked }
    }

    /// True if the existing entry, or the target of its links, is the source itself.
    fn is_same(&self, existing: &Attributes, place: &Place, path: &[u8], of: &Attributes) -> bool {
        let ends_at =
            |path: &[u8], ino| walk::resolve(self.fs, path, true).is_ok_and(|at| at.ino == ino);
        if of.kind == FileKind::Symlink && ends_at(path, existing.ino) {
            return true;
        }
        if !self.args.remove_destination {
            return existing.ino == of.ino || ends_at(&place.path, of.ino);
        }
        // If a file has several names, one of them may be replaced by a copy of the file.
        let is_other_name = walk::resolve_parent(self.fs, path)
            .is_ok_and(|(parent, name)| (parent.ino, name) != (place.parent, &place.name));
        existing.ino == of.ino && !(existing.links > 1 && is_other_name)
    }

    /// Writes new contents into an existing file.
    fn overwrite_existing(
        &self,
        old: &Attributes,
        place: &Place,
        path: &[u8],
        of: &Attributes,
    ) -> Outcome<Ino> {
        let (fs, failed) = (self.fs, |error: Error| Failure::volume(shown(path), &error));
        let contents = Contents {
            bytes: stored(of),
            size: of.size,
            check: || check_readable(fs, of.ino, of.size).map_err(failed),
            write: |to| copy_contents(fs, of.ino, of.size, to).map_err(failed),
        };
        overwrite(fs, place, old, contents)?;
        self.attributes(old.ino, of).map_err(|error| place.failed(&error))?;
        Ok(old.ino)
    }

    /// Makes a new file, or a further name of one that was copied `before`.
    fn create_new(
        &self,
        before: Option<Ino>,
        place: &Place,
        path: &[u8],
        of: &Attributes,
    ) -> Outcome<Ino> {
        let bytes = if before.is_none() { stored(of) } else { 0 };
        place.fill(self.fs, bytes, |name| match before {
            Some(before) => {
                let linked = self.link(before, place.parent, name);
                linked.map_err(|error| place.failed(&error))
            }
            None => self.leaf(place, name, path, of),
        })
    }

    fn copied(&mut self, path: &[u8], place: &Place) -> Outcome {
        if self.args.verbose {
            self.output.done(&[("", path), (" -> ", &place.path)])
        } else {
            Ok(())
        }
    }

    fn link(&self, to: Ino, parent: Ino, name: &[u8]) -> cairn_vfs::Result<Ino> {
        let linked = self.fs.link(to, parent, name)?;
        self.fs.forget(linked.ino, 1);
        Ok(linked.ino)
    }

    /// Makes a copy of `of`: one that gets all its attributes later, or a new file like any other.
    fn create(
        &self,
        parent: Ino,
        name: &[u8],
        new: NewInode<'_>,
        of: &Attributes,
    ) -> cairn_vfs::Result<Ino> {
        if !self.keeps_all() {
            let mode = (of.permissions & 0o777, UMASK);
            let made = create_plain(self.fs, (parent, name), new, mode)?;
            return Ok(made.ino);
        }
        let made = self.fs.create(parent, name, new, 0o600, &Caller::COPIER)?;
        self.fs.forget(made.ino, 1);
        Ok(made.ino)
    }

    fn leaf(&self, place: &Place, name: &[u8], path: &[u8], of: &Attributes) -> Outcome<Ino> {
        let failed = |error: Error| Failure::volume(shown(path), &error);
        let target;
        let new = match of.kind {
            FileKind::Regular | FileKind::Directory => NewInode::Regular,
            FileKind::Symlink => {
                target = self.fs.readlink(of.ino).map_err(failed)?;
                NewInode::Symlink(&target)
            }
            FileKind::BlockDevice => NewInode::BlockDevice(of.device),
            FileKind::CharDevice => NewInode::CharDevice(of.device),
            FileKind::Fifo => NewInode::Fifo,
            FileKind::Socket => NewInode::Socket,
        };
        let made = self.create(place.parent, name, new, of);
        let made = made.map_err(|error| place.failed(&error))?;
        if of.kind == FileKind::Regular {
            copy_contents(self.fs, of.ino, of.size, made).map_err(failed)?;
            write_back(self.fs, made).map_err(|error| place.failed(&error))?;
        }
        self.attributes(made, of).map_err(failed)?;
        Ok(made)
    }

    /// If all are kept: sets the owner before the mode (chown removes set-id bits), and the times
    /// last.
    fn attributes(&self, ino: Ino, of: &Attributes) -> cairn_vfs::Result<()> {
        if !self.keeps_all() {
            return Ok(());
        }
        remove_access_lists(self.fs, ino)?;
        self.xattrs(ino, of.ino)?;
        let owner = SetAttributes { uid: Some(of.uid), gid: Some(of.gid), ..Default::default() };
        self.fs.setattr(ino, &owner)?;
        let rest = SetAttributes {
            permissions: (of.kind != FileKind::Symlink).then_some(of.permissions),
            atime: Some(SetTime::To(of.atime)),
            mtime: Some(SetTime::To(of.mtime)),
            ..Default::default()
        };
        self.fs.setattr(ino, &rest).map(drop)
    }

    fn xattrs(&self, to: Ino, from: Ino) -> cairn_vfs::Result<()> {
        for name in self.fs.listxattr(from)? {
            // -p keeps permissions, and access lists are a part of them.
            if !self.args.archive && name != acl::ACCESS && name != acl::DEFAULT {
                continue;
            }
            let value = self.fs.getxattr(from, &name)?;
            self.fs.setxattr(to, &name, &value, XattrMode::Set)?;
        }
        Ok(())
    }

    fn finish(mut self, passed: &mut Passed) -> Outcome {
        for (place, ino, of) in std::mem::take(&mut self.directories).into_iter().rev() {
            let done = self.attributes(ino, &of).map_err(|error| place.failed(&error));
            done.or_else(|failure| passed.pass(failure, tree::complain))?;
        }
        Ok(())
    }
}
