//! Nids of the valid nodes, as the summaries name them.

use super::{SegNo, Segments};
use crate::blocks;
use crate::error::Result;
use crate::format::summary::{is_of_nodes, stored_entry};
use crate::format::{BlockAddr, Nid, bits};

/// Summaries that are read at once.
const BATCH: usize = 256;
/// Segments with nodes that are asked for at most: 256 MiB of summaries.
const MOST_SEGMENTS: usize = 1 << 16;

impl Segments {
    /// Calls `found` with the nids of the valid nodes. Each takes 8 bytes of a summary, which is
    /// read from the device if it is not in memory. A summary that is damaged or cannot be read
    /// names none. Nothing is read, and none is named, if more than [`MOST_SEGMENTS`] segments have
    /// nodes.
    pub(crate) fn nids_of_nodes(&self, mut found: impl FnMut(Nid)) {
        let with_nodes = self.segments_with_nodes();
        if with_nodes.len() > MOST_SEGMENTS {
            tracing::debug!(segments = with_nodes.len(), "too many nodes to learn their numbers");
            return;
        }
        for batch in with_nodes.chunks(BATCH) {
            let stored: Vec<SegNo> = batch
                .iter()
                .copied()
                .filter(|segno| !self.names_known(*segno, &mut found))
                .collect();
            if let Err(error) = self.names_stored(&stored, &mut found) {
                tracing::warn!(%error, "summaries of nodes cannot be read");
            }
        }
    }

    fn segments_with_nodes(&self) -> Vec<SegNo> {
        let state = self.state.lock();
        let has_nodes =
            |segno: &SegNo| state.table.valid(*segno) > 0 && state.table.log(*segno).is_node();
        (0..self.layout.main_segments).map(SegNo).filter(has_nodes).collect()
    }

    /// False if the summary of the segment is not in memory.
    fn names_known(&self, segno: SegNo, found: &mut impl FnMut(Nid)) -> bool {
        let state = self.state.lock();
        let current = state.logs.iter().find(|log| log.segno() == segno).map(|log| &log.summary);
        let closed = || state.closed.get(&segno).map(|closed| &closed.summary);
        let Some(summary) = current.or_else(closed) else { return false };
        let valid = state.table.valid_map(segno);
        let of_valid = (0..).zip(&summary.entries).filter(|(block, _)| bits::test(&valid, *block));
        of_valid.for_each(|(_, owner)| found(owner.nid));
        true
    }

    fn names_stored(&self, segments: &[SegNo], found: &mut impl FnMut(Nid)) -> Result<()> {
        let addrs = segments.iter().map(|segno| self.layout.summary_address(*segno).get());
        let addrs: Vec<BlockAddr> = addrs.map(|addr| BlockAddr(addr as u32)).collect();
        let summaries = match blocks::read_many(&**self.cache.device(), &addrs) {
            Ok(summaries) => summaries,
            // One bad sector hides one summary.
            Err(error) if segments.len() == 1 => return Err(error),
            Err(_) => {
                let (first, second) = segments.split_at(segments.len() / 2);
                let first = self.names_stored(first, found);
                return first.and(self.names_stored(second, found));
            }
        };
        for (segno, block) in segments.iter().zip(summaries.iter()) {
            if !is_of_nodes(block).unwrap_or(false) {
                continue;
            }
            let valid = self.state.lock().table.valid_map(*segno);
            let of_valid = (0..self.layout.usable_blocks(*segno))
                .filter(|number| bits::test(&valid, usize::from(*number)));
            of_valid
                .filter_map(|number| stored_entry(block, number))
                .for_each(|owner| found(owner.nid));
        }
        Ok(())
    }
}
