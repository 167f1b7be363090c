//! What the ioctl asks for that shuts a volume down.

/// How an ioctl ends a volume: `F2FS_GOING_DOWN_*`, of which ext4 has the first three
/// (`EXT4_GOING_FLAGS_*`), by the same numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GoingDown {
    /// Everything is written, then nothing more.
    FullSync,
    /// The journal is committed, or a checkpoint written, then nothing more.
    MetaSync,
    /// Nothing more is written.
    NoSync,
    /// Dirty metadata is written without a checkpoint, then nothing more: what counts is what
    /// counted before.
    MetaFlush,
    /// A checkpoint asks for fsck. The volume continues.
    NeedFsck,
}
