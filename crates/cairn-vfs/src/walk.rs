//! Resolves paths, and walks trees, on any [`FileSystem`].
//!
//! Both drop their references at once; a returned inode number stays valid as long as the entry is
//! linked. Both are bounded on any volume: a path follows at most 40 symbolic links, a walk has a
//! depth limit, and a directory that is reached twice (a loop or a hard-linked directory, both
//! corruption) is an error.

use std::collections::HashSet;
use std::sync::Arc;

use cairn_base::Ino;

use crate::error::{Error, Result};
use crate::filesystem::FileSystem;
use crate::name::NAME_MAX;
use crate::types::{Attributes, DirEntry, FileKind};

/// Most symbolic links followed in one resolution, as in Linux.
const MAX_SYMLINKS: u32 = 40;
/// Longest path after symbolic links were replaced. It stops links that expand each other.
const MAX_PATH: usize = 64 * 1024;
/// Depth limit of [`walk`].
pub const DEFAULT_DEPTH: usize = 4096;
/// Entries read from a directory at a time.
const BATCH: usize = 256;

/// Looks a name up without keeping a reference.
///
/// # Errors
/// As [`FileSystem::lookup`].
pub fn lookup(fs: &dyn FileSystem, parent: Ino, name: &[u8]) -> Result<Attributes> {
    if name.len() > NAME_MAX {
        return Err(Error::NameTooLong);
    }
    let found = fs.lookup(parent, name)?;
    fs.forget(found.ino, 1);
    Ok(found)
}

/// The attributes of a listed entry. An entry of another kind than its inode's is asked for by its
/// name, as who opens it does: one of the two may be damaged.
///
/// # Errors
/// As [`FileSystem::lookup`] and [`FileSystem::getattr`].
pub fn attributes_of(fs: &dyn FileSystem, directory: Ino, entry: &DirEntry) -> Result<Attributes> {
    let found = fs.getattr(entry.ino)?;
    match entry.kind {
        Some(kind) if kind != found.kind => lookup(fs, directory, &entry.name),
        _ => Ok(found),
    }
}

/// The inode at a path, which starts at the root with or without a slash. A symbolic link is
/// followed before the end of the path and before a trailing slash; with `follow`, also at the end.
///
/// # Errors
/// As [`FileSystem::lookup`]; [`Error::Loop`] after too many symbolic links; [`Error::NameTooLong`]
/// if symbolic links make the path too long.
pub fn resolve(fs: &dyn FileSystem, path: &[u8], follow: bool) -> Result<Attributes> {
    let trailing = path.last() == Some(&b'/');
    let mut rest: Vec<Vec<u8>> = components(path);
    let mut at = fs.getattr(fs.root())?;
    let mut links = 0;
    while let Some(name) = rest.pop() {
        if at.kind != FileKind::Directory {
            return Err(Error::NotDirectory);
        }
        let next = lookup(fs, at.ino, &name)?;
        if next.kind == FileKind::Symlink && (follow || trailing || !rest.is_empty()) {
            links += 1;
            if links > MAX_SYMLINKS {
                return Err(Error::Loop);
            }
            let target = fs.readlink(next.ino)?;
            if target.first() == Some(&b'/') {
                at = fs.getattr(fs.root())?;
            }
            rest.extend(components(&target));
            if rest.iter().map(|name| name.len() + 1).sum::<usize>() > MAX_PATH {
                return Err(Error::NameTooLong);
            }
        } else {
            at = next;
        }
    }
    if trailing && at.kind != FileKind::Directory {
        return Err(Error::NotDirectory);
    }
    Ok(at)
}

/// The directory of a path's last component, and that component, for creating and removing entries.
///
/// # Errors
/// As [`resolve`]; [`Error::Invalid`] if the path ends with `.` or `..` or is the root.
pub fn resolve_parent<'p>(fs: &dyn FileSystem, path: &'p [u8]) -> Result<(Attributes, &'p [u8])> {
    let end = path.iter().rposition(|byte| *byte != b'/').map_or(0, |last| last + 1);
    let path = &path[..end];
    let start = path.iter().rposition(|byte| *byte == b'/').map_or(0, |slash| slash + 1);
    let (directory, name) = path.split_at(start);
    match name {
        b"" | b"." | b".." => return Err(Error::Invalid("the path names no entry")),
        name if name.len() > NAME_MAX => return Err(Error::NameTooLong),
        _ => {}
    }
    let parent = resolve(fs, directory, true)?;
    if parent.kind == FileKind::Directory { Ok((parent, name)) } else { Err(Error::NotDirectory) }
}

