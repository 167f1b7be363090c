//! Allocates blocks from the logs.

use super::log::{LogState, first_usable};
use super::{Closed, Mode, Owner, Segments, State};
use crate::error::{Error, Result};
use crate::format::checkpoint::LogPosition;
use crate::format::log::AllocType;
use crate::format::summary::SummaryBlock;
use crate::format::{BlockAddr, Log, SegNo};

/// How many segments are examined for the one with the most holes.
const VICTIM_SEARCH: usize = 256;

/// Where blocks were placed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Placed {
    /// The first.
    pub(crate) address: BlockAddr,
    /// Number of contiguous blocks, at least one.
    pub(crate) count: usize,
    /// Where the next block of the same log goes.
    pub(crate) next: BlockAddr,
}

/// Where a log continues.
pub(super) enum Successor {
    /// A free segment.
    Fresh(SegNo),
    /// A segment with holes, and its summary.
    Holes(SegNo, Box<SummaryBlock>),
    /// A segment without used blocks from a block on, its summary, and that block.
    Tail(SegNo, Box<SummaryBlock>, u16),
}

impl Successor {
    const fn segno(&self) -> SegNo {
        match self {
            Self::Fresh(segno) | Self::Holes(segno, _) | Self::Tail(segno, ..) => *segno,
        }
    }
}

/// What must be done first, without the lock.
pub(super) enum Wait {
    /// The summary of this segment must be read.
    Summary(SegNo),
    /// It must be asked which blocks of this segment are in use ([`super::doubt`]).
    Doubt(SegNo),
}

pub(super) enum Search {
    Found(Successor),
    First(Wait),
    /// Nothing is left.
    Nothing,
}

enum Step {
    Placed(Placed),
    First(Wait),
    Full,
}

impl Segments {
    /// Gives the next contiguous blocks of `log`'s segment to the first of `owners`. They are valid
    /// from now on, so the caller holds the operation lock and sets the pointers to them.
    ///
    /// # Errors
    /// No segment has room for this log; or a summary block cannot be read.
    ///
    /// # Panics
    /// There are no owners.
    pub(crate) fn place(&self, log: Log, owners: &[Owner]) -> Result<Placed> {
        assert!(!owners.is_empty(), "blocks are placed for owners");
        self.with_summaries(|state, loaded| match self.try_place(state, log, owners, loaded) {
            Step::Placed(placed) => Ok(Ok(placed)),
            Step::Full => Ok(Err(Error::NO_SPACE)),
            Step::First(wait) => Err(wait),
        })?
    }

    /// As [`Segments::place`], if the log's next block is `at`: for a caller that wants more blocks
    /// after the last ones.
    ///
    /// # Errors
    /// As [`Segments::place`].
    ///
    /// # Panics
    /// There are no owners.
    pub(crate) fn place_at(
        &self,
        log: Log,
        owners: &[Owner],
        at: BlockAddr,
    ) -> Result<Option<Placed>> {
        assert!(!owners.is_empty(), "blocks are placed for owners");
        self.with_summaries(|state, loaded| {
            if state.logs[log.index()].next(&self.layout) != at {
                return Ok(Ok(None));
            }
            match self.try_place(state, log, owners, loaded) {
                Step::Placed(placed) => Ok(Ok(Some(placed))),
                Step::Full => Ok(Ok(None)),
                Step::First(wait) => Err(wait),
            }
        })?
    }

    /// Calls `step` with the lock held until it returns a result. What it asks for is done without
    /// the lock; a summary that was read is passed to the next call.
    pub(super) fn with_summaries<T>(
        &self,
        mut step: impl FnMut(&mut State, &mut Option<(SegNo, SummaryBlock)>) -> Result<T, Wait>,
    ) -> Result<T> {
        let mut loaded = None;
        loop {
            let outcome = step(&mut self.state.lock(), &mut loaded);
            match outcome {
                Ok(value) => return Ok(value),
                Err(Wait::Summary(segno)) => loaded = Some((segno, self.read_summary(segno)?)),
                Err(Wait::Doubt(segno)) => self.ask(segno)?,
            }
        }
    }

    fn try_place(
        &self,
        state: &mut State,
        log: Log,
        owners: &[Owner],
        loaded: &mut Option<(SegNo, SummaryBlock)>,
    ) -> Step {
        let mut run = state.logs[log.index()].run(&state.table, owners.len());
        assert!(run.count > 0, "the {log:?} log stands at a block that may not be written");
        let mut successor = None;
        if run.after.is_none() {
            match self.successor(state, log, loaded) {
                Search::Found(found) => successor = Some(found),
                Search::First(wait) => return Step::First(wait),
                Search::Nothing if run.count == 1 => return Step::Full,
                Search::Nothing => {
                    // The last block stays free: a log always has a next one.
                    run.count -= 1;
                    run.after = Some(run.start + run.count);
                }
            }
        }
        let count = usize::from(run.count);
        let current = &mut state.logs[log.index()];
        let segno = current.segno();
        state.table.set_valid(segno, run.start, run.count, self.clock.now());
        current.own(run.start, &owners[..count]);
        match (run.after, successor) {
            (Some(after), _) => current.position.blkoff = after,
            (None, Some(successor)) => self.advance(state, log, successor),
            (None, None) => unreachable!("a full segment has a successor"),
        }
        state.moved = true;
        self.stats.placed[log.index()].add(count as u64);
        let next = state.logs[log.index()].next(&self.layout);
        Step::Placed(Placed { address: self.layout.address(segno, run.start), count, next })
    }

    /// Where a log continues when its segment is full.
    pub(super) fn successor(
        &self,
        state: &State,
        log: Log,
        loaded: &mut Option<(SegNo, SummaryBlock)>,
    ) -> Search {
        match self.find_successor(state, log, loaded) {
            Search::Found(found) if state.is_doubted(found.segno()) => {
                Search::First(Wait::Doubt(found.segno()))
            }
            search => search,
        }
    }

