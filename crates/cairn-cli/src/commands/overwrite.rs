//! Writing into an existing file, as cp(1) does: the inode stays, with its owner, mode, extended
//! attributes and names.
//!
//! Invariant: the old contents are removed only after the new ones have been read once and there is
//! room for them on the volume: free blocks and those of the old contents; or, if nothing else is
//! free, the blocks of the old contents alone, which then stay the file's. Errors of reading and of
//! space are thus found before. A host that refuses the new contents is found by fsync; the failure
//! names the file and what became of the old ones.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};

use cairn_base::Ino;
use cairn_vfs::{
    Attributes, Caller, Error, FileKind, FileSystem, IoFlags, OpenMode, Seek, SetAttributes,
    SetTime, acl, walk,
};

use super::destination::{Place, directory_there, room_with};
use crate::failure::{Failure, Outcome, Overwritten, Status};
use crate::print;
use crate::session::shown;

/// Bytes read at a time.
const CHUNK: usize = 1 << 20;

/// Options of a command that decide what becomes of an existing file.
#[derive(Clone, Copy, Debug, Default)]
pub struct OverwriteOptions {
    /// Replace it by a new file.
    pub remove_destination: bool,
    /// Replace a symbolic link that leads to itself.
    pub force: bool,
    /// Replace a file with several names by a new one: the other names keep the old contents.
    pub replace_linked: bool,
}

/// The file that gets the contents.
#[derive(Debug)]
pub enum Target {
    /// A new file, which replaces the entry with the name if there is one.
    New,
    /// An existing file.
    Existing(Attributes),
}

impl OverwriteOptions {
    /// The target of a regular file that is copied to `place`.
    ///
    /// # Errors
    /// A directory, a symbolic link to nothing, or a special file has the name.
    pub fn target(self, fs: &dyn FileSystem, place: &Place) -> Outcome<Target> {
        let Some(found) = place.existing(fs)? else { return Ok(Target::New) };
        if self.remove_destination {
            return Ok(Target::New);
        }
        let found = match found.kind {
            FileKind::Symlink => match walk::resolve(fs, &place.path, true) {
                Err(Error::NotFound) => return Err(dangling(place)),
                Err(Error::Loop) if self.force => return Ok(Target::New),
                behind => behind.map_err(|error| place.failed(&error))?,
            },
            _ => found,
        };
        match found.kind {
            FileKind::Regular if self.replace_linked && found.links > 1 => Ok(Target::New),
            FileKind::Regular => Ok(Target::Existing(found)),
            FileKind::Directory => Err(directory_there(&place.path)),
            kind => {
                let (path, kind) = (shown(&place.path), print::kind(kind));
                let message = format!(
                    "{path}: a {kind} exists there and cannot be overwritten: remove it first, or \
                     give another name"
                );
                Err(Failure::new(Status::Failed, message))
            }
        }
    }
}

fn dangling(place: &Place) -> Failure {
    let message = format!(
        "{}: a dangling symbolic link: remove it first, or give another name",
        shown(&place.path)
    );
    Failure::new(Status::Failed, message)
}

/// What one command has made, so that the command does not overwrite it again. `S` identifies the
/// source.
#[derive(Debug)]
pub struct Made<S> {
    /// Sources that the user named, except directories.
    named: HashMap<(Ino, Vec<u8>), S>,
    /// Symbolic links, whose targets the sources chose.
    links: HashSet<Ino>,
}

impl<S> Default for Made<S> {
    fn default() -> Self {
        Self { named: HashMap::new(), links: HashSet::new() }
    }
}

impl<S: PartialEq> Made<S> {
    /// Takes the place for a source that the user has named. False if this source already has it.
    ///
    /// # Errors
    /// Another source has the place.
    pub fn take(&mut self, place: &Place, source: S) -> Outcome<bool> {
        match self.named.entry((place.parent, place.name.clone())) {
            Entry::Vacant(entry) => {
                entry.insert(source);
                Ok(true)
            }
            Entry::Occupied(entry) if *entry.get() == source => Ok(false),
            Entry::Occupied(_) => {
                let message = format!(
                    "{}: another source was just copied there: give one of them another name",
                    shown(&place.path)
                );
                Err(Failure::new(Status::Failed, message))
            }
        }
    }

