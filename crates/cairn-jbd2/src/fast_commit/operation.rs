//! The changes that fast commits describe.

use cairn_base::{FileBlock, Ino, Pba};

/// One change. The filesystem applies the changes in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Maps blocks of a file (`EXT4_FC_TAG_ADD_RANGE`).
    AddRange {
        /// File.
        ino: Ino,
        /// First block in the file.
        start: FileBlock,
        /// First block on the volume.
        pba: Pba,
        /// Blocks.
        len: u32,
        /// The blocks are allocated but not written, and read as zeros.
        unwritten: bool,
    },
    /// Unmaps blocks of a file (`EXT4_FC_TAG_DEL_RANGE`).
    DeleteRange {
        /// File.
        ino: Ino,
        /// First block in the file.
        start: FileBlock,
        /// Blocks.
        len: u32,
    },
    /// Gives a new inode its first name (`EXT4_FC_TAG_CREAT`).
    Create(Name),
    /// Gives an inode one more name (`EXT4_FC_TAG_LINK`).
    Link(Name),
    /// Removes a name (`EXT4_FC_TAG_UNLINK`).
    Unlink(Name),
    /// Replaces an inode's record, except for its block map (`EXT4_FC_TAG_INODE`).
    Inode {
        /// Inode.
        ino: Ino,
        /// The first bytes of the record: at least 128.
        raw: Vec<u8>,
    },
}

/// A name in a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Name {
    /// Directory.
    pub parent: Ino,
    /// Inode that has the name.
    pub ino: Ino,
    /// The name.
    pub name: Vec<u8>,
}

/// Changes that became durable together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FastCommit {
    /// The changes in the order in which they are applied.
    pub operations: Vec<Operation>,
}
