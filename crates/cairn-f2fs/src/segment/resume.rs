//! Chooses the positions of the logs after a power cut.
//!
//! A free section is best, because it has no old blocks. But a full volume that is written in order
//! may have fewer free sections than logs: the others were used since the last checkpoint for
//! blocks that roll-forward adopts. These sections are rarely full. A log then continues at the end
//! of one of them, after all valid and all written blocks.
//!
//! So no log needs more space than it had before the power cut.

use super::place::{Successor, Wait};
use super::{Segments, State};
use crate::error::{Error, Result};
use crate::format::log::AllocType;
use crate::format::summary::SummaryBlock;
use crate::format::units::BLOCKS_PER_SEGMENT;
use crate::format::{Log, SegNo, bits};

/// Sections that a checkpoint may take in addition to pending writes: for data, nodes and entries.
/// `NR_GC_CHECKPOINT_SECS`.
pub(crate) const CHECKPOINT_SECTIONS: u32 = 3;

/// The unwritten end of a section.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Tail {
    segno: SegNo,
    blkoff: u16,
    /// Blocks to the section's end.
    room: u32,
}

impl Segments {
    /// Moves every log before a recovered volume is written: the blocks after the last checkpoint's
    /// logs, where a roll-forward chain may be, must not be overwritten. `nodes` are then written
    /// again before any block becomes free.
    ///
    /// # Errors
    /// A log finds no room; a summary block cannot be read; or the device failed.
    pub(crate) fn resume(&self, nodes: usize) -> Result<()> {
        let keep = self.needed_for_recovery(nodes as u64);
        Log::ALL.into_iter().try_for_each(|log| self.resume_log(log, keep))?;
        self.leave_active_zones()
    }

    /// Free sections that recovery may take for a chain of this many nodes, which it writes again.
    #[must_use]
    pub(crate) fn needed_for_recovery(&self, nodes: u64) -> u32 {
        let section = u64::from(self.layout.section_capacity());
        u32::try_from(nodes.div_ceil(section))
            .unwrap_or(u32::MAX)
            .saturating_add(CHECKPOINT_SECTIONS)
    }

    /// Moves one log to a free section, or to the unwritten end of a used one if fewer than `keep`
    /// would stay free.
    ///
    /// # Errors
    /// As [`Segments::resume`].
    pub(super) fn resume_log(&self, log: Log, keep: u32) -> Result<()> {
        self.with_summaries(|state, loaded| {
            // The summary of a segment without blocks in use is lost when its log leaves it.
            let old = state.logs[log.index()].segno();
            if state.is_doubted(old) {
                return Err(Wait::Doubt(old));
            }
            let scarce = state.table.free.free_sections() <= keep;
            let tail = if scarce { self.tail(state, log) } else { None };
            let Some(tail) = tail else {
                let Some(fresh) = self.fresh_segment(state, log) else {
                    return Ok(Err(Error::NO_SPACE));
                };
                if state.is_doubted(fresh) {
                    return Err(Wait::Doubt(fresh));
                }
                self.advance(state, log, Successor::Fresh(fresh));
                return Ok(Ok(()));
            };
            if state.is_doubted(tail.segno) {
                return Err(Wait::Doubt(tail.segno));
            }
            if tail.segno == state.logs[log.index()].segno() {
                let position = &mut state.logs[log.index()].position;
                (position.blkoff, position.alloc) = (tail.blkoff, AllocType::Lfs);
                state.moved = true;
                return Ok(Ok(()));
            }
            let summary = match (state.closed.get(&tail.segno), loaded.take()) {
                (Some(closed), _) => closed.summary.clone(),
                (None, _) if state.table.valid(tail.segno) == 0 => {
                    SummaryBlock::empty(log.is_node())
                }
                (None, Some((segno, summary))) if segno == tail.segno => summary,
                (None, _) => return Err(Wait::Summary(tail.segno)),
            };
            self.advance(state, log, Successor::Tail(tail.segno, Box::new(summary), tail.blkoff));
            Ok(Ok(()))
        })?
    }

    /// The unwritten end of the log's section, else the longest one that another log of its class
    /// has left.
    fn tail(&self, state: &State, log: Log) -> Option<Tail> {
        let own = state.table.section_of(state.logs[log.index()].segno());
        let tails = |section: u32| self.tail_of(state, log, section);
        tails(own)
            .or_else(|| (0..self.layout.sections).filter_map(tails).max_by_key(|tail| tail.room))
    }

    fn tail_of(&self, state: &State, log: Log, section: u32) -> Option<Tail> {
        let table = &state.table;
        let segments = || Self::segments_of(&self.layout, section);
        let here = |other: Log| segments().any(|segno| segno == state.logs[other.index()].segno());
        if table.free.is_section_free(section)
            || Log::ALL.into_iter().any(|other| other != log && here(other))
        {
            return None;
        }
        let mut end = 0;
        for (index, segno) in (0..).zip(segments()) {
            let is_of_others =
                table.valid(segno) > 0 && table.log(segno).is_node() != log.is_node();
            if is_of_others || table.free.is_avoided(segno) {
                return None;
            }
            let last = bits::last_set(&table.held_map(segno));
            end = last.map_or(end, |last| index * BLOCKS_PER_SEGMENT + last as u32 + 1);
        }
        let first = self.layout.first_segment(section).get();
        if here(log) {
            let position = state.logs[log.index()].position;
            end = end.max(
                (position.segno.get() - first) * BLOCKS_PER_SEGMENT + u32::from(position.blkoff),
            );
        }
        let start = match self.written_in(section) {
            Some(written) => Some(written).filter(|written| *written >= end)?,
            None => end,
        };
        let room = self.layout.section_capacity().checked_sub(start).filter(|room| *room > 0)?;
        let segno = SegNo(first + start / BLOCKS_PER_SEGMENT);
        Some(Tail { segno, blkoff: (start % BLOCKS_PER_SEGMENT) as u16, room })
    }
}