    fn find_successor(
        &self,
        state: &State,
        log: Log,
        loaded: &mut Option<(SegNo, SummaryBlock)>,
    ) -> Search {
        let current = &state.logs[log.index()];
        let free = &state.table.free;
        if let (AllocType::Lfs, Some(next)) =
            (current.position.alloc, free.next_in_section(current.segno()))
        {
            return Search::Found(Successor::Fresh(next));
        }
        let scarce = self.mode == Mode::Adaptive && free.free_sections() <= state.reuse_below;
        if scarce
            && let found @ (Search::Found(_) | Search::First(_)) = find_holes(state, log, loaded)
        {
            return found;
        }
        if let Some(segno) = self.fresh_segment(state, log) {
            return Search::Found(Successor::Fresh(segno));
        }
        match self.mode {
            Mode::Adaptive => find_holes(state, log, loaded),
            Mode::Lfs => Search::Nothing,
        }
    }

    pub(super) fn fresh_segment(&self, state: &State, log: Log) -> Option<SegNo> {
        let from_start = self.reuse || matches!(log, Log::HotData | Log::HotNode);
        let from = if from_start { SegNo(0) } else { state.logs[log.index()].segno() };
        let free = &state.table.free;
        // Single segments of sections in use are taken only if nothing else is left, and if
        // sections need not be written in order.
        let last_resort =
            || (self.mode == Mode::Adaptive).then(|| free.any_segment(from)).flatten();
        free.free_section(from).or_else(last_resort)
    }

    /// Moves a log to its next segment, and queues the summary of the old one.
    pub(super) fn advance(&self, state: &mut State, log: Log, successor: Successor) {
        let (segno, summary, alloc, from) = match successor {
            Successor::Fresh(segno) => {
                self.enter_zone(segno);
                (segno, SummaryBlock::empty(log.is_node()), AllocType::Lfs, None)
            }
            Successor::Holes(segno, summary) => (segno, *summary, AllocType::Ssr, None),
            Successor::Tail(segno, summary, from) => (segno, *summary, AllocType::Lfs, Some(from)),
        };
        match alloc {
            AllocType::Lfs => self.stats.segments_lfs.add(1),
            AllocType::Ssr => {
                self.stats.segments_ssr.add(1);
                state.victim_cursor[log.index()] = segno;
            }
        }
        state.closed.remove(&segno);
        state.table.enter(log, segno);
        let usable =
            || first_usable(&state.table.blocked_map(segno)).expect("a successor has room");
        let blkoff = from.unwrap_or_else(usable);
        let summary = SummaryBlock { is_node: log.is_node(), ..summary };
        let fresh = LogState { position: LogPosition { segno, blkoff, alloc }, summary };
        let old = std::mem::replace(&mut state.logs[log.index()], fresh);
        state.close(old);
        state.moved = true;
    }
}

impl State {
    /// Does no log take holes of the segment?
    fn is_closed_to_logs(&self, segno: SegNo) -> bool {
        self.is_out(self.table.section_of(segno)) || self.table.free.is_avoided(segno)
    }

    /// True if the section is being cleaned or barred.
    pub(super) fn is_out(&self, section: u32) -> bool {
        self.cleaning.contains(&section) || self.barred.contains(&section)
    }

    fn close(&mut self, log: LogState) {
        // The summary of an empty segment has no meaning.
        if self.table.valid(log.segno()) > 0 {
            self.queue_summary(log.segno(), log.summary);
        }
    }

    pub(super) fn queue_summary(&mut self, segno: SegNo, mut summary: SummaryBlock) {
        summary.journal.fill(0);
        self.closed_number += 1;
        self.closed.insert(segno, Closed { summary, number: self.closed_number });
    }
}

/// The segment with the most room among some segments that this log, or another of its class, has
/// filled.
fn find_holes(state: &State, log: Log, loaded: &mut Option<(SegNo, SummaryBlock)>) -> Search {
    let class = if log.is_node() { Log::NODE } else { Log::DATA };
    let others = class.into_iter().filter(|other| *other != log);
    let best = std::iter::once(log).chain(others).find_map(|kind| best_in(state, log, kind));
    // A summary that was read for an earlier choice is used if its segment is still a candidate.
    if let Some((segno, summary)) = loaded.take_if(|(segno, _)| is_candidate(state, *segno, class))
    {
        return Search::Found(Successor::Holes(segno, Box::new(summary)));
    }
    let Some(segno) = best else { return Search::Nothing };
    match state.closed.get(&segno) {
        Some(closed) => Search::Found(Successor::Holes(segno, Box::new(closed.summary.clone()))),
        None => Search::First(Wait::Summary(segno)),
    }
}

fn best_in(state: &State, log: Log, kind: Log) -> Option<SegNo> {
    let partial = state.table.partial(kind);
    let cursor = state.victim_cursor[log.index()];
    let round = partial.range(cursor..).chain(partial.range(..cursor));
    let round = round.filter(|segno| !state.is_closed_to_logs(**segno)).take(VICTIM_SEARCH);
    let best = round
        .map(|segno| (state.table.usable(*segno), *segno))
        .max_by_key(|(usable, _)| *usable)?;
    (best.0 > 0).then_some(best.1)
}

fn is_candidate(state: &State, segno: SegNo, class: [Log; 3]) -> bool {
    let table = &state.table;
    table.partial(table.log(segno)).contains(&segno)
        && class.contains(&table.log(segno))
        && table.usable(segno) > 0
        && !state.closed.contains_key(&segno)
        && !state.is_closed_to_logs(segno)
}
