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

    /// Is the block of the main area in use? An entry that cannot be read, or that contradicts
    /// itself, does not say.
    pub(crate) fn is_used(&self, addr: BlockAddr) -> Option<bool> {
        let (segno, offset) = self.layout.segment_of(addr)?;
        if let Some(entry) = self.journal.get(&segno) {
            return Some(entry.is_valid(offset));
        }
        let (block, index) = Layout::sit_place(segno);
        let at = self.layout.sit_address(block, self.checkpoint.sit_side(block));
        let buffer = self.buffers.get(at).ok()?;
        let entry = sit::entry(&buffer.image(), index, segno).ok()?;
        Some(entry.is_valid(offset))
    }
}
