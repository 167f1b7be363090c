//! [`Source`]: the tree that a new volume is filled with.

use std::ops::Range;

use crate::types::{FileKind, Timestamp};

/// Whether bytes of a file were read, and why not.
pub type ReadResult = Result<(), Box<dyn std::error::Error + Send + Sync>>;

/// A tree of nodes with ids from 0, the root, on. Each node is one inode. A directory has a smaller
/// id than the directories in it. Inode numbers and places follow the ids.
pub trait Source: Send + Sync {
    /// Number of nodes, the root included.
    fn count(&self) -> u32;

    /// A node. It is asked for several times, with the same answer.
    fn node(&self, id: u32) -> Node<'_>;

    /// An entry of a directory: its name, and the id of its node. Names ascend by their bytes.
    fn entry(&self, directory: u32, index: u32) -> (&[u8], u32);

    /// Fills `buffer` with the bytes of a file from `offset` on. All of them lie in one range of
    /// [`Kind::Regular`]. Several threads call it at once.
    ///
    /// # Errors
    /// The bytes cannot be read.
    fn read(&self, file: u32, offset: u64, buffer: &mut [u8]) -> ReadResult;

    /// A name for errors.
    fn path(&self, id: u32) -> String;
}

/// One inode of the tree.
#[derive(Clone, Debug)]
pub struct Node<'a> {
    /// Permission bits with set-user-id, set-group-id and sticky (`0o7777`).
    pub permissions: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Last access.
    pub atime: Timestamp,
    /// Last change of contents.
    pub mtime: Timestamp,
    /// Last change of the inode.
    pub ctime: Timestamp,
    /// Creation.
    pub crtime: Timestamp,
    /// Extended attributes: whole names, and values as getxattr(2) gives them.
    pub xattrs: Vec<(&'a [u8], &'a [u8])>,
    /// What it is.
    pub kind: Kind<'a>,
}

/// What a node is.
#[derive(Clone, Copy, Debug)]
pub enum Kind<'a> {
    /// A directory with this many entries.
    Directory {
        /// Entries, without `.` and `..`.
        entries: u32,
    },
    /// A regular file.
    Regular {
        /// Bytes.
        size: u64,
        /// Ranges that hold data; the rest are holes. Sorted and apart.
        data: &'a [Range<u64>],
    },
    /// A symbolic link to this target.
    Symlink(&'a [u8]),
    /// A character device: major and minor number.
    CharDevice(u32, u32),
    /// A block device: major and minor number.
    BlockDevice(u32, u32),
    /// A FIFO.
    Fifo,
    /// A socket.
    Socket,
}

impl Kind<'_> {
    /// The kind without its contents.
    #[must_use]
    pub const fn file_kind(&self) -> FileKind {
        match self {
            Self::Directory { .. } => FileKind::Directory,
            Self::Regular { .. } => FileKind::Regular,
            Self::Symlink(_) => FileKind::Symlink,
            Self::CharDevice(..) => FileKind::CharDevice,
            Self::BlockDevice(..) => FileKind::BlockDevice,
            Self::Fifo => FileKind::Fifo,
            Self::Socket => FileKind::Socket,
        }
    }
}
