//! [`State`]: the part of an inode that its `state` lock guards.

use cairn_base::FileBlock;
use cairn_cache::status::ExtentStatus;

use crate::format::inode::Inode as Record;

/// The part of an inode that its `state` lock guards.
pub struct State {
    /// The record, as it is or will be in the inode table.
    pub record: Record,
    /// Size in bytes, as readers see it.
    pub size: u64,
    /// Blocks reserved for delayed data (`i_reserved_data_blocks`).
    pub delayed: u64,
    /// What is known of the block map, with all delayed ranges.
    pub status: ExtentStatus,
    /// `record` has changed since it was stored.
    pub dirty: bool,
    /// The size that waits for the tail.
    pub pending: PendingDisksize,
    /// The record's extra fields cannot grow; see the module `extra_isize`.
    pub stays_small: bool,
    /// The record was freed; only the deletion may use the inode.
    pub deleted: bool,
}

/// A size on disk that waits for the tail.
#[derive(Clone, Copy, Debug, Default)]
pub struct PendingDisksize {
    pub(super) tail: Option<FileBlock>,
    /// The size on disk after the tail is written.
    pub(super) wanted: u64,
}
