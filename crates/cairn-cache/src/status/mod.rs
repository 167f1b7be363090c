//! The extent status tree of one inode, for every format: what is known of its block map without
//! reading the device.
//!
//! Ranges are disjoint and sorted, and adjacent ranges that continue each other are merged.
//! `Delayed` ranges (space is reserved, no address is chosen) exist only here, so they are never
//! dropped to save memory. All other ranges can be read again. A block in no range is *unknown*,
//! which is not the same as a hole.
//!
//! Locking: the owner's lock of rank Mapping.

use std::collections::BTreeMap;

use crate::mapper::{Mapping, Place, Run};
use cairn_base::{FileBlock, Pba};
use smallvec::SmallVec;

/// Number of ranges of an inode at which those that can be read again are dropped.
const MOST_RANGES: usize = 4096;

/// Where blocks are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// No block is allocated.
    Hole,
    /// Space is reserved and no address is chosen.
    Delayed,
    /// Allocated from this block on and never written.
    Unwritten(Pba),
    /// Data from this block on.
    Mapped(Pba),
}

impl State {
    /// The state of the block that is `blocks` further on.
    #[must_use]
    fn advanced(self, blocks: u64) -> Self {
        match self {
            Self::Unwritten(pba) => Self::Unwritten(Pba(pba.get() + blocks)),
            Self::Mapped(pba) => Self::Mapped(Pba(pba.get() + blocks)),
            other => other,
        }
    }
}

/// Consecutive blocks of a file in one state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// First block.
    pub start: FileBlock,
    /// Number of blocks.
    pub len: u64,
    /// Where they are.
    pub state: State,
}

impl Extent {
    /// The block after the last.
    #[must_use]
    pub const fn end(&self) -> u64 {
        self.start.get().saturating_add(self.len)
    }

    /// The part from `block` on, as the cache's mapping.
    ///
    /// # Panics
    /// If the extent does not hold `block`.
    #[must_use]
    pub fn mapping_from(&self, block: FileBlock) -> Mapping {
        let rest = self.clip(block.get(), u64::MAX).expect("the extent holds the block");
        let place = match rest.state {
            State::Hole => Place::Hole,
            State::Delayed => Place::Delayed,
            State::Unwritten(pba) => Place::Unwritten(pba),
            State::Mapped(pba) => Place::Mapped(pba),
        };
        Mapping { run: Run { start: rest.start, len: rest.len }, place }
    }

    /// The part inside `start..end`, if any.
    #[must_use]
    pub fn clip(&self, start: u64, end: u64) -> Option<Self> {
        let from = self.start.get().max(start);
        let to = self.end().min(end);
        (from < to).then(|| Self {
            start: FileBlock(from),
            len: to - from,
            state: self.state.advanced(from - self.start.get()),
        })
    }

    fn continues_with(&self, next: &Self) -> bool {
        self.end() == next.start.get() && self.state.advanced(self.len) == next.state
    }
}

/// The ranges that a change concerns.
type Few = SmallVec<[Extent; 4]>;

/// The extent status tree of one inode.
#[derive(Clone, Debug, Default)]
pub struct ExtentStatus {
    ranges: BTreeMap<u64, (u64, State)>,
    delayed: u64,
}

impl ExtentStatus {
    /// A tree in which every block is unknown.
    #[must_use]
    pub const fn new() -> Self {
        Self { ranges: BTreeMap::new(), delayed: 0 }
    }

    /// The whole range that holds `block`; `None` if the block is unknown.
    #[must_use]
    pub fn find(&self, block: FileBlock) -> Option<Extent> {
        let (start, (len, state)) = self.ranges.range(..=block.get()).next_back()?;
        let found = Extent { start: FileBlock(*start), len: *len, state: *state };
        (block.get() < found.end()).then_some(found)
    }

    /// The first known range that ends behind `block`.
    #[must_use]
    pub fn next(&self, block: FileBlock) -> Option<Extent> {
        self.find(block).or_else(|| self.overlapping(block.get(), u64::MAX).next())
    }

    /// Number of delayed blocks.
    #[must_use]
    pub const fn delayed(&self) -> u64 {
        self.delayed
    }

    /// Number of delayed blocks of the run.
    #[cfg(test)]
    fn delayed_count(&self, run: Run) -> u64 {
        let (start, end) = bounds(run);
        self.overlapping(start, end)
            .filter(|range| range.state == State::Delayed)
            .filter_map(|range| range.clip(start, end))
            .map(|range| range.len)
            .sum()
    }

