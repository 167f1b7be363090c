//! Walks over a volume whose visitors may fail with a message of their own.
//!
//! What fails for one file ends no walk. Damage is a warning at once; any other failure of one file
//! is reported at the end. The command ends with the status of the first.

use cairn_vfs::{Attributes, Error, FileKind, FileSystem, walk};

use crate::failure::{Failure, Outcome, Status};
use crate::session::shown;
use crate::{failure, output};

/// `directory/name`, with one slash between them.
#[must_use]
pub fn join(directory: &[u8], name: &[u8]) -> Vec<u8> {
    let slash: &[u8] = if directory.ends_with(b"/") || name.is_empty() { b"" } else { b"/" };
    [directory, slash, name].concat()
}

/// The last component of a path; empty for the root.
#[must_use]
pub fn last_name(path: &[u8]) -> &[u8] {
    path.rsplit(|byte| *byte == b'/').find(|name| !name.is_empty()).unwrap_or_default()
}

/// A path that ends with a slash names a directory, and nothing else, not even a symbolic link to
/// one.
///
/// # Errors
/// The path ends with a slash, and what it names is no directory.
pub fn check_trailing_slash(path: &[u8], kind: FileKind) -> Outcome {
    if path.ends_with(b"/") && kind != FileKind::Directory {
        let message = format!("{}: not a directory: leave out the slash at its end", shown(path));
        return Err(Failure::new(Status::Failed, message));
    }
    Ok(())
}

/// Symbolic links that are followed, one behind the other.
const MOST_LINKS: usize = 40;

/// The path of the file that is made where `path` names none: what the symbolic link that has the
/// name leads to, if it is one.
///
/// # Errors
/// A directory above it does not exist, or symbolic links lead to each other.
pub fn behind_links(fs: &dyn FileSystem, path: &[u8]) -> cairn_vfs::Result<Vec<u8>> {
    let mut path = path.to_vec();
    for _ in 0..MOST_LINKS {
        if path.ends_with(b"/") {
            return Err(Error::NotFound);
        }
        let (parent, name) = walk::resolve_parent(fs, &path)?;
        let target = match walk::lookup(fs, parent.ino, name) {
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

/// What is called for each file: with its whole path, its attributes, and how deep below the start
/// it is.
pub type Visitor<'a> = dyn FnMut(&[u8], &Attributes, usize) -> Outcome<walk::Next> + 'a;

/// What a command could not do, beside what it did.
#[derive(Debug, Default)]
pub struct Passed {
    /// Damaged entries.
    damaged: u64,
    /// Where the device fails, nothing more is worth writing.
    writes: bool,
    /// Failures of single files.
    left_out: Vec<Failure>,
    /// Files for which there was no room.
    no_room: usize,
}

/// So many files for which there is no room are named, and the others counted.
const NAMED: usize = 10;

impl Passed {
    /// Of a command that changes the volume: what the device fails at is not passed by.
    #[must_use]
    pub fn by_writer() -> Self {
        Self { writes: true, ..Self::default() }
    }

    /// Goes on past what is damaged or cannot be read, with a warning, and past what concerns one
    /// file alone.
    ///
    /// # Errors
    /// Any other failure.
    pub fn pass(&mut self, failure: Failure, say: impl FnOnce(&str)) -> Outcome {
        match failure.status {
            Status::Corrupt => {}
            Status::Io if !self.writes => {}
            _ if failure.is_full() => {
                self.no_room += 1;
                if self.no_room <= NAMED {
                    self.left_out.push(failure);
                }
                return Ok(());
            }
            _ if failure.is_of_one_file() => {
                self.left_out.push(failure);
                return Ok(());
            }
            _ => return Err(failure),
        }
        say(&format!("warning: {failure}"));
        self.damaged += 1;
        Ok(())
    }

    /// The end of the command.
    ///
    /// # Errors
    /// Something was passed by.
    pub fn end(self) -> Outcome {
        let damaged = match self.damaged {
            0 => Ok(()),
            count => {
                let (entries, were) =
                    if count == 1 { ("entry", "was") } else { ("entries", "were") };
                let message = format!(
                    "{count} damaged {entries} {were} passed over: run e2fsck or fsck.f2fs on the image"
                );
                Err(Failure::new(Status::Corrupt, message))
            }
        };
        let no_room = match self.no_room.checked_sub(NAMED) {
            None | Some(0) => Ok(()),
            Some(more) => {
                let files = if more == 1 { "file" } else { "files" };
                let message = format!("no room for {more} more {files}: make room, and copy again");
                Err(Failure::new(Status::Failed, message))
            }
        };
        failure::all(self.left_out.into_iter().map(Err).chain([no_room, damaged]))
    }
}

/// A warning on standard error.
pub fn complain(warning: &str) {
    output::complain(format_args!("{warning}"));
}

/// Visits what is at `path` and everything below it, a directory before its entries; the visitor
/// gets whole paths and depths. What fails for one entry is passed by, with everything below it.
///
/// # Errors
/// What the visitor reports, if it concerns more than one file.
pub fn visit(
    fs: &dyn FileSystem,
    path: &[u8],
    start: &Attributes,
    passed: &mut Passed,
    visitor: &mut Visitor<'_>,
) -> Outcome {
    let mut failure = None;
    let walked = walk::walk_past_damage(fs, start.ino, &mut |met| {
        let done = match met {
            walk::Reached::Entry(visit) => {
                visitor(&join(path, visit.path), visit.attributes, visit.depth)
            }
            walk::Reached::Damaged { path: below, error } => {
                Err(Failure::volume(shown(&join(path, below)), &error))
            }
        };
        Ok(done
            .or_else(|error| passed.pass(error, complain).map(|()| walk::Next::Skip))
            .unwrap_or_else(|error| {
                failure = Some(error);
                walk::Next::Stop
            }))
    });
    failure.map_or(Ok(()), Err)?;
    walked.map_err(|error| Failure::volume(shown(path), &error))
}

/// What of a path a command changes.
#[derive(Clone, Copy, Debug)]
pub struct Reach {
    /// Everything below it, too.
    pub recursive: bool,
    /// What a symbolic link at its end leads to.
    pub follow: bool,
}

/// Changes what is at each path. A directory that cannot be changed does not keep what is in it
/// from its turn.
///
/// # Errors
/// What `one` fails with, together.
pub fn change(
    fs: &dyn FileSystem,
    paths: Vec<Vec<u8>>,
    reach: Reach,
    one: &mut dyn FnMut(&Attributes) -> cairn_vfs::Result<()>,
) -> Outcome {
    let (mut passed, mut unchanged) = (Passed::by_writer(), Passed::by_writer());
    let done = failure::each(paths, |path| {
        let found = walk::resolve(fs, &path, reach.follow);
        let found = found.map_err(|error| Failure::volume(shown(&path), &error))?;
        let mut one = |path: &[u8], of: &Attributes| {
            one(of).map_err(|error| Failure::volume(shown(path), &error))
        };
        if !reach.recursive {
            return one(&path, &found);
        }
        visit(fs, &path, &found, &mut passed, &mut |path, of, _| {
            one(path, of).or_else(|failure| unchanged.pass(failure, complain))?;
            Ok(walk::Next::Continue)
        })
    });
    failure::all([done, unchanged.end(), passed.end()])
}
