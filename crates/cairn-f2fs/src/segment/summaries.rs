//! Owners of blocks: the summaries of the six current segments, those waiting to be written, and
//! the summary area.

use cairn_base::Pba;
use cairn_block::Bytes;

use super::{Owner, Segments};
use crate::error::Result;
use crate::format::summary::SummaryBlock;
use crate::format::{BlockAddr, SegNo};

/// Summaries that are read together.
const TOGETHER: u32 = 16;

/// The summary of a segment without a log, which is to be written to the summary area.
pub(crate) struct QueuedSummary {
    segno: SegNo,
    number: u64,
    /// Its address.
    pub(crate) at: Pba,
    /// The block.
    pub(crate) block: Bytes,
}

impl Segments {
    /// The owner of a block by its segment's summary. It has a meaning only if the block is in use,
    /// and must be checked against the owner even then.
    ///
    /// # Errors
    /// The address is outside the main area, or the summary cannot be read.
    pub(crate) fn owner_of(&self, addr: BlockAddr) -> Result<Owner> {
        let (segno, block) = self.locate(addr)?;
        Ok(self.owners(segno)?.entries[usize::from(block)])
    }

    /// The present summary of a segment.
    ///
    /// # Errors
    /// It cannot be read.
    ///
    /// # Panics
    /// There is no such segment.
    pub(crate) fn owners(&self, segno: SegNo) -> Result<SummaryBlock> {
        loop {
            let generation = {
                let state = self.state.lock();
                if let Some(log) = state.logs.iter().find(|log| log.segno() == segno) {
                    return Ok(log.summary.clone());
                }
                if let Some(closed) = state.closed.get(&segno) {
                    return Ok(closed.summary.clone());
                }
                state.summary_generation
            };
            let summary = self.read_summary(segno)?;
            if self.state.lock().summary_generation == generation {
                return Ok(summary);
            }
        }
    }

    /// Reads the summaries of a segment, and of those around it, that will be asked for soon.
    pub(crate) fn expect_owners(&self, segno: SegNo) {
        let first = segno.get() / TOGETHER * TOGETHER;
        let count = TOGETHER.min(self.layout.main_segments.saturating_sub(first));
        self.cache.prefetch(self.layout.summary_address(SegNo(first)), count.into());
    }

    /// The summary area's block of a segment.
    pub(super) fn read_summary(&self, segno: SegNo) -> Result<SummaryBlock> {
        let image = self.cache.get(self.layout.summary_address(segno))?.image();
        Ok(SummaryBlock::decode(&image)?)
    }

    /// The summaries of all segments that logs have left, to be written. They may be written at any
    /// time, because they contain the last checkpoint's entries, too. They stay queued until
    /// [`Segments::summaries_written`].
    #[must_use]
    pub(crate) fn queued_summaries(&self) -> Vec<QueuedSummary> {
        let state = self.state.lock();
        let queued = state.closed.iter().map(|(segno, closed)| QueuedSummary {
            segno: *segno,
            number: closed.number,
            at: self.layout.summary_address(*segno),
            block: closed.summary.encode().into(),
        });
        queued.collect()
    }

    /// These summaries are on the device.
    pub(crate) fn summaries_written(&self, written: Vec<QueuedSummary>) {
        self.stats.summaries_written.add(written.len() as u64);
        for QueuedSummary { segno, number, at, block } in written {
            // Until then a look-up finds the queued summary.
            self.cache.create(at).modify().copy_from_slice(&block);
            let mut state = self.state.lock();
            state.summary_generation += 1;
            if state.closed.get(&segno).is_some_and(|closed| closed.number == number) {
                state.closed.remove(&segno);
            }
        }
    }
}
