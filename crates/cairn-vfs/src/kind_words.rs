//! Kinds of files in words.

use crate::types::FileKind;

impl FileKind {
    /// The kind in words, as stat(1) prints it.
    #[must_use]
    pub const fn words(self) -> &'static str {
        match self {
            Self::Regular => "regular file",
            Self::Directory => "directory",
            Self::Symlink => "symbolic link",
            Self::BlockDevice => "block device",
            Self::CharDevice => "character device",
            Self::Fifo => "fifo",
            Self::Socket => "socket",
        }
    }
}
