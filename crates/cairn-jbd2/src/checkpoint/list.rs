//! Committed transactions, oldest first, and which of them holds each block's newest version.
//!
//! **Ring.** Numbers are consecutive, so a transaction's place follows from its number. It leaves the ring at the front once none of
//! its blocks is left to be written; what it took of the log is then [reclaimable](CheckpointList::reclaimable) by a tail move.
//! **Chain.** Those that still list blocks are linked, as in jbd2: walks pass over what was superseded entirely.
//!
//! **A block's way.** Pending → written (the device has taken it) → at home (a flush has covered it). A newer committed version takes
//! it off the list at any time: it needs no write, for the newer one stays in the log until it is at home itself.
//!
//! **Completions.** Whoever writes blocks home queues them here; whoever flushes next (a commit's own flush, as a rule) drains
//! what was queued before. Only then does a block count as clean.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;

use cairn_base::{Pba, Tid};
use cairn_cache::block::{Buffer, Image};

/// How finished transactions are found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CheckpointClean {
    /// Each transaction counts its unwritten blocks; only the counter of the oldest is looked at.
    #[default]
    Counted,
    /// Walks from the oldest transaction on and stops at the first block that is not at home.
    BailOut,
    /// Walks all blocks of all transactions.
    Scan,
}

impl CheckpointClean {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Counted, Self::BailOut, Self::Scan];

    /// Its name as a mount option's value.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Counted => "counted",
            Self::BailOut => "bail_out",
            Self::Scan => "scan",
        }
    }

    /// The one of that name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|mode| mode.name() == name)
    }
}

/// How far a block is on its way home.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    Pending,
    Written,
    AtHome,
}

/// A committed block that is listed. Holding the buffer keeps it in memory.
pub struct Entry {
    image: Image,
    way: Way,
    _buffer: Arc<Buffer>,
}

impl Entry {
    /// The version of a buffer that a commit logged.
    pub fn new(image: Image, buffer: Arc<Buffer>) -> Self {
        Self { image, way: Way::Pending, _buffer: buffer }
    }
}

/// A committed transaction whose log space is still needed.
pub struct Logged {
    tid: Tid,
    start: u32,
    blocks: u32,
    /// Blocks listed, in order of address.
    entries: BTreeMap<Pba, Entry>,
    /// Of these, not at home.
    unwritten: usize,
    /// It had blocks to write, and none of them was written.
    untouched: bool,
    older: Option<Tid>,
    newer: Option<Tid>,
}

impl Logged {
    /// A transaction that takes `blocks` log blocks from `start` on.
    pub fn new(tid: Tid, start: u32, blocks: u32, entries: BTreeMap<Pba, Entry>) -> Self {
        let (unwritten, untouched) = (entries.len(), !entries.is_empty());
        Self { tid, start, blocks, entries, unwritten, untouched, older: None, newer: None }
    }
}

/// What a cleaning did.
#[derive(Clone, Copy, Debug, Default)]
pub struct Cleaned {
    /// Looks at a listed block, or (counted) at a transaction's counter.
    pub steps: u64,
    /// Blocks taken off by a walk; transactions, where they are counted.
    pub freed: u64,
    /// Transactions that left the ring.
    pub transactions: u64,
    /// Of these, superseded before any of their blocks was written.
    pub superseded: u64,
}

/// Blocks chosen to be written.
#[derive(Default)]
pub struct Chosen {
    /// In the order of their transactions.
    pub blocks: Vec<(Pba, Tid)>,
    /// Left out: a transaction that is not durable yet will supersede them.
    pub left_out: usize,
}

/// The list.
#[derive(Default)]
pub struct CheckpointList {
    ring: VecDeque<Logged>,
    newest: HashMap<Pba, Tid>,
    oldest_listed: Option<Tid>,
    newest_listed: Option<Tid>,
    listed: usize,
    /// Written home; what flushed them is yet to come.
    completions: VecDeque<(Pba, Tid)>,
    /// Completions queued so far, and drained so far.
    queued: u64,
    drained: u64,
    reclaimable: u32,
}

