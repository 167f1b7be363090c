//! Walks over a volume whose visitors may fail with a message of their own.

use cairn_vfs::{Attributes, FileSystem, walk};

use crate::failure::{Failure, Outcome};
use crate::session::shown;

/// `directory/name`, with one slash between them.
#[must_use]
pub fn join(directory: &[u8], name: &[u8]) -> Vec<u8> {
    let slash: &[u8] = if directory.ends_with(b"/") || name.is_empty() { b"" } else { b"/" };
    [directory, slash, name].concat()
}

/// What is called for each file: with its whole path, its attributes, and how deep below the start it is.
pub type Visitor<'a> = dyn FnMut(&[u8], &Attributes, usize) -> Outcome<walk::Next> + 'a;

/// Visits what is at `path` and everything below it, a directory before its entries; the visitor gets whole paths and depths.
///
/// # Errors
/// A directory cannot be read, or what the visitor reports.
pub fn visit(fs: &dyn FileSystem, path: &[u8], start: &Attributes, visitor: &mut Visitor<'_>) -> Outcome {
    let mut failure = None;
    let walked = walk::walk(fs, start.ino, &mut |visit| {
        let done = visitor(&join(path, visit.path), visit.attributes, visit.depth);
        Ok(done.unwrap_or_else(|error| {
            failure = Some(error);
            walk::Next::Stop
        }))
    });
    failure.map_or(Ok(()), Err)?;
    walked.map_err(|error| Failure::volume(shown(path), &error))
}
