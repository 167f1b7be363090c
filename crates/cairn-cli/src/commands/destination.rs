//! What `put`, `get`, `cp`, `mv` and `ln` have in common: sources, a destination, and that what is
//! made takes a name over whole.
//!
//! Invariant: even after a failure, a name leads to the old file or to the complete new one. What
//! is made anew and fails is removed again; what replaces something is made beside it, under a name
//! of its own, and renamed. Where a volume has no room for both, the old one goes first: a small
//! partition could not take a new version of its largest file otherwise.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;

use cairn_base::Ino;
use cairn_vfs::{Error, FileKind, FileSystem, RenameMode, walk};

use crate::failure::{Failure, Outcome, Status};
use crate::session::{ImageArg, shown};
use crate::tree::join;

/// An image, what to take, and where to put it.
#[derive(Clone, Debug, clap::Args)]
pub struct Transfer {
    /// The image.
    #[command(flatten)]
    pub image: ImageArg,
    /// What to take.
    #[arg(required = true)]
    pub sources: Vec<OsString>,
    /// A directory to put it in, or the new name of a single source.
    pub destination: OsString,
}

impl Transfer {
    /// The destination, on the image.
    #[must_use]
    pub fn destination(&self) -> &[u8] {
        self.destination.as_bytes()
    }
}

/// Where things go on a volume: into a directory that is there, or to a name.
pub struct Destination<'a> {
    fs: &'a dyn FileSystem,
    /// Its path, as it was given.
    pub path: &'a [u8],
    /// The directory.
    pub directory: Option<Ino>,
}

/// An entry that is to be made.
#[derive(Clone, Debug)]
pub struct Place {
    /// Its directory.
    pub parent: Ino,
    /// Its name there.
    pub name: Vec<u8>,
    /// Its whole path, for messages.
    pub path: Vec<u8>,
}

impl<'a> Destination<'a> {
    /// What `path` means for so many sources.
    ///
    /// # Errors
    /// It cannot be looked at, or is no directory and there are several sources.
    pub fn find(fs: &'a dyn FileSystem, path: &'a [u8], sources: usize) -> Outcome<Self> {
        let directory = match walk::resolve(fs, path, true) {
            Ok(found) if found.kind == FileKind::Directory => Some(found.ino),
            // A link that leads to itself is a name, too.
            Ok(_) | Err(Error::NotFound | Error::Loop) if sources == 1 => None,
            Ok(_) | Err(Error::NotFound) => {
                return Err(no_directory(&shown(path), "several sources"));
            }
            Err(error) => return Err(Failure::volume(shown(path), &error)),
        };
        Ok(Self { fs, path, directory })
    }

    /// `path` is a name, whatever has it.
    #[must_use]
    pub fn name(fs: &'a dyn FileSystem, path: &'a [u8]) -> Self {
        Self { fs, path, directory: None }
    }

    /// Where a source of this name goes. `is_directory`: it is one.
    ///
    /// # Errors
    /// The directory above it does not exist, or the destination must be a directory (`name/`) and
    /// neither is nor becomes one.
    pub fn place(&self, name: &[u8], is_directory: bool) -> Outcome<Place> {
        if let Some(parent) = self.directory {
            return Ok(Place { parent, name: name.to_vec(), path: join(self.path, name) });
        }
        if self.path.ends_with(b"/") && !is_directory {
            return Err(no_directory(&shown(self.path), "a name with a slash behind it"));
        }
        let found = walk::resolve_parent(self.fs, self.path);
        let (parent, name) = found.map_err(|error| Failure::volume(shown(self.path), &error))?;
        Ok(Place { parent: parent.ino, name: name.to_vec(), path: self.path.to_vec() })
    }
}

/// The destination should be a directory, because of `what`.
pub(super) fn no_directory(path: &str, what: &str) -> Failure {
    Failure::new(
        Status::Failed,
        format!("{path}: {what} means a directory, and none is there: make it first"),
    )
}

/// A directory was to be made where something else is.
pub(super) fn in_the_way(path: &str) -> Failure {
    Failure::new(
        Status::Failed,
        format!("{path}: exists and is no directory: remove it first, or give another name"),
    )
}

/// Something that is no directory was to be made where one is.
pub(super) fn directory_there(path: &[u8]) -> Failure {
    let path = shown(path);
    Failure::new(
        Status::Failed,
        format!("{path}: a directory is there: remove it first, or give another name"),
    )
}

