//! The interface by inode number: [`FileSystem`] and what its calls take and give. [`walk`] has
//! paths, lists and trees above it.

pub use cairn_vfs::{
    AllocateMode, Attributes, Bytes, Caller, DirEntry, Error, FileExtent, FileKind, FileSystem,
    GoingDown, IoFlags, NewInode, OpenMode, RenameMode, ReservedFor, Result, Seek, SetAttributes,
    SetTime, Timestamp, VolumeStats, XattrMode, walk,
};
