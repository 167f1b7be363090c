//! Committed transactions, oldest first, and the one that holds each block's newest version (jbd2's
//! `j_checkpoint_transactions`, with a `t_checkpoint_list` each).
//!
//! **Ring.** Transactions have consecutive numbers, so a transaction's index follows from its
//! number. The oldest leaves the ring when none of its blocks is left to be checkpointed. Its log
//! blocks are then [reclaimable](CheckpointList::reclaimable): the next update of the log tail
//! frees them.
//!
//! **Chain.** The transactions that still list blocks are linked, as in jbd2. A walk along the
//! chain passes over transactions that newer ones have superseded.
//!
//! **A block's states.** Pending, written (the device has taken it), clean (a flush has covered the
//! write). A block also leaves its list when a newer version commits: the older one need not be
//! written, because the newer one stays in the log until it is clean itself.
//!
//! **Completions.** A checkpointer queues a completion for each block that it has written. A flush
//! covers the completions queued before it, and only then are their blocks clean.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;

use cairn_base::{Pba, Tid};
use cairn_cache::block::{Buffer, Image};

/// How checkpointed transactions are found (mount option `checkpoint_clean`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CheckpointClean {
    /// Each transaction counts its blocks that are not clean. Only the oldest count is read.
    #[default]
    Counted,
    /// Walks from the oldest transaction to the first block that is not clean.
    BailOut,
    /// Walks all blocks of all transactions.
    Scan,
}

impl CheckpointClean {
    /// All modes.
    pub const ALL: [Self; 3] = [Self::Counted, Self::BailOut, Self::Scan];

    /// The mount option's value.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Counted => "counted",
            Self::BailOut => "bail_out",
            Self::Scan => "scan",
        }
    }

    /// The mode with this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|mode| mode.name() == name)
    }
}

/// A block's state.
#[derive(Clone, Copy, PartialEq, Eq)]
enum BlockState {
    Pending,
    Written,
    Clean,
}

/// A committed block on its transaction's list (`struct journal_head`).
pub(crate) struct JournalHead {
    /// The version that was committed (`b_frozen_data`).
    frozen_data: Image,
    state: BlockState,
    /// Keeps the buffer in memory.
    _buffer: Arc<Buffer>,
}

impl JournalHead {
    /// The version of a buffer that was committed.
    pub(crate) fn new(frozen_data: Image, buffer: Arc<Buffer>) -> Self {
        Self { frozen_data, state: BlockState::Pending, _buffer: buffer }
    }
}

/// A committed transaction whose log blocks recovery needs.
pub(crate) struct CheckpointTransaction {
    tid: Tid,
    /// First log block (`t_log_start`).
    log_start: u32,
    log_blocks: u32,
    /// Listed blocks, in order of address (`t_checkpoint_list`).
    heads: BTreeMap<Pba, JournalHead>,
    /// Listed blocks that are not clean.
    unclean: usize,
    /// Of these, blocks that have not been written.
    pending: usize,
    /// It had blocks, and none of them was written.
    untouched: bool,
    /// Neighbours in the chain.
    older: Option<Tid>,
    newer: Option<Tid>,
}

impl CheckpointTransaction {
    /// A transaction of `log_blocks` blocks from `log_start` on.
    pub(crate) fn new(
        tid: Tid,
        log_start: u32,
        log_blocks: u32,
        heads: BTreeMap<Pba, JournalHead>,
    ) -> Self {
        let (unclean, untouched) = (heads.len(), !heads.is_empty());
        Self {
            tid,
            log_start,
            log_blocks,
            heads,
            unclean,
            pending: unclean,
            untouched,
            older: None,
            newer: None,
        }
    }
}

/// What a search for checkpointed transactions did.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Cleaned {
    /// Blocks looked at; with `Counted`, transactions.
    pub(crate) steps: u64,
    /// Blocks taken off their lists; with `Counted`, transactions.
    pub(crate) freed: u64,
    /// Transactions that left the ring.
    pub(crate) transactions: u64,
    /// Of these, superseded before any of their blocks was written.
    pub(crate) superseded: u64,
}

/// Blocks to be written.
#[derive(Default)]
pub(crate) struct Chosen {
    /// In the order of their transactions.
    pub(crate) blocks: Vec<(Pba, Tid)>,
    /// Blocks left out because a newer transaction will supersede them.
    pub(crate) left_out: usize,
}

/// The list.
#[derive(Default)]
pub(crate) struct CheckpointList {
    ring: VecDeque<CheckpointTransaction>,
    /// The transaction that holds the newest version of each listed block.
    newest: HashMap<Pba, Tid>,
    /// Ends of the chain, and its length.
    oldest_listed: Option<Tid>,
    newest_listed: Option<Tid>,
    listed: usize,
    /// Blocks written and not known to be flushed.
    completions: VecDeque<(Pba, Tid)>,
    /// Completions ever queued.
    queued: u64,
    /// Completions ever drained.
    drained: u64,
    reclaimable: u32,
}

