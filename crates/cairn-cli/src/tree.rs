//! Walks over a volume whose visitors may fail with a message of their own, and what commands do about damage: they warn, go on
//! beside it, and end with its status.

use cairn_vfs::{Attributes, FileSystem, walk};

use crate::failure::{Failure, Outcome, Status};
use crate::output;
use crate::session::shown;

/// `directory/name`, with one slash between them.
#[must_use]
pub fn join(directory: &[u8], name: &[u8]) -> Vec<u8> {
    let slash: &[u8] = if directory.ends_with(b"/") || name.is_empty() { b"" } else { b"/" };
    [directory, slash, name].concat()
}

/// What is called for each file: with its whole path, its attributes, and how deep below the start it is.
pub type Visitor<'a> = dyn FnMut(&[u8], &Attributes, usize) -> Outcome<walk::Next> + 'a;

/// Damage that a command has passed by.
#[derive(Debug, Default)]
pub struct Passed(u64);

impl Passed {
    /// Goes on past what is damaged or cannot be read, with a warning; any other failure stands.
    ///
    /// # Errors
    /// That failure.
    pub fn pass(&mut self, failure: Failure, say: impl FnOnce(&str)) -> Outcome {
        if !matches!(failure.status, Status::Corrupt | Status::Io) {
            return Err(failure);
        }
        say(&format!("warning: {failure}"));
        self.0 += 1;
        Ok(())
    }

    /// The end of the command.
    ///
    /// # Errors
    /// Something was passed by.
    pub fn end(&self) -> Outcome {
        match self.0 {
            0 => Ok(()),
            count => {
                let message = format!("{count} damaged entries were passed over: run e2fsck or fsck.f2fs on the image");
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
            walk::Met::Entry(visit) => visitor(&join(path, visit.path), visit.attributes, visit.depth),
            walk::Met::Damaged { path: below, error } => Err(Failure::volume(shown(&join(path, below)), &error)),
        };
        Ok(done.or_else(|error| passed.pass(error, complain).map(|()| walk::Next::Skip)).unwrap_or_else(|error| {
            failure = Some(error);
            walk::Next::Stop
        }))
    });
    failure.map_or(Ok(()), Err)?;
    walked.map_err(|error| Failure::volume(shown(path), &error))
}
