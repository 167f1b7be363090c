//! What `put`, `get`, `cp`, `mv` and `ln` share: sources, a destination, and that a name changes
//! only to a complete new entry.
//!
//! Invariant: even after a failure, a name leads to the old file or to the complete new one. A new
//! file that fails is removed again. A file that replaces another is made beside it, under a
//! temporary name, and renamed. If the volume has no room for both, the old file is removed first:
//! otherwise a small partition could not take a new version of its largest file.

use std::ffi::{OsStr, OsString};
use std::path::PathBuf;

use cairn_base::Ino;
use cairn_vfs::{Attributes, Caller, Error, FileKind, FileSystem, NewInode, RenameMode, walk};

use crate::failure::{Failure, Outcome, Status};
use crate::pattern;
use crate::session::{ImageArg, shown};
use crate::tree::{join, unmade};

/// An image, what to take, and where to put it.
#[derive(Clone, Debug, clap::Args)]
pub struct Transfer {
    /// The image.
    #[command(flatten)]
    pub image: ImageArg,
    /// The sources.
    #[arg(required = true)]
    pub sources: Vec<OsString>,
    /// A directory for them, or the new name of a single source.
    pub destination: OsString,
}

impl Transfer {
    /// The path of the destination.
    ///
    /// # Errors
    /// As [`pattern::path`].
    pub fn destination(&self) -> Outcome<&[u8]> {
        pattern::path(&self.destination)
    }
}

/// Where copies go on a volume: into an existing directory, or to a name.
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
    /// Finds what `path` means for this number of sources.
    ///
    /// # Errors
    /// The path cannot be read, or there are several sources and it is not a directory.
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

    /// Takes `path` for a name, even if it is a directory.
    #[must_use]
    pub fn name(fs: &'a dyn FileSystem, path: &'a [u8]) -> Self {
        Self { fs, path, directory: None }
    }

    /// Where a source with this name goes. `is_directory` says whether the source is a directory.
    ///
    /// # Errors
    /// The parent directory does not exist, or the destination ends with a slash (`name/`) and
    /// neither is nor becomes a directory.
    pub fn place(&self, name: &[u8], is_directory: bool) -> Outcome<Place> {
        if let Some(parent) = self.directory {
            return Ok(Place { parent, name: name.to_vec(), path: join(self.path, name) });
        }
        if self.path.ends_with(b"/") && !is_directory {
            return Err(no_directory(&shown(self.path), "a name with a slash at its end"));
        }
        let found = walk::resolve_parent(self.fs, self.path);
        let (parent, name) = found.map_err(|error| unmade(self.fs, self.path, &error))?;
        Ok(Place { parent: parent.ino, name: name.to_vec(), path: self.path.to_vec() })
    }
}

/// The path on the host that a word of the command line means.
///
/// # Errors
/// The word is empty.
pub(super) fn host_path(word: &OsStr) -> Outcome<PathBuf> {
    if word.is_empty() {
        return Err(Failure::usage("a path is empty: give . for this directory of the host"));
    }
    Ok(word.into())
}

/// The failure if the destination must be a directory, because of `what`.
pub(super) fn no_directory(path: &str, what: &str) -> Failure {
    Failure::new(
        Status::Failed,
        format!("{path}: {what} means a directory, which does not exist: create it first"),
    )
}

/// The failure if a directory is to be made and another file has its name.
pub(super) fn in_the_way(path: &str) -> Failure {
    Failure::new(
        Status::Failed,
        format!("{path}: exists and is not a directory: remove it first, or give another name"),
    )
}

/// The failure if another file is to be made and a directory has its name.
pub(super) fn directory_there(path: &[u8]) -> Failure {
    let path = shown(path);
    Failure::new(
        Status::Failed,
        format!("{path}: a directory exists there: remove it first, or give another name"),
    )
}

/// As coreutils: a file does not replace itself.
pub(super) fn same_file(one: &str, other: &str) -> Failure {
    Failure::new(Status::Failed, format!("{one} and {other}: the same file: give another name"))
}

/// How many temporary names are tried.
const TRIES: u32 = 1000;

/// Temporary names for files that replace others.
pub(super) fn names_beside() -> impl Iterator<Item = String> {
    (0..TRIES).map(|n| format!(".cairn-new.{n}"))
}

