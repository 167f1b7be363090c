//! [`State`]: the part of an inode that its `state` lock guards.

use cairn_base::FileBlock;
use cairn_cache::status::ExtentStatus;

use crate::format::inode::Inode as Record;
use crate::format::layout::Layout;

/// Bytes of a sector in an inode's block count.
const SECTOR: u64 = 512;

/// The part of an inode that its `state` lock guards.
pub(crate) struct State {
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
    /// The inode is in the list of what sync has to write; see the module `unwritten`.
    pub listed: bool,
    /// The size that waits for the EOF block.
    pub pending: PendingDisksize,
    /// The record's extra fields cannot grow; see the module `extra_isize`.
    pub stays_small: bool,
    /// The record was freed; only the deletion may use the inode.
    pub deleted: bool,
}

impl State {
    /// Adds blocks to the inode's count, or subtracts them.
    pub(crate) fn account(&mut self, layout: &Layout, blocks: i64) {
        let sectors = blocks * i64::try_from(u64::from(layout.block_size) / SECTOR).unwrap_or(0);
        self.record.blocks_512 = self.record.blocks_512.saturating_add_signed(sectors);
    }

    /// Adds `change` to the link count of a directory, for its subdirectories.
    pub(crate) fn count_subdirectories(&mut self, change: i32) {
        for _ in 0..change.max(0) {
            self.record.add_link();
        }
        for _ in change.min(0)..0 {
            self.record.drop_link();
        }
    }
}

/// A size on disk that waits for the EOF block.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PendingDisksize {
    pub(super) eof_block: Option<FileBlock>,
    /// The size on disk after the EOF block is written.
    pub(super) size: u64,
}
