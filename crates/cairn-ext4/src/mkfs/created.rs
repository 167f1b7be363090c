//! [`CreatedVolume`]: what mkfs reports.

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
}

impl CreatedVolume {
    pub(super) fn new(plan: &Plan) -> Self {
        Self {
            uuid: Uuid::from_bytes(plan.layout.uuid),
            block_size: plan.layout.block_size,
            blocks: plan.layout.blocks_count,
            inodes: plan.layout.inodes_count,
            journal_blocks: plan.journal_blocks,
            features: plan.layout.features.names(),
        }
    }
}