    /// Records a symbolic link that was made.
    pub fn link(&mut self, ino: Ino) {
        self.links.insert(ino);
    }

    /// Refuses to write through a link that this command has made.
    ///
    /// # Errors
    /// `existing` is such a link.
    pub fn check(&self, existing: &Attributes, place: &Place, target: &Target) -> Outcome {
        if matches!(target, Target::New) || !self.links.contains(&existing.ino) {
            return Ok(());
        }
        let message = format!(
            "{}: a symbolic link that was just copied: copy only one of the two sources",
            shown(&place.path)
        );
        Err(Failure::new(Status::Failed, message))
    }
}

/// New contents.
pub struct Contents<C, W> {
    /// Their least number of bytes.
    pub bytes: u64,
    /// Bytes of the file, with its holes.
    pub size: u64,
    /// Reads them, and writes nothing.
    pub check: C,
    /// Writes them to this file, which is empty, or holds nothing but zeros in as many bytes.
    pub write: W,
}

/// Gives `old` new contents.
///
/// # Errors
/// There is no room for the new contents, they cannot be read, or `old` is immutable or
/// append-only: then the old contents are still there. Or the new ones cannot be written: then the
/// failure says what became of the old ones.
pub fn overwrite(
    fs: &dyn FileSystem,
    place: &Place,
    old: &Attributes,
    contents: Contents<impl FnOnce() -> Outcome, impl FnOnce(Ino) -> Outcome>,
) -> Outcome {
    let failed = |error: Error| place.failed(&error);
    let handle = fs.open(old.ino, OpenMode { write: true, direct: false }).map_err(failed)?;
    let done = (|| {
        let given_back = old.sectors.saturating_mul(512);
        let stays = contents.bytes > room_with(fs, given_back).map_err(failed)?;
        if stays && !holds(fs, old, contents.size).map_err(failed)? {
            return Err(failed(Error::NoSpace));
        }
        if old.size > 0 {
            (contents.check)()?;
        }
        let size = if stays { contents.size } else { 0 };
        if stays {
            blank(fs, old, size).map_err(failed)?;
        }
        let empty =
            SetAttributes { size: Some(size), mtime: Some(SetTime::Now), ..Default::default() };
        fs.setattr(old.ino, &empty).map_err(failed)?;
        // Every write on Linux removes the capabilities, which were granted to the old contents.
        remove_attribute(fs, old.ino, b"security.capability").map_err(failed)?;
        // The host may refuse data long after the write that brought it, because it is full. fsync
        // tells while it is known which file has lost its contents.
        let written = (contents.write)(old.ino).and_then(|()| match old.size {
            0 => Ok(()),
            _ => fs.fsync(old.ino, handle, false).map_err(failed),
        });
        written.map_err(|failure| match old.size {
            0 => failure,
            _ => failure.overwriting(Overwritten::new(&place.path, old)),
        })
    })();
    fs.release(old.ino, handle);
    done
}

/// True if the file has all blocks for `size` bytes.
fn holds(fs: &dyn FileSystem, old: &Attributes, size: u64) -> cairn_vfs::Result<bool> {
    let end = old.size.next_multiple_of(fs.statfs()?.block_size.into());
    Ok(old.size > 0 && size <= end && fs.seek(old.ino, 0, Seek::Hole)? >= size.min(old.size))
}

/// Writes zeros over the first `size` bytes, in the blocks that the file has: new contents may have
/// holes there.
fn blank(fs: &dyn FileSystem, old: &Attributes, size: u64) -> cairn_vfs::Result<()> {
    // First what may need a block after all, if the contents are in the inode.
    if size > old.size {
        fs.setattr(old.ino, &SetAttributes { size: Some(size), ..Default::default() })?;
    }
    let zeros = vec![0; CHUNK];
    let mut at = 0;
    while at < size {
        let len = usize::try_from(size - at).unwrap_or(CHUNK).min(CHUNK);
        match fs.write(old.ino, at, zeros.get(..len).unwrap_or_default(), IoFlags::empty())? {
            0 => return Err(Error::NoSpace),
            count => at += count as u64,
        }
    }
    Ok(())
}