/// The path of the file that is made for `path`: the target if `path` is a symbolic link.
///
/// # Errors
/// A parent directory does not exist, or symbolic links lead to each other.
pub fn behind_links(fs: &dyn FileSystem, path: &[u8]) -> Result<Vec<u8>> {
    let mut path = path.to_vec();
    for _ in 0..MAX_SYMLINKS {
        if path.ends_with(b"/") {
            return Err(Error::NotFound);
        }
        let (parent, name) = resolve_parent(fs, &path)?;
        let target = match lookup(fs, parent.ino, name) {
            Ok(found) if found.kind == FileKind::Symlink => fs.readlink(found.ino)?,
            Ok(_) | Err(Error::NotFound) => return Ok(path),
            Err(error) => return Err(error),
        };
        if target.starts_with(b"/") {
            path = target;
        } else {
            path.truncate(path.len() - name.len());
            path.extend(target);
        }
    }
    Err(Error::Loop)
}

/// Components, last first.
fn components(path: &[u8]) -> Vec<Vec<u8>> {
    path.split(|byte| *byte == b'/')
        .filter(|name| !name.is_empty() && *name != b".")
        .rev()
        .map(<[u8]>::to_vec)
        .collect()
}

/// All entries of a directory except `.` and `..`, in the directory's order.
///
/// # Errors
/// As [`FileSystem::readdir`].
pub fn list(fs: &dyn FileSystem, directory: Ino) -> Result<Vec<DirEntry>> {
    let (entries, damage) = list_past_damage(fs, directory);
    damage.map_or(Ok(entries), Err)
}

/// As [`list`], but returns all readable entries together with the first damage.
pub fn list_past_damage(fs: &dyn FileSystem, directory: Ino) -> (Vec<DirEntry>, Option<Error>) {
    let (mut entries, mut damage) = (Vec::new(), None);
    let mut position = 0;
    loop {
        let (batch, met) = read_batch(fs, directory, position);
        damage = damage.or(met);
        let Some(last) = batch.last() else { return (entries, damage) };
        position = last.next;
        entries.extend(batch.into_iter().filter(|entry| !entry.name.name().is_dots()));
    }
}

/// The entries of a directory from a position on, at most some hundred, also `.` and `..`; and the
/// error, if not all of them could be read.
pub fn read_batch(
    fs: &dyn FileSystem,
    directory: Ino,
    position: u64,
) -> (Vec<DirEntry>, Option<Error>) {
    let mut batch = Vec::new();
    let read = fs.readdir(directory, position, &mut |entry| {
        batch.push(entry);
        batch.len() < BATCH
    });
    (batch, read.err())
}

/// An entry that [`walk`] has reached.
#[derive(Clone, Debug)]
pub struct Visit<'a> {
    /// Path relative to the start of the walk; empty for the start.
    pub path: &'a [u8],
    /// Attributes.
    pub attributes: &'a Attributes,
    /// Number of directories above it, up to the start.
    pub depth: usize,
}

/// How the walk continues after a visit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// With the next entry; into the entry if it is a directory.
    Continue,
    /// With the next entry, but not into this directory.
    Skip,
    /// The walk ends.
    Stop,
}

/// The walk found a tree that an undamaged filesystem cannot have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TreeError {
    /// A directory was reached a second time.
    #[error("directory inode {0} is reached by two paths")]
    Repeated(Ino),
    /// The tree is deeper than the limit.
    #[error("directories nest deeper than {0}")]
    TooDeep(usize),
}

