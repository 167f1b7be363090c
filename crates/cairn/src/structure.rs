//! Structures of a volume, by the names that `cairn dump` has for them.

use crate::error::Cause;

/// Which copies of superblock and checkpoint are used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Copies {
    /// The block of the superblock.
    pub superblock: Option<u64>,
    /// ext4: the group of the superblock.
    pub group: Option<u32>,
    /// F2FS: the checkpoint pack, 1 or 2.
    pub pack: Option<u8>,
}

/// A structure. Words for inodes are a number or a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Structure {
    /// The superblock.
    Superblock,
    /// ext4: a group descriptor, or all.
    Groups(Option<u32>),
    /// A block.
    Block(u64),
    /// An inode.
    Inode(Vec<u8>),
    /// The block map of an inode.
    Extents(Vec<u8>),
    /// ext4: the index of a directory.
    Htree(Vec<u8>),
    /// The extended attributes of an inode.
    Xattrs(Vec<u8>),
    /// F2FS: both checkpoint packs.
    Checkpoint,
    /// F2FS: the nodes of an inode.
    Nodes(Vec<u8>),
    /// F2FS: the address of a node.
    Nat(u32),
    /// F2FS: what is valid in a segment.
    Sit(u32),
    /// F2FS: the segments in use.
    Segments,
    /// F2FS: the owners of a segment's blocks.
    Summary(u32),
}

/// The error for a structure of another format.
pub(crate) fn only(what: &str, of: &str, has: &str) -> Cause {
    Cause::Option(format!("{what} is a structure of {of}: this volume has {has}"))
}
