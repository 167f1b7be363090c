//! A file that could not be overwritten because the host of the image refused its new contents.
//! Whether the old ones are lost depends on what the volume could write after that.

use cairn_block::ErrorKind;
use cairn_vfs::{Attributes, FileSystem, Timestamp, walk};

/// A file as it was.
#[derive(Debug)]
pub struct Overwritten {
    path: Vec<u8>,
    size: u64,
    changed: Timestamp,
}

impl Overwritten {
    /// The file at `path`, which had these attributes.
    #[must_use]
    pub fn new(path: &[u8], old: &Attributes) -> Self {
        Self { path: path.to_vec(), size: old.size, changed: old.ctime }
    }

    /// True if the volume still has the file as it was.
    #[must_use]
    pub fn is_on(&self, fs: &dyn FileSystem) -> bool {
        let found = walk::resolve(fs, &self.path, true);
        found.is_ok_and(|found| found.size == self.size && found.ctime == self.changed)
    }
}

/// True if an error of the device says that the host has no room. A device that is no file of the
/// host, such as a volume in an object store, says itself where room is missing.
pub(super) fn is_host_full(error: &(dyn std::error::Error + 'static)) -> bool {
    std::iter::successors(Some(error), |error| error.source()).any(|error| {
        error
            .downcast_ref::<cairn_block::Error>()
            .is_some_and(|error| error.kind == ErrorKind::NoSpace && error.source.is_some())
    })
}
