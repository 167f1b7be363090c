//! Owners of blocks: the summaries of the six current segments, those waiting to be written, and
//! the summary area.

use cairn_base::Pba;
use cairn_block::Bytes;
use cairn_cache::block::Image;

use super::owners::SegmentOwners;
use super::{Owner, Segments};
use crate::error::Result;
use crate::format::summary::{SummaryBlock, is_of_nodes, stored_entry};
use crate::format::{BlockAddr, SegNo};

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
    /// What the summary of its segment says of a block: whether it is a node, and whose. It has a
    /// meaning only if the block is in use, and must be checked against the owner even then.
    ///
    /// # Errors
    /// The address is outside the main area, or the summary cannot be read.
    pub(crate) fn owner_of(&self, addr: BlockAddr) -> Result<(bool, Owner)> {
        let (segno, block) = self.locate(addr)?;
        let known = |summary: &SummaryBlock| {
            let entry = summary.entries.get(usize::from(block)).copied();
            (summary.is_node, entry.unwrap_or_default())
        };
        let stored = |image: Image| {
            let entry = stored_entry(&image, block);
            Ok((is_of_nodes(&image)?, entry.unwrap_or_default()))
        };
        self.look_up(segno, known, stored)
    }

    /// The present summary of a segment.
    ///
    /// # Errors
    /// It cannot be read.
    ///
    /// # Panics
    /// There is no such segment.
    pub(crate) fn owners(&self, segno: SegNo) -> Result<SegmentOwners> {
        self.look_up(segno, SegmentOwners::of, SegmentOwners::stored)
    }

    /// Asks the summary of a segment: one in memory, or the block in the summary area.
    fn look_up<T>(
        &self,
        segno: SegNo,
        known: impl Fn(&SummaryBlock) -> T,
        stored: impl Fn(Image) -> Result<T>,
    ) -> Result<T> {
        loop {
            let generation = {
                let state = self.state.lock();
                if let Some(log) = state.logs.iter().find(|log| log.segno() == segno) {
                    return Ok(known(&log.summary));
                }
                if let Some(closed) = state.closed.get(&segno) {
                    return Ok(known(&closed.summary));
                }
                state.summary_generation
            };
            let image = self.cache.get(self.layout.summary_address(segno))?.image();
            if self.state.lock().summary_generation == generation {
                return stored(image);
            }
        }
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
