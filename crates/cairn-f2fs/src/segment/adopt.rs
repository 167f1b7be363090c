//! Blocks that roll-forward finds: an earlier mount allocated them after the last checkpoint.
//!
//! Recovery adopts the data blocks of the chain, keeps the chain's own node blocks from being
//! overwritten, and then moves all logs on ([`Segments::resume`]) before anything is placed: until
//! then the next block of a log may be one that is in use.

use super::place::Wait;
use super::{Owner, Segments};
use crate::corrupt::Corrupt;
use crate::error::Result;
use crate::format::summary::SummaryBlock;
use crate::format::{BlockAddr, Log, SegNo};

impl Segments {
    /// Marks a block as used by `owner`. `log` tells node blocks from data. A segment without valid
    /// blocks belongs to this log from now on.
    ///
    /// # Errors
    /// The block is outside the main area or in use already, its segment holds the other class of
    /// blocks, or its summary cannot be read.
    pub(crate) fn adopt(&self, addr: BlockAddr, log: Log, owner: Owner) -> Result<()> {
        self.ask_segment(self.locate(addr)?.0)?;
        self.take_in(addr, log, owner)
    }

    /// As [`Segments::adopt`], for a segment that is not doubted or is being asked.
    pub(super) fn take_in(&self, addr: BlockAddr, log: Log, owner: Owner) -> Result<()> {
        let (segno, block) = self.locate(addr)?;
        self.with_summaries(|state, loaded| {
            let table = &state.table;
            let bad = |what| Ok(Err(Corrupt::Sit { segno, what, value: block.into() }));
            if table.is_valid(segno, block) {
                return bad("roll-forward finds a block that is in use");
            }
            let empty = table.valid(segno) == 0;
            let current = state.logs.iter().position(|other| other.segno() == segno);
            if (!empty || current.is_some()) && table.log(segno).is_node() != log.is_node() {
                return bad(
                    "roll-forward finds data in a node segment, or a node in a data segment",
                );
            }
            if let Some(index) = current {
                state.logs[index].own(block, &[owner]);
            } else {
                let summary = match (state.closed.remove(&segno), loaded.take()) {
                    (Some(closed), _) => closed.summary,
                    (None, _) if empty => SummaryBlock::empty(log.is_node()),
                    (None, Some((read, summary))) if read == segno => summary,
                    _ => return Err(Wait::Summary(segno)),
                };
                let mut summary = SummaryBlock { is_node: log.is_node(), ..summary };
                summary.entries[usize::from(block)] = owner;
                state.queue_summary(segno, summary);
                if empty {
                    state.table.set_log(segno, log);
                }
            }
            if state.table.free.is_free(segno) {
                state.table.free.take(segno);
            }
            state.table.set_valid(segno, block, 1, self.clock.now());
            state.moved = true;
            Ok(Ok(()))
        })?
        .map_err(Into::into)
    }

    /// Protects an unused block from writes until the next checkpoint: it belongs to a chain that
    /// must survive until then. Does nothing outside the main area.
    pub(crate) fn protect(&self, addr: BlockAddr) {
        let Ok((segno, block)) = self.locate(addr) else { return };
        let mut state = self.state.lock();
        if !state.table.is_valid(segno, block) {
            state.table.block(segno, block);
        }
    }

    /// The log that a segment belongs to.
    ///
    /// # Panics
    /// There is no such segment.
    #[must_use]
    pub(crate) fn log_of(&self, segno: SegNo) -> Log {
        self.state.lock().table.log(segno)
    }
}