impl CheckpointList {
    /// Adds a transaction that has just committed; what it holds supersedes older versions. Returns the number superseded.
    pub fn push(&mut self, mut logged: Logged) -> u64 {
        let tid = logged.tid;
        let mut superseded = 0;
        for pba in logged.entries.keys() {
            if let Some(older) = self.newest.insert(*pba, tid) {
                superseded += u64::from(self.unlist(*pba, older));
            }
        }
        if !logged.entries.is_empty() {
            logged.older = self.newest_listed.replace(tid);
            match logged.older.and_then(|older| self.get(older)) {
                Some(older) => older.newer = Some(tid),
                None => self.oldest_listed = Some(tid),
            }
            self.listed += 1;
        }
        self.ring.push_back(logged);
        superseded
    }

    fn get(&mut self, tid: Tid) -> Option<&mut Logged> {
        let index = usize::try_from(tid.0.wrapping_sub(self.ring.front()?.tid.0)).ok()?;
        self.ring.get_mut(index).filter(|logged| logged.tid == tid)
    }

    /// Takes a block off its transaction's list. True if it was there.
    fn unlist(&mut self, pba: Pba, tid: Tid) -> bool {
        let Some(logged) = self.get(tid) else { return false };
        let Some(entry) = logged.entries.remove(&pba) else { return false };
        logged.unwritten -= usize::from(entry.way != Way::AtHome);
        if logged.entries.is_empty() {
            self.unlink(tid);
        }
        true
    }

    /// Takes a transaction that lists nothing any more out of the chain.
    fn unlink(&mut self, tid: Tid) {
        let Some(logged) = self.get(tid) else { return };
        let (older, newer) = (logged.older.take(), logged.newer.take());
        match older.and_then(|older| self.get(older)) {
            Some(logged) => logged.newer = newer,
            None => self.oldest_listed = newer,
        }
        match newer.and_then(|newer| self.get(newer)) {
            Some(logged) => logged.older = older,
            None => self.newest_listed = older,
        }
        self.listed -= 1;
    }

    /// The block was freed: no version of it may go home.
    pub fn cancel(&mut self, pba: Pba) {
        if let Some(tid) = self.newest.remove(&pba) {
            self.unlist(pba, tid);
        }
    }

    /// Blocks that are still to be written, of the oldest transactions that together hold `log_blocks` of the log. Those that
    /// `busy` names are left out.
    pub fn choose(&self, log_blocks: u32, busy: impl Fn(Pba) -> bool) -> Chosen {
        let mut chosen = Chosen::default();
        let mut seen = 0_u32;
        for logged in &self.ring {
            if seen >= log_blocks {
                break;
            }
            seen = seen.saturating_add(logged.blocks);
            for pba in logged.entries.iter().filter(|(_, entry)| entry.way == Way::Pending).map(|(pba, _)| *pba) {
                if busy(pba) {
                    chosen.left_out += 1;
                } else {
                    chosen.blocks.push((pba, logged.tid));
                }
            }
        }
        chosen
    }

    /// A chosen block's contents, if it is still to be written.
    pub fn image(&mut self, pba: Pba, tid: Tid) -> Option<Image> {
        let entry = self.get(tid)?.entries.get(&pba)?;
        (entry.way == Way::Pending).then(|| entry.image.clone())
    }

    /// The device has taken these blocks; a flush is to follow.
    pub fn queue_completions(&mut self, blocks: impl Iterator<Item = (Pba, Tid)>) {
        for (pba, tid) in blocks {
            if let Some(logged) = self.get(tid)
                && let Some(entry) = logged.entries.get_mut(&pba)
            {
                entry.way = Way::Written;
                logged.untouched = false;
                self.completions.push_back((pba, tid));
                self.queued += 1;
            }
        }
    }

    /// Completions queued so far: a flush that starts now covers these.
    pub fn queued(&self) -> u64 {
        self.queued
    }

    /// True if some completions still need a flush.
    pub fn needs_flush(&self) -> bool {
        self.drained < self.queued
    }