impl Place {
    /// The place of an entry of a directory.
    #[must_use]
    pub fn below(&self, directory: Ino, name: &[u8]) -> Self {
        Self { parent: directory, name: name.to_vec(), path: join(&self.path, name) }
    }

    /// The failure for an error of the volume at this place.
    pub(super) fn failed(&self, error: &Error) -> Failure {
        Failure::volume(shown(&self.path), error)
    }

    /// The failure if the volume forbids this entry, and does not say for which of the two files.
    pub(super) fn forbidden(&self, word: &str, other: &[u8]) -> Failure {
        let both = format!("{} ({word} {})", shown(&self.path), shown(other));
        Failure::volume(both, &Error::NotPermitted)
    }

    /// The entry with this name.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn existing(&self, fs: &dyn FileSystem) -> Outcome<Option<Attributes>> {
        match walk::lookup(fs, self.parent, &self.name) {
            Ok(found) => Ok(Some(found)),
            Err(Error::NotFound) => Ok(None),
            Err(error) => Err(self.failed(&error)),
        }
    }

    /// Calls `make` with a name to make an entry of at least this many bytes, not a directory, and
    /// gives the entry this place's name, replacing the one that has it.
    ///
    /// # Errors
    /// A directory has the name, `make` fails, or the rename fails. Then the old entry is still
    /// there, or the failure says that it is gone.
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
        // A file that does not fit even after the old one is removed fails here, before the old one
        // is touched.
        let given_back = existing
            .filter(|found| found.links == 1)
            .map_or(0, |found| found.sectors.saturating_mul(512));
        let room = room_with(fs, given_back).map_err(|error| self.failed(&error))?;
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
                .leaving("the old file is gone, because there was no room for both".to_owned()),
            false => failure,
        };
        made.map_err(explained).map_err(|failure| match fs.unlink(self.parent, &name) {
            Ok(()) | Err(Error::NotFound) => failure,
            // A directory that refuses the removal has refused the entry, too.
            Err(_) if matches!(walk::lookup(fs, self.parent, &name), Err(Error::NotFound)) => {
                failure
            }
            Err(_) => {
                let left = self.path.len().saturating_sub(self.name.len());
                let left = [self.path.get(..left).unwrap_or_default(), &name].concat();
                failure.leaving(format!("an incomplete {} remains", shown(&left)))
            }
        })
    }

    /// A name that no entry has.
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

/// The usual umask.
pub(super) const UMASK: u32 = 0o022;

/// Makes a new inode like any other, and no copy of one: of the permissions it gets what its
/// directory's default list allows, or else the umask.
pub(super) fn create_plain(
    fs: &dyn FileSystem,
    (parent, name): (Ino, &[u8]),
    new: NewInode<'_>,
    (permissions, umask): (u32, u32),
) -> cairn_vfs::Result<Attributes> {
    let caller = Caller { umask, ..Caller::ROOT };
    let made = fs.create(parent, name, new, permissions, &caller)?;
    fs.forget(made.ino, 1);
    Ok(made)
}

/// Writes the data of a new file to the image. A host without room is thus found while the file can
/// be named and removed again, and before it replaces another.
///
/// # Errors
/// The image cannot take the data.
pub(super) fn write_back(fs: &dyn FileSystem, ino: Ino) -> cairn_vfs::Result<()> {
    fs.extents(ino, 0, 0, true, &mut |_| false)
}

/// True if there is room for this many more bytes and for their metadata.
pub(super) fn has_room(fs: &dyn FileSystem, bytes: u64) -> cairn_vfs::Result<bool> {
    Ok(bytes.saturating_add(bytes / 16) <= room(fs)?)
}

/// Bytes that are free once this many were given back. While none are free, those may only fill
/// what the volume keeps for itself.
pub(super) fn room_with(fs: &dyn FileSystem, given_back: u64) -> cairn_vfs::Result<u64> {
    Ok(match room(fs)? {
        0 => 0,
        free => free.saturating_add(given_back),
    })
}

/// Bytes that are free.
fn room(fs: &dyn FileSystem) -> cairn_vfs::Result<u64> {
    let stats = fs.statfs()?;
    Ok(stats.available_blocks.saturating_mul(stats.block_size.into()))
}
