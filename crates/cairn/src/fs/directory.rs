//! The entries of a directory.

use std::io::Result;
use std::sync::Arc;

use cairn_base::Ino;
use cairn_vfs::{FileKind, FileSystem, walk};

use super::metadata::Metadata;
use crate::process::Opener;

/// The entries of a directory, without `.` and `..`, in its own order.
pub struct ReadDir {
    fs: Arc<dyn FileSystem>,
    opener: Opener,
    directory: Ino,
    position: u64,
    batch: std::vec::IntoIter<cairn_vfs::DirEntry>,
    /// The end, after the batch.
    end: Option<Result<()>>,
}

impl ReadDir {
    pub(super) fn new(fs: Arc<dyn FileSystem>, directory: Ino) -> Self {
        let opener = Opener::this();
        Self { fs, opener, directory, position: 0, batch: Vec::new().into_iter(), end: None }
    }

    fn entry(&self, entry: cairn_vfs::DirEntry) -> DirEntry {
        DirEntry { fs: self.fs.clone(), opener: self.opener, directory: self.directory, entry }
    }
}

impl Iterator for ReadDir {
    type Item = Result<DirEntry>;

    fn next(&mut self) -> Option<Self::Item> {
        let is_over = matches!(self.end, Some(Ok(())));
        if let (false, Err(error)) = (is_over, self.opener.require()) {
            self.batch = Vec::new().into_iter();
            self.end = Some(Err(error));
        }
        loop {
            if let Some(entry) = self.batch.next() {
                if entry.name.name().is_dots() {
                    continue;
                }
                return Some(Ok(self.entry(entry)));
            }
            if let Some(end) = &mut self.end {
                return std::mem::replace(end, Ok(())).err().map(Err);
            }
            let (batch, met) = walk::read_batch(&*self.fs, self.directory, self.position);
            self.end = match (batch.last(), met) {
                (_, Some(error)) => Some(Err(error.into())),
                (None, None) => Some(Ok(())),
                (Some(last), None) => {
                    self.position = last.next;
                    None
                }
            };
            self.batch = batch.into_iter();
        }
    }
}

impl std::fmt::Debug for ReadDir {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ReadDir").field("directory", &self.directory).finish_non_exhaustive()
    }
}

/// An entry of a directory.
pub struct DirEntry {
    fs: Arc<dyn FileSystem>,
    opener: Opener,
    directory: Ino,
    entry: cairn_vfs::DirEntry,
}

impl DirEntry {
    /// The name: 1 to 255 bytes without NUL and slash.
    #[must_use]
    pub fn name(&self) -> &[u8] {
        &self.entry.name
    }

    /// The inode number.
    #[must_use]
    pub const fn ino(&self) -> Ino {
        self.entry.ino
    }

    /// Kind of the file, if the directory has it; [`DirEntry::metadata`] has it always.
    #[must_use]
    pub const fn kind(&self) -> Option<FileKind> {
        self.entry.kind
    }

    /// What the volume knows about the file. A symbolic link is not followed.
    ///
    /// # Errors
    /// The name is gone, or its inode cannot be read.
    pub fn metadata(&self) -> Result<Metadata> {
        self.opener.require()?;
        Ok(Metadata::new(walk::lookup(&*self.fs, self.directory, self.name())?))
    }
}

impl std::fmt::Debug for DirEntry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("DirEntry").field(&self.entry).finish()
    }
}