    /// A flush has covered what was queued up to `upto`: those blocks are at home. Returns how many.
    pub fn drain_completions(&mut self, upto: u64, mode: CheckpointClean) -> u64 {
        let before = self.drained;
        while self.drained < upto
            && let Some((pba, tid)) = self.completions.pop_front()
        {
            self.drained += 1;
            self.at_home(pba, tid, mode);
        }
        self.drained - before
    }

    fn at_home(&mut self, pba: Pba, tid: Tid, mode: CheckpointClean) {
        let Some(logged) = self.get(tid) else { return };
        let Some(entry) = logged.entries.get_mut(&pba).filter(|entry| entry.way == Way::Written) else { return };
        entry.way = Way::AtHome;
        logged.unwritten -= 1;
        self.newest.remove(&pba);
        // A walk is to find it itself.
        if mode == CheckpointClean::Counted {
            self.unlist(pba, tid);
        }
    }

    /// Takes transactions off whose blocks are all at home or superseded.
    pub fn clean(&mut self, mode: CheckpointClean) -> Cleaned {
        let mut cleaned = Cleaned::default();
        match mode {
            CheckpointClean::Counted => {}
            CheckpointClean::BailOut => self.walk_until_busy(&mut cleaned),
            CheckpointClean::Scan => self.walk_all(&mut cleaned),
        }
        while let Some(front) = self.ring.front() {
            let done = match mode {
                CheckpointClean::Counted => {
                    cleaned.steps += 1;
                    front.unwritten == 0
                }
                CheckpointClean::BailOut | CheckpointClean::Scan => front.entries.is_empty(),
            };
            if !done {
                break;
            }
            cleaned.freed += u64::from(mode == CheckpointClean::Counted);
            self.retire(&mut cleaned);
        }
        cleaned
    }

    fn retire(&mut self, cleaned: &mut Cleaned) {
        let Some(front) = self.ring.front() else { return };
        // Left by a walk that had not come to it when the mode was changed.
        if !front.entries.is_empty() {
            self.unlink(front.tid);
        }
        let Some(done) = self.ring.pop_front() else { return };
        cleaned.transactions += 1;
        cleaned.superseded += u64::from(done.untouched);
        self.reclaimable += done.blocks;
    }

    fn walk_until_busy(&mut self, cleaned: &mut Cleaned) {
        while let Some(tid) = self.oldest_listed {
            let Some(logged) = self.get(tid) else { return };
            while let Some(first) = logged.entries.first_entry() {
                cleaned.steps += 1;
                if first.get().way != Way::AtHome {
                    return;
                }
                first.remove();
                cleaned.freed += 1;
            }
            self.unlink(tid);
        }
    }

    fn walk_all(&mut self, cleaned: &mut Cleaned) {
        let mut next = self.oldest_listed;
        while let Some(tid) = next {
            let Some(logged) = self.get(tid) else { return };
            next = logged.newer;
            let before = logged.entries.len();
            logged.entries.retain(|_, entry| entry.way != Way::AtHome);
            cleaned.steps += before as u64;
            cleaned.freed += (before - logged.entries.len()) as u64;
            if logged.entries.is_empty() {
                self.unlink(tid);
            }
        }
    }

    /// Log blocks that a tail move would give back.
    pub fn reclaimable(&self) -> u32 {
        self.reclaimable
    }

    /// Takes them, for a tail move.
    pub fn take_reclaimable(&mut self) -> u32 {
        std::mem::take(&mut self.reclaimable)
    }

    /// The oldest transaction that recovery still needs: its number and first block.
    pub fn front(&self) -> Option<(Tid, u32)> {
        self.ring.front().map(|logged| (logged.tid, logged.start))
    }

    /// Transactions whose log space is still needed.
    pub fn pending(&self) -> usize {
        self.ring.len()
    }

    /// Of these, those that still list blocks.
    pub fn listed(&self) -> usize {
        self.listed
    }

    /// True if nothing is left to be checkpointed.
    pub fn is_empty(&self) -> bool {
        self.ring.is_empty()
    }
}
