//! Opens a volume for one command and closes it again, whatever the command's outcome.

use std::ffi::OsStr;

use cairn::{ImageSpec, OpenOptions};
use cairn_vfs::FileSystem;

use crate::failure::{Failure, Outcome, Status};
use crate::print;

/// What a command does to the volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Only reads: nothing is written, not even to replay the journal.
    Read,
    /// Writes; the image is clean on disk when the command is done.
    Write,
}

/// Runs `work` on the volume in `image`. The first failure is reported: the work's, else the unmount's.
///
/// # Errors
/// The image cannot be opened, the work fails, or the volume cannot be brought to the disk.
pub fn with_volume<T>(image: &OsStr, access: Access, work: impl FnOnce(&dyn FileSystem) -> Outcome<T>) -> Outcome<T> {
    let image = ImageSpec::parse(image)?;
    let options = OpenOptions { read_only: access == Access::Read, ..OpenOptions::default() };
    let volume = cairn::open(&image, &options)?;
    let done = work(&**volume.filesystem()).map_err(|failure| failure.in_image(&image));
    let closed = volume.filesystem().unmount();
    let closed = closed.map_err(|error| Failure::volume("unmount", &error).in_image(&image));
    match done {
        Err(failure) if failure.status != Status::Success => Err(failure),
        done => closed.and(done),
    }
}

/// A path on a volume, for messages: they go to logs and terminals, so it is escaped.
#[must_use]
pub fn shown(path: &[u8]) -> String {
    print::escaped(path)
}
