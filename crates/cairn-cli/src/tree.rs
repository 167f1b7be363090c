//! Walks over a volume whose visitors may fail with a message of their own.
//!
//! A failure of one file does not end a walk. Damage is a warning at once; any other failure of one
//! file is reported at the end. The command ends with the status of the first.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use cairn_base::shell::quoted;
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

/// A path with a slash at its end names a directory only, not a symbolic link to one.
///
/// # Errors
/// The path ends with a slash and names another kind of file.
pub fn check_trailing_slash(path: &[u8], kind: FileKind) -> Outcome {
    if path.ends_with(b"/") && kind != FileKind::Directory {
        let message = format!("{}: not a directory: leave out the slash at its end", shown(path));
        return Err(Failure::new(Status::Failed, message));
    }
    Ok(())
}

/// The failure of a call that makes an entry at `path`. It names the directory that is missing.
#[must_use]
pub fn unmade(fs: &dyn FileSystem, path: &[u8], error: &Error) -> Failure {
    let failure = Failure::volume(shown(path), error);
    let end = path.iter().rposition(|byte| *byte != b'/').map_or(0, |last| last + 1);
    let start = path.iter().take(end).rposition(|byte| *byte == b'/').unwrap_or(0);
    let above = path.get(..start).unwrap_or_default();
    match error {
        Error::NotFound if matches!(walk::resolve(fs, above, true), Err(Error::NotFound)) => {
            let (above, word) = (shown(above), quoted(OsStr::from_bytes(above)));
            failure.leaving(format!(
                "{above} does not exist: create it with cairn mkdir -p IMAGE {word}"
            ))
        }
        _ => failure,
    }
}

/// The failure of a call that changes what `path` leads to.
fn unreached(fs: &dyn FileSystem, path: &[u8], error: &Error) -> Failure {
    let is_link =
        || walk::resolve(fs, path, false).is_ok_and(|found| found.kind == FileKind::Symlink);
    if matches!(error, Error::NotFound) && is_link() {
        let what = "a dangling symbolic link: nothing to change";
        return Failure::new(Status::Failed, format!("{}: {what}", shown(path)));
    }
    Failure::volume(shown(path), error)
}

/// The function called for each file, with its whole path, its attributes and its depth below the
/// start.
pub type Visitor<'a> = dyn FnMut(&[u8], &Attributes, usize) -> Outcome<walk::Next> + 'a;

/// The failures that a command continued after.
#[derive(Debug, Default)]
pub struct Passed {
    /// Damaged entries.
    damaged: u64,
    /// Entries that the device did not give: what holds the image has failed, not the filesystem.
    unread: u64,
    /// True for a command that writes: it ends when the device fails.
    writes: bool,
    /// Failures of single files.
    left_out: Vec<Failure>,
    /// Directories with files for which there was no room.
    full: BTreeSet<String>,
    /// More such files, on the volume and on the host.
    no_room: [u64; 2],
    /// Files whose directory could not be made.
    below: u64,
}

/// In how many directories a file without room is named. The others are counted.
const NAMED: usize = 10;

impl Passed {
    /// For a command that changes the volume, which ends when the device fails.
    #[must_use]
    pub fn by_writer() -> Self {
        Self { writes: true, ..Self::default() }
    }

    /// Records a failure after which the command continues: damage and unreadable files, with a
    /// warning, and failures of one file.
    ///
    /// # Errors
    /// Any other failure, which ends the command.
    pub fn pass(&mut self, failure: Failure, say: impl FnOnce(&str)) -> Outcome {
        if let Some(directory) = failure.full_directory().map(str::to_owned) {
            if self.full.len() < NAMED && self.full.insert(directory) {
                self.left_out.push(failure);
            } else {
                self.no_room[usize::from(failure.is_of_host())] += 1;
            }
            return Ok(());
        }
        let count = match failure.status {
            Status::Corrupt => &mut self.damaged,
            Status::Io if !self.writes => &mut self.unread,
            _ if failure.is_of_one_file() => {
                self.left_out.push(failure);
                return Ok(());
            }
            _ => return Err(failure),
        };
        *count += 1;
        say(&format!("warning: {failure}"));
        Ok(())
    }

    /// Counts a file whose directory could not be made.
    pub fn skip(&mut self) {
        self.below += 1;
    }

    /// The end of the command.
    ///
    /// # Errors
    /// There were failures.
    pub fn end(self) -> Outcome {
        let skipped = |count: u64, status: Status, message: &str| match count {
            0 => Ok(()),
            count => {
                let (entries, were) =
                    if count == 1 { ("entry", "was") } else { ("entries", "were") };
                let message = message.replace("ENTRIES", entries).replace("WERE", were);
                Err(Failure::new(status, format!("{count} {message}")))
            }
        };
        let damaged = "damaged ENTRIES WERE skipped: run `cairn check` on the image";
        let damaged = skipped(self.damaged, Status::Corrupt, damaged);
        // No repair of the filesystem brings back what its device does not give.
        let unread = "ENTRIES WERE skipped that the device could not read: the warnings say what \
                      failed there, and what to do";
        let unread = skipped(self.unread, Status::Io, unread);
        let [on_volume, on_host] = self.no_room;
        let on_volume = match on_volume {
            0 => Ok(()),
            count => Err(Failure::new(Status::Failed, without_room(count))),
        };
        let on_host = match on_host {
            0 => Ok(()),
            count => Err(Failure::of_host(format!("this host: {}", without_room(count)))),
        };
        let below = match self.below {
            0 => Ok(()),
            count => {
                let files = more_files(count);
                let why =
                    "left out, whose directories could not be made: mend that, and copy again";
                Err(Failure::new(Status::Failed, format!("{files} {why}")))
            }
        };
        failure::all(
            self.left_out.into_iter().map(Err).chain([on_volume, on_host, below, unread, damaged]),
        )
    }
}

/// What is said of files for which there was no room.
fn without_room(count: u64) -> String {
    format!("no room for {}: make room, and copy again", more_files(count))
}

/// `1 more file`, `2 more files`.
fn more_files(count: u64) -> String {
    format!("{count} more {}", if count == 1 { "file" } else { "files" })
}

/// Prints a warning on standard error.
pub fn complain(warning: &str) {
    output::complain(format_args!("{warning}"));
}

/// Visits `path` and everything below it, a directory before its entries. The visitor gets whole
/// paths and depths. A failed entry is left out with everything below it.
///
/// # Errors
/// An error of the visitor that concerns more than one file.
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

/// Which files of a path a command changes.
#[derive(Clone, Copy, Debug)]
pub struct Reach {
    /// Also everything below it.
    pub recursive: bool,
    /// The target of a symbolic link at its end, not the link.
    pub follow: bool,
}

/// Changes the file at each path. The entries of a directory that cannot be changed are still
/// changed.
///
/// # Errors
/// The failures of `one`, together.
pub fn change(
    fs: &dyn FileSystem,
    paths: Vec<Vec<u8>>,
    reach: Reach,
    one: &mut dyn FnMut(&Attributes) -> cairn_vfs::Result<()>,
) -> Outcome {
    let (mut passed, mut unchanged) = (Passed::by_writer(), Passed::by_writer());
    let done = failure::each(paths, |path| {
        let found = walk::resolve(fs, &path, reach.follow);
        let found = found.map_err(|error| unreached(fs, &path, &error))?;
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
