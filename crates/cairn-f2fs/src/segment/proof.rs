//! What is asked of a doubted SIT, and what was found ([`super::doubt`]).

use crate::error::Result;
use crate::format::{BlockAddr, Checkpoint, Layout, SegNo, Summary, bits};

/// Which of a segment's free blocks are asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Coverage {
    /// All of those that few reads of the device can tell: those of a few blocks of the NAT and of
    /// a few nodes.
    Sample,
    /// All.
    All,
}

/// Tells which blocks are in use.
pub(crate) trait Proof: Send + Sync {
    /// Those to which the named pointers lead, each with the address of the node that has the
    /// pointer.
    ///
    /// # Errors
    /// The device's.
    fn data(
        &self,
        owners: Named,
        coverage: Coverage,
    ) -> Result<Vec<(BlockAddr, Summary, BlockAddr)>>;

    /// The nodes to which the NAT leads.
    ///
    /// # Errors
    /// The device's.
    fn nodes(&self, owners: Named, coverage: Coverage) -> Result<Named>;
}

/// Blocks with their owners, as the summary of their segment names them.
pub(crate) type Named = Vec<(BlockAddr, Summary)>;

/// A block that the SIT calls free, and to which something leads.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Kept {
    pub(crate) addr: BlockAddr,
    pub(crate) is_node: bool,
    pub(crate) owner: Summary,
}

/// A block that the SIT calls free, and what leads to it.
pub(super) struct Found {
    pub(super) kept: Kept,
    /// The node with the pointer that leads to data.
    pub(super) holder: Option<BlockAddr>,
}

/// Segments whose free blocks were not asked for yet.
pub(super) struct Doubt {
    segments: Vec<u8>,
    coverage: Coverage,
    kept: Vec<Kept>,
}

impl Doubt {
    /// All blocks of all segments are doubted if the sums of the SIT, valid blocks and free
    /// segments, are not the checkpoint's; else a sample of them.
    pub(super) fn of((used, free): (u64, u32), checkpoint: &Checkpoint, layout: &Layout) -> Self {
        let agree = used == checkpoint.valid_block_count && free == checkpoint.free_segment_count;
        if !agree {
            tracing::debug!(
                used,
                free,
                counted = checkpoint.valid_block_count,
                counted_free = checkpoint.free_segment_count,
                "the sums of the SIT are not the checkpoint's"
            );
        }
        let bytes = usize::try_from(layout.main_segments.div_ceil(8)).unwrap_or(usize::MAX);
        let coverage = if agree { Coverage::Sample } else { Coverage::All };
        Self { segments: vec![0xff; bytes], coverage, kept: Vec::new() }
    }

    /// Which free blocks of a segment are asked for.
    pub(super) const fn coverage(&self) -> Coverage {
        self.coverage
    }

    /// The SIT is wrong: all blocks of all segments are doubted, those of earlier samples again.
    pub(super) fn deepen(&mut self) {
        self.segments.fill(0xff);
        self.coverage = Coverage::All;
    }

    /// Is the segment not asked for yet?
    pub(super) fn is_left(&self, segno: SegNo) -> bool {
        bits::test(&self.segments, segno.index())
    }

    /// The segment was asked for.
    pub(super) fn settle(&mut self, segno: SegNo) {
        bits::clear(&mut self.segments, segno.index());
    }

    /// The segment is asked again.
    pub(super) fn reopen(&mut self, segno: SegNo) {
        bits::set(&mut self.segments, segno.index());
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
