//! [`Seen`]: what a walk has seen of the map of a file.

use std::collections::BTreeSet;

use cairn_base::units::as_u64;
use cairn_base::{Ino, Pba};
use cairn_block::IoBuf;

use super::super::map;
use super::super::state::State;
use super::super::visitor::{Fault, Run, Visitor};
use crate::format::inode::Inode as Record;

/// Blocks of a map that are looked at, at most.
pub(super) const MOST_NODES: usize = 1024;
/// Runs of a map, and blocks of a file, that cost as much as one read.
const RUNS_OF_READ: u64 = 64;
const BLOCKS_OF_READ: u64 = 1 << 14;

/// What a walk has seen of a map.
#[derive(Default)]
pub(super) struct Seen {
    pub(super) runs: Vec<Run>,
    pub(super) nodes: Vec<Pba>,
    pub(super) is_faulty: bool,
    /// These, if the walk ends at a fault. A block that is seen twice is one.
    once: Option<BTreeSet<Pba>>,
}

impl Seen {
    pub(super) fn of(state: &State, ino: Ino, record: &Record) -> Self {
        let mut seen = Self::default();
        map::walk(state, ino, record, &mut seen);
        seen
    }

    /// What is seen until the first fault.
    pub(super) fn until_fault(state: &State, ino: Ino, record: &Record) -> Self {
        let mut seen = Self { once: Some(BTreeSet::new()), ..Self::default() };
        map::walk(state, ino, record, &mut seen);
        seen
    }

    /// What a look at it costs, in blocks that are read: those of the map, and time for what the
    /// map says.
    pub(super) fn cost(&self) -> u64 {
        let runs = as_u64(self.runs.len()) / RUNS_OF_READ;
        let blocks = self.runs.iter().fold(0_u64, |all, run| all.saturating_add(run.len));
        let time = runs.saturating_add(blocks / BLOCKS_OF_READ);
        as_u64(self.nodes.len()).saturating_add(time).saturating_add(1)
    }

    /// The first block of the file.
    pub(super) fn first_block(&self, state: &State) -> Option<IoBuf> {
        let first = self.runs.iter().find(|run| run.start == 0);
        first.and_then(|run| state.source.block(run.pba).ok())
    }

    /// The file block behind the last one with contents.
    pub(super) fn end(&self) -> u64 {
        let written = self.runs.iter().filter(|run| !run.unwritten);
        written.map(Run::end).max().unwrap_or(0)
    }

    /// How often the file goes on elsewhere than behind its last block, and how often before it.
    pub(super) fn order(&self) -> i64 {
        if self.is_faulty {
            return i64::MAX;
        }
        let behind = self.runs.iter().map(|run| run.pba.get().saturating_add(run.len));
        let next = self.runs.iter().skip(1).map(|run| run.pba.get());
        let pairs = behind.zip(next);
        let back = pairs.clone().filter(|(behind, next)| behind > next).count();
        let breaks = pairs.filter(|(behind, next)| behind != next).count();
        i64::try_from(breaks.saturating_add(back)).unwrap_or(i64::MAX)
    }

    /// The blocks of the volume: where they begin, and how many, in their order.
    pub(super) fn ranges(&self) -> Vec<(u64, u64)> {
        let runs = self.runs.iter().map(|run| (run.pba.get(), run.len));
        let mut ranges: Vec<_> = runs.chain(self.nodes.iter().map(|pba| (pba.get(), 1))).collect();
        ranges.sort_unstable();
        ranges
    }

    /// Is there no hole before the last run?
    pub(super) fn is_dense(&self) -> bool {
        let mut runs = self.runs.iter().rev();
        let last = runs.next().map_or(0, |run| run.start);
        last == runs.next().map_or(0, Run::end)
    }
}

impl Visitor for Seen {
    fn data(&mut self, run: Run) {
        self.runs.push(run);
    }

    fn node(&mut self, _: u64, pba: Pba) -> bool {
        if let Some(once) = &mut self.once
            && (self.is_faulty || !once.insert(pba))
        {
            self.is_faulty = true;
            return false;
        }
        self.nodes.push(pba);
        let is_short = self.nodes.len() <= MOST_NODES;
        self.is_faulty |= !is_short;
        is_short
    }

    fn fault(&mut self, _: Fault) {
        self.is_faulty = true;
    }
}
