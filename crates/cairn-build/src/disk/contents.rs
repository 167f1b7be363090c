//! [`Image`]: a file whose bytes a partition holds.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use cairn_base::names::Escaped;

use crate::error::{Error, Result};
use crate::extents::next_data;
use crate::holes;

/// Bytes copied at a time.
const PIECE: u64 = 1 << 20;

/// A file that was opened for a partition.
pub(super) struct Image {
    file: File,
    path: PathBuf,
    pub(super) size: u64,
}

impl Image {
    /// Opens a file, which must fit in `room` bytes.
    ///
    /// # Errors
    /// It cannot be opened, is no regular file, is empty, or is too large.
    pub(super) fn open(path: &Path, room: Option<u64>) -> Result<Self> {
        let failed = |error| Error::host(path, error);
        let file = File::open(path).map_err(failed)?;
        let found = file.metadata().map_err(failed)?;
        let wrong = |why: String| Err(Error::Usage(format!("{}: {why}", path.escaped())));
        if !found.is_file() {
            return wrong("is not a regular file: a partition holds the bytes of a file".into());
        }
        match (found.len(), room) {
            (0, _) => wrong("is empty: leave it out, or say size= and empty".into()),
            (size, Some(room)) if size > room => {
                wrong(format!("has {size} bytes, more than size= says: leave size= out"))
            }
            (size, _) => Ok(Self { file, path: path.to_owned(), size }),
        }
    }

    /// Copies it to `at` of another file, which reads as zeros there.
    ///
    /// # Errors
    /// It cannot be read or has become shorter, or `output` cannot be written.
    pub(super) fn copy(&self, to: &File, at: u64, output: &Path) -> Result<()> {
        let failed = |error| Error::host(&self.path, error);
        let mut piece = Vec::new();
        let mut next = 0;
        while let Some(data) = next_data(&self.file, next, self.size).map_err(failed)? {
            next = data.start;
            while next < data.end {
                let len = PIECE.min(data.end - next);
                piece.resize(usize::try_from(len).unwrap_or_default(), 0);
                self.file.read_exact_at(&mut piece, next).map_err(failed)?;
                let mut kept = Vec::new();
                holes::keep(&piece, next, &mut kept);
                for range in kept {
                    let index = |byte: u64| usize::try_from(byte - next).unwrap_or_default();
                    let bytes = piece.get(index(range.start)..index(range.end));
                    to.write_all_at(bytes.unwrap_or_default(), at + range.start)
                        .map_err(|error| Error::host(output, error))?;
                }
                next += len;
            }
        }
        Ok(())
    }
}