impl CheckpointList {
    /// Adds a transaction that has just committed. Its blocks supersede older versions. Returns the
    /// number of these.
    pub(crate) fn push(&mut self, mut transaction: CheckpointTransaction) -> u64 {
        let tid = transaction.tid;
        let mut superseded = 0;
        for pba in transaction.heads.keys() {
            if let Some(older) = self.newest.insert(*pba, tid) {
                superseded += u64::from(self.remove_head(*pba, older));
            }
        }
        if !transaction.heads.is_empty() {
            transaction.older = self.newest_listed.replace(tid);
            match transaction.older.and_then(|older| self.get(older)) {
                Some(older) => older.newer = Some(tid),
                None => self.oldest_listed = Some(tid),
            }
            self.listed += 1;
        }
        self.ring.push_back(transaction);
        superseded
    }

    fn get(&mut self, tid: Tid) -> Option<&mut CheckpointTransaction> {
        let index = usize::try_from(tid.0.wrapping_sub(self.ring.front()?.tid.0)).ok()?;
        self.ring.get_mut(index).filter(|transaction| transaction.tid == tid)
    }

    /// Takes a block off its transaction's list. False if it is not listed.
    fn remove_head(&mut self, pba: Pba, tid: Tid) -> bool {
        let Some(transaction) = self.get(tid) else { return false };
        let Some(head) = transaction.heads.remove(&pba) else { return false };
        transaction.unclean -= usize::from(head.state != BlockState::Clean);
        transaction.pending -= usize::from(head.state == BlockState::Pending);
        if transaction.heads.is_empty() {
            self.unlink(tid);
        }
        true
    }

    /// Takes a transaction without listed blocks out of the chain.
    fn unlink(&mut self, tid: Tid) {
        let Some(transaction) = self.get(tid) else { return };
        let (older, newer) = (transaction.older.take(), transaction.newer.take());
        match older.and_then(|older| self.get(older)) {
            Some(transaction) => transaction.newer = newer,
            None => self.oldest_listed = newer,
        }
        match newer.and_then(|newer| self.get(newer)) {
            Some(transaction) => transaction.older = older,
            None => self.newest_listed = older,
        }
        self.listed -= 1;
    }

    /// Takes a freed block off the list, so that no version of it is written.
    pub(crate) fn forget(&mut self, pba: Pba) {
        if let Some(tid) = self.newest.remove(&pba) {
            self.remove_head(pba, tid);
        }
    }

    /// Pending blocks of the oldest transactions that together hold `log_blocks` of the log. Leaves
    /// out those for which `busy` is true.
    pub(crate) fn choose(&self, log_blocks: u32, busy: impl Fn(Pba) -> bool) -> Chosen {
        let mut chosen = Chosen::default();
        let mut seen = 0_u32;
        for transaction in &self.ring {
            if seen >= log_blocks {
                break;
            }
            seen = seen.saturating_add(transaction.log_blocks);
            for pba in transaction
                .heads
                .iter()
                .filter(|(_, head)| head.state == BlockState::Pending)
                .map(|(pba, _)| *pba)
            {
                if busy(pba) {
                    chosen.left_out += 1;
                } else {
                    chosen.blocks.push((pba, transaction.tid));
                }
            }
        }
        chosen
    }

    /// The contents of a chosen block. `None` if it is not pending any more.
    pub(crate) fn frozen_data(&mut self, pba: Pba, tid: Tid) -> Option<Image> {
        let head = self.get(tid)?.heads.get(&pba)?;
        (head.state == BlockState::Pending).then(|| head.frozen_data.clone())
    }

    /// The device has taken these blocks. They are clean after the next flush.
    pub(crate) fn queue_completions(&mut self, blocks: impl Iterator<Item = (Pba, Tid)>) {
        for (pba, tid) in blocks {
            if let Some(transaction) = self.get(tid)
                && let Some(head) = transaction.heads.get_mut(&pba)
            {
                transaction.pending -= usize::from(head.state == BlockState::Pending);
                head.state = BlockState::Written;
                transaction.untouched = false;
                self.completions.push_back((pba, tid));
                self.queued += 1;
            }
        }
    }

    /// Completions ever queued. A flush that starts now covers these.
    pub(crate) fn queued(&self) -> u64 {
        self.queued
    }

    /// True if a completion is queued.
    pub(crate) fn needs_flush(&self) -> bool {
        self.drained < self.queued
    }

