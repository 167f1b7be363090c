//! What can be wrong on disk: facts with place and values, shared by mount, walks and tests.

use cairn_base::{FileBlock, Ino, Pba};

/// A defect of the bytes on disk.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Corrupt {
    /// A superblock field contradicts another or the device.
    #[error("superblock: {field} is {value}, {expected}")]
    Superblock {
        /// Field name of the specification.
        field: &'static str,
        /// Stored value.
        value: u64,
        /// What would be right, in words.
        expected: &'static str,
    },
    /// A checksum does not match.
    #[error("{what} {place}: checksum {stored:#x} stored, {computed:#x} computed")]
    Checksum {
        /// Kind of structure ("superblock", "group", "inode", "extent block", "directory block"…).
        what: &'static str,
        /// Its number (group, inode or block).
        place: u64,
        /// Value on disk.
        stored: u32,
        /// Value over the bytes found.
        computed: u32,
    },
    /// A group descriptor is impossible.
    #[error("group {group}: {field} is {value}, {expected}")]
    Group {
        /// Group number.
        group: u32,
        /// Field name.
        field: &'static str,
        /// Stored value.
        value: u64,
        /// What would be right.
        expected: &'static str,
    },
    /// An inode is impossible.
    #[error("inode {ino}: {field} is {value}, {expected}")]
    Inode {
        /// Inode.
        ino: Ino,
        /// Field name.
        field: &'static str,
        /// Stored value.
        value: u64,
        /// What would be right.
        expected: &'static str,
    },
    /// An extent or indirect block is impossible.
    #[error("inode {ino}: mapping at file block {at} (block {pba}): {what}, value {value}")]
    Mapping {
        /// Inode.
        ino: Ino,
        /// File block the walk was looking for or the entry names.
        at: FileBlock,
        /// Block that holds the bad entry (0: the inode itself).
        pba: Pba,
        /// What is wrong.
        what: &'static str,
        /// The offending value.
        value: u64,
    },
    /// A directory block is impossible.
    #[error("directory {ino}, block {block}, offset {offset}: {what}, value {value}")]
    Directory {
        /// Directory inode.
        ino: Ino,
        /// Logical block in the directory.
        block: FileBlock,
        /// Byte offset in the block.
        offset: u32,
        /// What is wrong.
        what: &'static str,
        /// The offending value.
        value: u64,
    },
    /// An extended attribute is impossible.
    #[error("inode {ino}: extended attributes in {place}: {what}, value {value}")]
    Xattr {
        /// Inode.
        ino: Ino,
        /// "inode", or the block.
        place: &'static str,
        /// What is wrong.
        what: &'static str,
        /// The offending value.
        value: u64,
    },
    /// A block or inode bitmap contradicts what is being done.
    #[error("{what} bitmap of group {group}: bit {bit} {state}")]
    Bitmap {
        /// "block" or "inode".
        what: &'static str,
        /// Group number.
        group: u32,
        /// Bit number.
        bit: u32,
        /// What was found ("already free", "already in use"…).
        state: &'static str,
    },
    /// The orphan list or orphan file is impossible.
    #[error("orphans: {what}, value {value}")]
    Orphan {
        /// What is wrong.
        what: &'static str,
        /// The offending value.
        value: u64,
    },
}

impl Corrupt {
    /// True if the group descriptors are at fault, of which there are backups.
    #[must_use]
    pub fn is_of_descriptors(&self) -> bool {
        matches!(self, Self::Group { .. } | Self::Checksum { what: "group descriptor", .. })
    }
}
