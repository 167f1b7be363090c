//! Walks over a volume whose visitors may fail with a message of their own, and what commands do about damage: they warn, go on
//! beside it, and end with its status.

use cairn_vfs::{Attributes, FileSystem, walk};

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

/// What is called for each file: with its whole path, its attributes, and how deep below the start it is.
pub type Visitor<'a> = dyn FnMut(&[u8], &Attributes, usize) -> Outcome<walk::Next> + 'a;

/// Damage that a command has passed by.
#[derive(Debug, Default)]
pub struct Passed {
    count: u64,
    /// Where the device fails, nothing more is worth writing.
    writes: bool,
}

impl Passed {
    /// Of a command that changes the volume: what the device fails at is not passed by.
    #[must_use]
    pub fn by_writer() -> Self {
        Self { count: 0, writes: true }
    }

    /// Goes on past what is damaged or cannot be read, with a warning; any other failure stands.
    ///
    /// # Errors
    /// That failure.
    pub fn pass(&mut self, failure: Failure, say: impl FnOnce(&str)) -> Outcome {
        match failure.status {
            Status::Corrupt => {}
            Status::Io if !self.writes => {}
            _ => return Err(failure),
        }
        say(&format!("warning: {failure}"));
        self.count += 1;
        Ok(())
    }

    /// The end of the command.
    ///
    /// # Errors
    /// Something was passed by.
    pub fn end(&self) -> Outcome {
        match self.count {
            0 => Ok(()),
            count => {
                let (entries, were) = if count == 1 { ("entry", "was") } else { ("entries", "were") };
                let message =
                    format!("{count} damaged {entries} {were} passed over: run e2fsck or fsck.f2fs on the image");
                Err(Failure::new(Status::Corrupt, message))
            }
        }
    }
}

/// A warning on standard error.
pub fn complain(warning: &str) {
    output::complain(format_args!("{warning}"));
}

/// Visits what is at `path` and everything below it, a directory before its entries; the visitor gets whole paths and depths.
/// What is damaged is passed by.
///
/// # Errors
/// What the visitor reports, but for damage.
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
            walk::Reached::Entry(visit) => visitor(&join(path, visit.path), visit.attributes, visit.depth),
            walk::Reached::Damaged { path: below, error } => Err(Failure::volume(shown(&join(path, below)), &error)),
        };
        Ok(done.or_else(|error| passed.pass(error, complain).map(|()| walk::Next::Skip)).unwrap_or_else(|error| {
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

/// Changes what is at each path; what is damaged is passed by.
///
/// # Errors
/// What `one` fails with, but for damage.
pub fn change(
    fs: &dyn FileSystem,
    paths: Vec<Vec<u8>>,
    reach: Reach,
    one: &mut dyn FnMut(&Attributes) -> cairn_vfs::Result<()>,
) -> Outcome {
    let mut passed = Passed::by_writer();
    let done = failure::each(paths, |path| {
        let found = walk::resolve(fs, &path, reach.follow);
        let found = found.map_err(|error| Failure::volume(shown(&path), &error))?;
        let mut one = |path: &[u8], of: &Attributes| one(of).map_err(|error| Failure::volume(shown(path), &error));
        if !reach.recursive {
            return one(&path, &found);
        }
        visit(fs, &path, &found, &mut passed, &mut |path, of, _| one(path, of).map(|()| walk::Next::Continue))
    });
    done.and(passed.end())
}
