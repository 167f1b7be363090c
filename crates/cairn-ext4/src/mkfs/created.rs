//! [`CreatedVolume`]: what mkfs reports.

use std::ops::Range;

use uuid::Uuid;

use super::plan::Plan;

/// What mkfs created.
#[derive(Clone, Debug)]
pub struct CreatedVolume {
    /// UUID.
    pub uuid: Uuid,
    /// Bytes of a block.
    pub block_size: u32,
    /// Blocks.
    pub blocks: u64,
    /// Inodes.
    pub inodes: u32,
    /// Blocks of the journal; 0 if there is none.
    pub journal_blocks: u64,
    /// Feature names.
    pub features: Vec<String>,
    /// Runs of blocks that nothing uses. What they hold does not matter.
    pub free: Vec<Range<u64>>,
}

impl CreatedVolume {
    pub(super) fn new(plan: &Plan) -> Self {
        let blocks = plan.layout.blocks_count;
        let free = plan.used.gaps(plan.layout.first_data_block, blocks);
        Self {
            uuid: Uuid::from_bytes(plan.layout.uuid),
            block_size: plan.layout.block_size,
            blocks,
            inodes: plan.layout.inodes_count,
            journal_blocks: plan.journal_blocks,
            features: plan.layout.features.names(),
            free: free.into_iter().map(|(start, end)| start..end).collect(),
        }
    }
}
