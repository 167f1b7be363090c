//! What is asked of a doubted SIT, and what was found ([`super::doubt`]).

use crate::error::Result;
use crate::format::{BlockAddr, Checkpoint, Layout, SegNo, Summary, bits};

/// Tells which blocks are in use.
pub(crate) trait Proof: Send + Sync {
    /// Those to which the named pointers lead.
    ///
    /// # Errors
    /// The device's.
    fn data(&self, owners: &[(BlockAddr, Summary)]) -> Result<Vec<(BlockAddr, Summary)>>;

    /// The nodes to which the NAT leads.
    ///
    /// # Errors
    /// The device's.
    fn nodes(&self, owners: &[(BlockAddr, Summary)]) -> Result<Vec<(BlockAddr, Summary)>>;
}

/// A block that the SIT called free, and that is in use by its summary.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Kept {
    pub(crate) addr: BlockAddr,
    pub(crate) is_node: bool,
    pub(crate) owner: Summary,
}

/// Segments whose free blocks were not asked for yet.
pub(super) struct Doubt {
    segments: Vec<u8>,
    kept: Vec<Kept>,
}

impl Doubt {
    /// Doubts all segments if the sums of the SIT, valid blocks and free segments, are not the
    /// checkpoint's.
    pub(super) fn of(
        (used, free): (u64, u32),
        checkpoint: &Checkpoint,
        layout: &Layout,
    ) -> Option<Self> {
        let agree = used == checkpoint.valid_block_count && free == checkpoint.free_segment_count;
        if agree {
            return None;
        }
        tracing::debug!(
            used,
            free,
            counted = checkpoint.valid_block_count,
            counted_free = checkpoint.free_segment_count,
            "the sums of the SIT are not the \
            checkpoint's: segments are compared with their summaries before they are written"
        );
        let bytes = usize::try_from(layout.main_segments.div_ceil(8)).unwrap_or(usize::MAX);
        Some(Self { segments: vec![0xff; bytes], kept: Vec::new() })
    }

    /// Is the segment not asked for yet?
    pub(super) fn is_left(&self, segno: SegNo) -> bool {
        bits::test(&self.segments, segno.index())
    }

    /// The segment was asked for.
    pub(super) fn settle(&mut self, segno: SegNo) {
        bits::clear(&mut self.segments, segno.index());
    }

    /// Notes a block that was found.
    pub(super) fn keep(&mut self, kept: Kept) {
        self.kept.push(kept);
    }

    /// What was found since the last call.
    pub(super) fn take_kept(&mut self) -> Vec<Kept> {
        std::mem::take(&mut self.kept)
    }
}