/// As coreutils: a file does not replace itself.
pub(super) fn same_file(one: &str, other: &str) -> Failure {
    Failure::new(Status::Failed, format!("{one} and {other}: the same file: give another name"))
}

/// Names that are tried for what is made beside what it replaces.
const TRIES: u32 = 1000;

/// The names under which things are made before they take others' names.
pub(super) fn names_beside() -> impl Iterator<Item = String> {
    (0..TRIES).map(|n| format!(".cairn-new.{n}"))
}

impl Place {
    /// The place of an entry of a directory.
    #[must_use]
    pub fn below(&self, directory: Ino, name: &[u8]) -> Self {
        Self { parent: directory, name: name.to_vec(), path: join(&self.path, name) }
    }

    /// What the volume said about it.
    pub(super) fn failed(&self, error: &Error) -> Failure {
        Failure::volume(shown(&self.path), error)
    }

    /// What is there.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn existing(&self, fs: &dyn FileSystem) -> Outcome<Option<cairn_vfs::Attributes>> {
        match walk::lookup(fs, self.parent, &self.name) {
            Ok(found) => Ok(Some(found)),
            Err(Error::NotFound) => Ok(None),
            Err(error) => Err(self.failed(&error)),
        }
    }

    /// Has `make` make an entry that is no directory, of so many bytes at least, under the name
    /// that it is given, and gives it this name, whatever has it.
    ///
    /// # Errors
    /// A directory has the name, `make` fails, or it cannot be renamed: then what was there is
    /// there still, or the failure says that it is gone.
    pub fn fill<T>(
        &self,
        fs: &dyn FileSystem,
        bytes: u64,
        make: impl FnOnce(&[u8]) -> Outcome<T>,
    ) -> Outcome<T> {
        let existing = match self.existing(fs)? {
            Some(found) if found.kind == FileKind::Directory => {
                return Err(directory_there(&self.path));
            }
            found => found,
        };
        let exists = existing.is_some();
        let replaces = exists && has_room(fs, bytes).map_err(|error| self.failed(&error))?;
        // What cannot fit even in place of the old contents does not cost them, and nothing is
        // begun for it.
        let given_back = existing
            .filter(|found| found.links == 1)
            .map_or(0, |found| found.sectors.saturating_mul(512));
        let room = room(fs).map_err(|error| self.failed(&error))?.saturating_add(given_back);
        if !replaces && bytes > room {
            return Err(self.failed(&Error::NoSpace));
        }
        let gone = exists && !replaces;
        if gone {
            fs.unlink(self.parent, &self.name).map_err(|error| self.failed(&error))?;
        }
        let name = if replaces { self.name_beside(fs)? } else { self.name.clone() };
        let made = make(&name).and_then(|made| {
            if replaces {
                let renamed =
                    fs.rename(self.parent, &name, self.parent, &self.name, RenameMode::Replace);
                renamed.map_err(|error| self.failed(&error))?;
            }
            Ok(made)
        });
        let explained = |failure: Failure| match gone {
            true => failure
                .leaving("what had the name is gone, since there was no room for both".to_owned()),
            false => failure,
        };
        made.map_err(explained).map_err(|failure| match fs.unlink(self.parent, &name) {
            Ok(()) | Err(Error::NotFound) => failure,
            Err(_) => {
                let left = self.path.len().saturating_sub(self.name.len());
                let left = [self.path.get(..left).unwrap_or_default(), &name].concat();
                failure.leaving(format!("{} is left, incomplete", shown(&left)))
            }
        })
    }

    /// A name that nothing has.
    fn name_beside(&self, fs: &dyn FileSystem) -> Outcome<Vec<u8>> {
        for name in names_beside() {
            match walk::lookup(fs, self.parent, name.as_bytes()) {
                Ok(_) => {}
                Err(Error::NotFound) => return Ok(name.into_bytes()),
                Err(error) => return Err(self.failed(&error)),
            }
        }
        Err(self.failed(&Error::Exists))
    }
}

/// Is there room for so much more, and for what leads to it?
fn has_room(fs: &dyn FileSystem, bytes: u64) -> cairn_vfs::Result<bool> {
    Ok(bytes.saturating_add(bytes / 16) <= room(fs)?)
}

/// Bytes that are free.
pub(super) fn room(fs: &dyn FileSystem) -> cairn_vfs::Result<u64> {
    let stats = fs.statfs()?;
    Ok(stats.available_blocks.saturating_mul(stats.block_size.into()))
}