    /// A flush has covered the first `flushed` completions ever queued: their blocks are clean.
    pub(crate) fn drain_completions(&mut self, flushed: u64, mode: CheckpointClean) {
        while self.drained < flushed
            && let Some((pba, tid)) = self.completions.pop_front()
        {
            self.drained += 1;
            self.mark_clean(pba, tid, mode);
        }
    }

    fn mark_clean(&mut self, pba: Pba, tid: Tid, mode: CheckpointClean) {
        let Some(transaction) = self.get(tid) else { return };
        let is_written = |head: &&mut JournalHead| head.state == BlockState::Written;
        let Some(head) = transaction.heads.get_mut(&pba).filter(is_written) else { return };
        head.state = BlockState::Clean;
        transaction.unclean -= 1;
        self.newest.remove(&pba);
        // In the other modes a search finds the block.
        if mode == CheckpointClean::Counted {
            self.remove_head(pba, tid);
        }
    }

    /// Drops the oldest transactions of which no block is left to be checkpointed
    /// (`__jbd2_journal_clean_checkpoint_list`).
    pub(crate) fn clean(&mut self, mode: CheckpointClean) -> Cleaned {
        let mut cleaned = Cleaned::default();
        match mode {
            CheckpointClean::Counted => {}
            CheckpointClean::BailOut => self.walk_to_first_unclean(&mut cleaned),
            CheckpointClean::Scan => self.walk_all(&mut cleaned),
        }
        while let Some(front) = self.ring.front() {
            let done = match mode {
                CheckpointClean::Counted => {
                    cleaned.steps += 1;
                    front.unclean == 0
                }
                CheckpointClean::BailOut | CheckpointClean::Scan => front.heads.is_empty(),
            };
            if !done {
                break;
            }
            cleaned.freed += u64::from(mode == CheckpointClean::Counted);
            self.drop_oldest(&mut cleaned);
        }
        cleaned
    }

    fn drop_oldest(&mut self, cleaned: &mut Cleaned) {
        let Some(front) = self.ring.front() else { return };
        // The mode was changed while clean blocks were listed.
        if !front.heads.is_empty() {
            self.unlink(front.tid);
        }
        let Some(done) = self.ring.pop_front() else { return };
        cleaned.transactions += 1;
        cleaned.superseded += u64::from(done.untouched);
        self.reclaimable += done.log_blocks;
    }

    fn walk_to_first_unclean(&mut self, cleaned: &mut Cleaned) {
        while let Some(tid) = self.oldest_listed {
            let Some(transaction) = self.get(tid) else { return };
            while let Some(first) = transaction.heads.first_entry() {
                cleaned.steps += 1;
                if first.get().state != BlockState::Clean {
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
            let Some(transaction) = self.get(tid) else { return };
            next = transaction.newer;
            let before = transaction.heads.len();
            transaction.heads.retain(|_, head| head.state != BlockState::Clean);
            cleaned.steps += before as u64;
            cleaned.freed += (before - transaction.heads.len()) as u64;
            if transaction.heads.is_empty() {
                self.unlink(tid);
            }
        }
    }

    /// About how many blocks `part` of `used` log blocks list: the newest versions, taken as evenly
    /// spread. The oldest transactions, which a round writes, have fewer of them.
    pub(crate) fn listed_in(&self, part: u32, used: u32) -> u32 {
        let all = self.newest.len() as u64;
        let share = (all * u64::from(part)).checked_div(used.into()).unwrap_or(0);
        u32::try_from(share.min(all)).unwrap_or(u32::MAX)
    }

    /// Log blocks that an update of the log tail would free.
    pub(crate) fn reclaimable(&self) -> u32 {
        self.reclaimable
    }

    /// Log blocks of the oldest transactions of which all blocks are written: a flush makes them
    /// reclaimable.
    pub(crate) fn written_log_blocks(&self) -> u32 {
        let written = self.ring.iter().take_while(|transaction| transaction.pending == 0);
        written.map(|transaction| transaction.log_blocks).fold(0, u32::saturating_add)
    }

    /// Takes the reclaimable blocks for an update of the log tail.
    pub(crate) fn take_reclaimable(&mut self) -> u32 {
        std::mem::take(&mut self.reclaimable)
    }

    /// The oldest transaction on the list, and its first log block.
    pub(crate) fn oldest(&self) -> Option<(Tid, u32)> {
        self.ring.front().map(|transaction| (transaction.tid, transaction.log_start))
    }

    /// Transactions on the list.
    pub(crate) fn len(&self) -> usize {
        self.ring.len()
    }

    /// Transactions that list blocks.
    pub(crate) fn listed(&self) -> usize {
        self.listed
    }

    /// True if every committed transaction is checkpointed.
    pub(crate) fn is_empty(&self) -> bool {
        self.ring.is_empty()
    }
}
