//! Owners of blocks: the summaries of the six current segments, those waiting to be written, and the summary area.

use super::{Owner, Segments};
use crate::blocks::Writes;
use crate::error::Result;
use crate::format::summary::SummaryBlock;
use crate::format::units::BLOCK_SIZE;
use crate::format::{BlockAddr, SegNo};

impl Segments {
    /// Who points to a block, as far as its segment's summary knows. Meaningful only if the block is in use, and to be
    /// checked against the owner even then.
    ///
    /// # Errors
    /// The address is outside the main area, or the summary cannot be read.
    pub fn owner_of(&self, addr: BlockAddr) -> Result<Owner> {
        let (segno, block) = self.locate(addr)?;
        Ok(self.owners(segno)?.entries[usize::from(block)])
    }

    /// The summary of a segment as it is now.
    ///
    /// # Errors
    /// It cannot be read.
    ///
    /// # Panics
    /// There is no such segment.
    pub fn owners(&self, segno: SegNo) -> Result<SummaryBlock> {
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

    /// The summary area's block of a segment.
    pub(super) fn read_summary(&self, segno: SegNo) -> Result<SummaryBlock> {
        let image = self.cache.get(self.layout.summary_address(segno))?.image();
        Ok(SummaryBlock::decode(&image)?)
    }

    /// Summaries of segments that logs have left and that are not in the summary area yet.
    #[must_use]
    pub fn closed_summaries(&self) -> usize {
        self.state.lock().closed.len()
    }

    /// Writes the summaries of all segments that logs have left. May be called at any time: the last checkpoint finds its
    /// entries in them, too.
    ///
    /// # Errors
    /// The device's; what was not written stays queued.
    pub fn write_summaries(&self) -> Result<()> {
        let queued: Vec<(SegNo, u64, Vec<u8>)> = {
            let state = self.state.lock();
            state.closed.iter().map(|(segno, closed)| (*segno, closed.number, closed.summary.encode())).collect()
        };
        let mut writes = Writes::new();
        for (segno, _, block) in &queued {
            debug_assert_eq!(block.len(), BLOCK_SIZE);
            writes.push(self.layout.summary_address(*segno), block.clone());
        }
        writes.write(&**self.cache.device())?;
        self.stats.summaries_written.add(queued.len() as u64);
        for (segno, number, block) in queued {
            // Whoever looks for it meanwhile finds the queued one.
            self.cache.create(self.layout.summary_address(segno)).modify().copy_from_slice(&block);
            let mut state = self.state.lock();
            state.summary_generation += 1;
            if state.closed.get(&segno).is_some_and(|closed| closed.number == number) {
                state.closed.remove(&segno);
            }
        }
        Ok(())
    }
}