/// As [`overwrite`], for a source that can be read only once: `fill` writes it to a file without a
/// name and returns its length.
///
/// # Errors
/// As [`overwrite`], or there is no room for the file without a name.
pub fn overwrite_by_stream(
    fs: &dyn FileSystem,
    place: &Place,
    old: &Attributes,
    fill: impl FnOnce(Ino) -> Outcome<u64>,
) -> Outcome<u64> {
    let failed = |error: Error| place.failed(&error);
    let new = fs.tmpfile(place.parent, 0o600, &Caller::ROOT).map_err(failed)?;
    let done = fill(new.ino).and_then(|size| {
        let write = |to| copy_contents(fs, new.ino, size, to).map_err(failed);
        overwrite(fs, place, old, Contents { bytes: size, size, check: || Ok(()), write })?;
        Ok(size)
    });
    fs.forget(new.ino, 1);
    done
}

/// Removes the access list and a directory's default list, before the attributes of a source are
/// set that may have neither.
///
/// # Errors
/// The volume refuses.
pub fn remove_access_lists(fs: &dyn FileSystem, ino: Ino) -> cairn_vfs::Result<()> {
    for name in fs.listxattr(ino)? {
        if matches!(&*name, acl::ACCESS | acl::DEFAULT) {
            fs.removexattr(ino, &name)?;
        }
    }
    Ok(())
}

fn remove_attribute(fs: &dyn FileSystem, ino: Ino, name: &[u8]) -> cairn_vfs::Result<()> {
    match fs.removexattr(ino, name) {
        Err(Error::NoAttribute | Error::Unsupported(_)) => Ok(()),
        done => done,
    }
}

/// Copies a file of `size` bytes into an empty one; holes stay holes.
///
/// # Errors
/// Those of reading and writing.
pub fn copy_contents(fs: &dyn FileSystem, from: Ino, size: u64, to: Ino) -> cairn_vfs::Result<()> {
    each_range(fs, from, size, &mut |at, len| fs.copy_range(from, at, to, at, len))?;
    fs.setattr(to, &SetAttributes { size: Some(size), ..Default::default() }).map(drop)
}

/// Reads all of a file of `size` bytes.
///
/// # Errors
/// Those of reading.
pub fn check_readable(fs: &dyn FileSystem, ino: Ino, size: u64) -> cairn_vfs::Result<()> {
    let mut buffer = vec![0; CHUNK];
    each_range(fs, ino, size, &mut |at, len| {
        let want = usize::try_from(len).unwrap_or(CHUNK).min(CHUNK);
        let buffer = buffer.get_mut(..want).unwrap_or_default();
        fs.read(ino, at, buffer, IoFlags::empty()).map(|count| count as u64)
    })
}

/// Calls `work` for each range with data. It returns how many bytes are done.
fn each_range(
    fs: &dyn FileSystem,
    ino: Ino,
    size: u64,
    work: &mut dyn FnMut(u64, u64) -> cairn_vfs::Result<u64>,
) -> cairn_vfs::Result<()> {
    let mut at = 0;
    while at < size {
        let data = match fs.seek(ino, at, Seek::Data) {
            Err(Error::NoData) => break,
            data => data?,
        };
        at = data;
        let hole = fs.seek(ino, data, Seek::Hole)?.min(size);
        while at < hole {
            match work(at, hole - at)? {
                0 => {
                    return Err(Error::Invalid("the file ended before the size in its attributes"));
                }
                count => at += count,
            }
        }
        if hole <= data {
            return Err(Error::Invalid("no progress in SEEK_HOLE"));
        }
    }
    Ok(())
}
