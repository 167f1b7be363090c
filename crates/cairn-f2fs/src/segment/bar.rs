//! Sections that are to be emptied, because the volume will end before them or begin behind them.
//!
//! No log takes a block of a barred section, and none of its segments becomes free. The caller
//! moves the valid blocks out of it, as cleaning does.

use std::ops::Range;

use super::place::Search;
use super::{Segments, State};
use crate::corrupt::Corrupt;
use crate::error::{Error, Result};
use crate::format::{Log, SegNo};

impl Segments {
    /// Bars these sections, and moves the logs out of them.
    ///
    /// # Errors
    /// A log finds no room elsewhere, a summary cannot be read, or a segment is left alone, so
    /// that nothing can be moved out of it.
    pub(crate) fn bar(&self, sections: Range<u32>) -> Result<()> {
        let segments = || self.segments_in(&sections).map(SegNo);
        self.ask_all(segments())?;
        {
            let mut state = self.state.lock();
            if let Some(segno) = segments().find(|segno| state.table.free.is_avoided(*segno)) {
                let what = "a block to which a node or the NAT leads is called free";
                return Err(Corrupt::Sit { segno, what, value: 0 }.into());
            }
            assert!(state.barred.is_empty(), "sections are barred once");
            state.table.free.bar(self.segments_in(&sections));
            state.barred = sections;
        }
        Log::ALL.into_iter().try_for_each(|log| self.leave(log))
    }

    /// Moves a log out of the barred sections.
    fn leave(&self, log: Log) -> Result<()> {
        self.with_summaries(|state, loaded| {
            let section = state.table.section_of(state.logs[log.index()].segno());
            if !state.barred.contains(&section) {
                return Ok(Ok(()));
            }
            match self.successor(state, log, loaded) {
                Search::Found(successor) => {
                    self.advance(state, log, successor);
                    Ok(Ok(()))
                }
                Search::First(wait) => Err(wait),
                Search::Nothing => Ok(Err(Error::NO_SPACE)),
            }
        })?
    }

    /// The sections can be written again.
    pub(crate) fn unbar(&self) {
        let mut state = self.state.lock();
        let segments = self.segments_in(&state.barred);
        state.barred = 0..0;
        state.table.free.unbar();
        for segno in segments.map(SegNo) {
            if state.table.is_untouched(segno) {
                state.table.free.release(segno);
            }
        }
    }

    /// The journal of the SIT names none of the barred sections any more, which are empty.
    pub(crate) fn give_up_barred(&self) {
        let mut state = self.state.lock();
        let mut segments = self.segments_in(&state.barred).map(SegNo);
        assert!(
            segments.all(|segno| state.table.valid(segno) == 0 && !state.table.is_current(segno)),
            "what is given up is empty"
        );
        state.given_up = true;
    }

    /// Segments that would be free if they were not barred or avoided.
    pub(super) fn kept_from_free(&self, state: &State) -> u32 {
        let barred = self.segments_in(&state.barred);
        let avoided = state.table.free.avoided().filter(|segno| !barred.contains(&segno.get()));
        let free = barred
            .clone()
            .map(SegNo)
            .chain(avoided)
            .filter(|segno| state.table.valid(*segno) == 0 && !state.table.is_current(*segno));
        u32::try_from(free.count()).unwrap_or(u32::MAX)
    }

    fn segments_in(&self, sections: &Range<u32>) -> Range<u32> {
        let first = |section: u32| self.layout.first_segment(section).get();
        first(sections.start)..first(sections.end)
    }
}

impl State {
    /// True if the journal of the SIT may not name the segment.
    pub(super) fn is_given_up(&self, segno: SegNo) -> bool {
        self.given_up && self.barred.contains(&self.table.section_of(segno))
    }
}
