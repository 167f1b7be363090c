//! What is known of an inode under its `state` lock.

use cairn_base::FileBlock;
use cairn_cache::status::ExtentStatus;

use crate::format::inode::Inode as Record;

/// What changes under the `state` lock.
pub struct State {
    /// The record as it is, or will be, in the inode table.
    pub record: Record,
    /// Size in bytes as readers see it.
    pub size: u64,
    /// Blocks reserved for delayed data (`i_reserved_data_blocks`).
    pub delayed: u64,
    /// What is known of the block map, with all delayed ranges.
    pub status: ExtentStatus,
    /// `record` has changed since it was stored.
    pub dirty: bool,
    /// What keeps the size on disk back.
    pub pending: PendingDisksize,
    /// The fields of its record cannot grow: see the module `extra_isize`.
    pub stays_small: bool,
    /// The record has been freed; only teardown may touch the inode.
    pub deleted: bool,
}

/// What keeps the size on disk back.
#[derive(Clone, Copy, Debug, Default)]
pub struct PendingDisksize {
    pub(super) tail: Option<FileBlock>,
    /// Size to take on once the tail is written.
    pub(super) wanted: u64,
}
