//! What blocks of metadata hold.

/// What a block holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    Superblock,
    /// Descriptors.
    Groups,
    BlockBitmap(u32),
    InodeBitmap(u32),
    /// The first inode in it.
    Inodes(u32),
    /// An extent block of an inode.
    Extents(u32),
    /// A block of a directory.
    Directory(u32),
    Attributes,
    /// A block of the orphan file.
    Orphans(u32),
    /// Block numbers of ext2.
    Pointers,
    /// A block of the log; its number there.
    Journal(u32),
}
