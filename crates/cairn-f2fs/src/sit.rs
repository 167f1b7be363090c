//! The SIT of a volume that is only read: which blocks its checkpoint calls free.
//!
//! A volume that is written has [`crate::segment`].

#![cfg_attr(
    not(test),
    deny(
        clippy::indexing_slicing,
        clippy::as_conversions,
        clippy::arithmetic_side_effects,
        clippy::unwrap_used,
        clippy::expect_used
    )
)]

use std::collections::HashMap;
use std::sync::Arc;

use cairn_cache::block::BufferCache;

use crate::format::layout::Layout;
use crate::format::summary::SitJournal;
use crate::format::units::{BlockAddr, SegNo};
use crate::format::{Checkpoint, SitEntry, sit};

/// Reads entries of the SIT.
pub(crate) struct SitTable {
    layout: Arc<Layout>,
    buffers: Arc<BufferCache>,
    checkpoint: Checkpoint,
    journal: HashMap<SegNo, SitEntry>,
}

impl SitTable {
    /// The SIT of a checkpoint.
    pub(crate) fn new(
        layout: Arc<Layout>,
        buffers: Arc<BufferCache>,
        checkpoint: &Checkpoint,
        journal: &SitJournal,
    ) -> Self {
        let journal = journal.0.iter().cloned().collect();
        Self { layout, buffers, checkpoint: checkpoint.clone(), journal }
    }

    /// Is the block of the main area free? An entry that cannot be read, or that contradicts
    /// itself, says nothing.
    pub(crate) fn calls_free(&self, addr: BlockAddr) -> bool {
        let Some((segno, offset)) = self.layout.segment_of(addr) else { return false };
        if let Some(entry) = self.journal.get(&segno) {
            return !entry.is_valid(offset);
        }
        let (block, index) = Layout::sit_place(segno);
        let at = self.layout.sit_address(block, self.checkpoint.sit_side(block));
        let Ok(buffer) = self.buffers.get(at) else { return false };
        sit::entry(&buffer.image(), index, segno).is_ok_and(|entry| !entry.is_valid(offset))
    }
}