    /// The delayed ranges, in order.
    pub fn delayed_ranges(&self) -> impl Iterator<Item = Run> + '_ {
        let delayed = self.ranges.iter().filter(|(_, (_, state))| *state == State::Delayed);
        delayed.map(|(start, (len, _))| Run { start: FileBlock(*start), len: *len })
    }

    /// Adds a mapping that was read from the device. Delayed blocks stay delayed: the device has no
    /// record of them.
    pub fn remember(&mut self, known: Extent) {
        if self.ranges.len() >= MOST_RANGES {
            self.shrink();
        }
        let delayed: Few = self
            .overlapping(known.start.get(), known.end())
            .filter(|range| range.state == State::Delayed)
            .collect();
        let mut from = known.start.get();
        for range in delayed {
            if let Some(piece) = known.clip(from, range.start.get()) {
                self.set(piece);
            }
            from = from.max(range.end());
        }
        if let Some(piece) = known.clip(from, u64::MAX) {
            self.set(piece);
        }
    }

    /// Makes the run delayed: space for it is reserved.
    pub fn delay(&mut self, run: Run) {
        self.set(Extent { start: run.start, len: run.len, state: State::Delayed });
    }

    /// Makes the delayed blocks of the run unknown and returns their number.
    pub fn undelay(&mut self, run: Run) -> u64 {
        let (start, end) = bounds(run);
        let delayed: Few = self
            .overlapping(start, end)
            .filter(|range| range.state == State::Delayed)
            .filter_map(|range| range.clip(start, end))
            .collect();
        for range in &delayed {
            self.cut(range.start.get(), range.end());
        }
        delayed.iter().map(|range| range.len).sum()
    }

    /// Makes the run mapped, from `pba` on.
    pub fn set_mapped(&mut self, run: Run, pba: Pba) {
        self.set(Extent { start: run.start, len: run.len, state: State::Mapped(pba) });
    }

    /// Makes the run preallocated, from `pba` on.
    pub fn set_unwritten(&mut self, run: Run, pba: Pba) {
        self.set(Extent { start: run.start, len: run.len, state: State::Unwritten(pba) });
    }

    /// Makes the run unknown, because its mapping has changed. Delayed blocks stay.
    pub fn forget(&mut self, run: Run) {
        let (start, end) = bounds(run);
        let known: Few = self
            .overlapping(start, end)
            .filter(|range| range.state != State::Delayed)
            .filter_map(|range| range.clip(start, end))
            .collect();
        for range in known {
            self.cut(range.start.get(), range.end());
        }
    }

    /// Drops everything that can be read again.
    pub fn shrink(&mut self) {
        self.ranges.retain(|_, (_, state)| *state == State::Delayed);
    }

    /// Number of ranges held.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.ranges.len()
    }

    /// Known ranges that share a block with `start..end`, whole.
    fn overlapping(&self, start: u64, end: u64) -> impl Iterator<Item = Extent> + '_ {
        let first = self.ranges.range(..=start).next_back().map_or(start, |(start, _)| *start);
        self.ranges
            .range(first..end.max(first))
            .map(|(start, (len, state))| Extent {
                start: FileBlock(*start),
                len: *len,
                state: *state,
            })
            .filter(move |range| range.end() > start)
    }

    /// Sets the state of a range. It replaces any earlier state.
    fn set(&mut self, mut new: Extent) {
        assert!(new.len > 0, "a range has blocks");
        self.cut(new.start.get(), new.end());
        if let Some(before) =
            self.neighbour_before(new.start.get()).filter(|before| before.continues_with(&new))
        {
            self.take(before);
            new = Extent { len: before.len + new.len, ..before };
        }
        if let Some(after) =
            self.find(FileBlock(new.end())).filter(|after| new.continues_with(after))
        {
            self.take(after);
            new.len += after.len;
        }
        self.put(new);
    }

    fn neighbour_before(&self, block: u64) -> Option<Extent> {
        self.find(FileBlock(block.checked_sub(1)?))
    }

    /// Makes `start..end` unknown.
    fn cut(&mut self, start: u64, end: u64) {
        let ranges: Few = self.overlapping(start, end).collect();
        for range in ranges {
            self.take(range);
            for rest in [range.clip(0, start), range.clip(end, u64::MAX)].into_iter().flatten() {
                self.put(rest);
            }
        }
    }

    fn put(&mut self, range: Extent) {
        if range.state == State::Delayed {
            self.delayed += range.len;
        }
        self.ranges.insert(range.start.get(), (range.len, range.state));
    }

    fn take(&mut self, range: Extent) {
        if range.state == State::Delayed {
            self.delayed -= range.len;
        }
        self.ranges.remove(&range.start.get());
    }
}

fn bounds(run: Run) -> (u64, u64) {
    (run.start.get(), run.start.get().saturating_add(run.len))
}

#[cfg(test)]
mod tests;