/// Visits `start` and everything below it: a directory before its entries, in the directory's
/// order. Symbolic links are not followed. Entries that are removed meanwhile are skipped.
///
/// # Errors
/// The error of `visit`, or of reading the tree; [`Error::Corrupt`] with a [`TreeError`].
pub fn walk(
    fs: &dyn FileSystem,
    start: Ino,
    visit: &mut dyn FnMut(&Visit<'_>) -> Result<Next>,
) -> Result<()> {
    walk_to_depth(fs, start, DEFAULT_DEPTH, visit)
}

/// As [`walk`], with another depth limit.
///
/// # Errors
/// As [`walk`].
pub fn walk_to_depth(
    fs: &dyn FileSystem,
    start: Ino,
    max_depth: usize,
    visit: &mut dyn FnMut(&Visit<'_>) -> Result<Next>,
) -> Result<()> {
    walk_tree(fs, start, max_depth, &mut |met| match met {
        Reached::Entry(entry) => visit(entry),
        Reached::Damaged { error, .. } => Err(error),
    })
}

/// What [`walk_past_damage`] has reached.
#[derive(Debug)]
pub enum Reached<'a> {
    /// An entry, or the start.
    Entry(&'a Visit<'a>),
    /// An inode or a part of a directory that cannot be read. It is passed once, after the readable
    /// entries, and the walk continues.
    Damaged {
        /// The path, as in [`Visit`].
        path: &'a [u8],
        /// The reason.
        error: Error,
    },
}

/// As [`walk`], but damage does not end the walk: one damaged inode does not hide the entries
/// beside it.
///
/// # Errors
/// The error of `visit`, or of reading `start`.
pub fn walk_past_damage(
    fs: &dyn FileSystem,
    start: Ino,
    visit: &mut dyn FnMut(Reached<'_>) -> Result<Next>,
) -> Result<()> {
    walk_tree(fs, start, DEFAULT_DEPTH, visit)
}

fn walk_tree(
    fs: &dyn FileSystem,
    start: Ino,
    max_depth: usize,
    visit: &mut dyn FnMut(Reached<'_>) -> Result<Next>,
) -> Result<()> {
    let attributes = fs.getattr(start)?;
    let mut path = Vec::new();
    let next = visit(Reached::Entry(&Visit { path: &path, attributes: &attributes, depth: 0 }))?;
    if next != Next::Continue || attributes.kind != FileKind::Directory {
        return Ok(());
    }
    let mut seen = HashSet::from([start]);
    let mut stack = vec![Level::new(start, 0)];
    while let Some(level) = stack.last_mut() {
        path.truncate(level.path_len);
        let directory = level.directory;
        let entry = match level.next_entry(fs) {
            Ok(Some(entry)) => entry,
            Ok(None) => {
                stack.pop();
                continue;
            }
            Err(error) => {
                if visit(Reached::Damaged { path: &path, error })? == Next::Stop {
                    return Ok(());
                }
                stack.pop();
                continue;
            }
        };
        if !path.is_empty() {
            path.push(b'/');
        }
        path.extend_from_slice(&entry.name);
        let depth = stack.len();
        let attributes = match lookup(fs, directory, &entry.name) {
            Ok(found) => found,
            Err(Error::NotFound) => continue,
            Err(error) => match visit(Reached::Damaged { path: &path, error })? {
                Next::Stop => return Ok(()),
                _ => continue,
            },
        };
        match visit(Reached::Entry(&Visit { path: &path, attributes: &attributes, depth }))? {
            Next::Stop => return Ok(()),
            Next::Continue if attributes.kind == FileKind::Directory => {
                let repeated =
                    (!seen.insert(attributes.ino)).then_some(TreeError::Repeated(attributes.ino));
                let wrong =
                    repeated.or((depth >= max_depth).then_some(TreeError::TooDeep(max_depth)));
                if let Some(wrong) = wrong {
                    let error = Error::Corrupt(Arc::new(wrong));
                    if visit(Reached::Damaged { path: &path, error })? == Next::Stop {
                        return Ok(());
                    }
                    continue;
                }
                let (directory, path_len) = (attributes.ino, path.len());
                stack.push(Level::new(directory, path_len));
            }
            Next::Continue | Next::Skip => {}
        }
    }
    Ok(())
}

/// A directory that is being read in batches: the visitor may change the tree, and large
/// directories need little memory.
struct Level {
    directory: Ino,
    position: u64,
    batch: std::vec::IntoIter<DirEntry>,
    /// The first damage, which is returned after the last entry.
    damage: Option<Error>,
    path_len: usize,
}

impl Level {
    fn new(directory: Ino, path_len: usize) -> Self {
        Self { directory, position: 0, batch: Vec::new().into_iter(), damage: None, path_len }
    }

    fn next_entry(&mut self, fs: &dyn FileSystem) -> Result<Option<DirEntry>> {
        loop {
            for entry in self.batch.by_ref() {
                if !entry.name.name().is_dots() {
                    return Ok(Some(entry));
                }
            }
            let (batch, met) = read_batch(fs, self.directory, self.position);
            // A directory that was removed has no more entries.
            let met = met.filter(|error| !matches!(error, Error::Stale | Error::NotFound));
            self.damage = self.damage.take().or(met);
            let Some(last) = batch.last() else { return self.damage.take().map_or(Ok(None), Err) };
            self.position = last.next;
            self.batch = batch.into_iter();
        }
    }
}
