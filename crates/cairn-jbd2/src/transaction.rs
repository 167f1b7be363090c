//! Transactions: the running one, and those waiting to be checkpointed.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use cairn_base::{Pba, Tid};
use cairn_cache::block::{Buffer, Image};

use crate::format::blocks::BlockLayout;
use crate::log_space;

/// Called when a transaction is durable (`true`) or never will be.
pub type Hook = Box<dyn FnOnce(bool) + Send>;

/// The transaction that handles join.
pub struct Running {
    /// Its number.
    pub tid: Tid,
    /// When its first handle started.
    pub started: Duration,
    /// Open handles.
    pub handles: u32,
    /// Credits of open handles that are not used yet.
    pub promised: u32,
    /// Revoke blocks that handles set aside beyond the one that each open handle has.
    pub revoke_blocks: u32,
    /// Buffers changed in it.
    pub buffers: HashMap<Pba, Arc<Buffer>>,
    /// Blocks whose older copies must not be replayed.
    pub revokes: HashSet<Pba>,
    /// To be called when it is durable.
    pub hooks: Vec<Hook>,
    /// No handle may join any more.
    pub locked: bool,
    /// Somebody waits for its commit.
    pub requested: bool,
}

impl Running {
    /// An empty transaction.
    pub fn new(tid: Tid, started: Duration) -> Self {
        Self {
            tid,
            started,
            handles: 0,
            promised: 0,
            revoke_blocks: 0,
            buffers: HashMap::new(),
            revokes: HashSet::new(),
            hooks: Vec::new(),
            locked: false,
            requested: false,
        }
    }

    /// Copies it may come to hold.
    pub fn copies(&self) -> u32 {
        u32::try_from(self.buffers.len()).unwrap_or(u32::MAX).saturating_add(self.promised)
    }

    /// Log blocks it may come to need if a handle with so many credits joins, or gets so many more. Each open handle may start one
    /// revoke block; what it needs beyond is in `revoke_blocks`.
    pub fn needs_with(&self, layout: &BlockLayout, credits: u32) -> u32 {
        let copies = self.copies().saturating_add(credits);
        log_space::needed(layout, copies, self.revoke_count()).saturating_add(self.handles + 1 + self.revoke_blocks)
    }

    /// Revokes it holds.
    pub fn revoke_count(&self) -> u32 {
        u32::try_from(self.revokes.len()).unwrap_or(u32::MAX)
    }
}

/// A committed block that is not at home yet. Holding the buffer keeps it in memory.
pub struct Entry {
    /// The committed version.
    pub image: Image,
    _buffer: Arc<Buffer>,
}

impl Entry {
    /// The version of a buffer that a commit logged.
    pub fn new(image: Image, buffer: Arc<Buffer>) -> Self {
        Self { image, _buffer: buffer }
    }
}

/// A committed transaction whose log space is still needed.
pub struct Logged {
    /// Its number.
    pub tid: Tid,
    /// First log block.
    pub start: u32,
    /// Log blocks it takes.
    pub blocks: u32,
    /// Blocks to be written home, in order of address.
    pub entries: BTreeMap<Pba, Entry>,
}

/// Committed transactions, oldest first, and which of them holds each block's newest version.
#[derive(Default)]
pub struct CheckpointList {
    transactions: VecDeque<Logged>,
    newest: HashMap<Pba, Tid>,
}

impl CheckpointList {
    /// Adds a transaction that has just committed. What it holds supersedes older versions: those need no write, for this one
    /// stays in the log until it is at home. Returns the number superseded.
    pub fn push(&mut self, logged: Logged) -> u64 {
        let mut superseded = 0;
        for pba in logged.entries.keys() {
            if let Some(older) = self.newest.insert(*pba, logged.tid)
                && self.entries_of(older).is_some_and(|entries| entries.remove(pba).is_some())
            {
                superseded += 1;
            }
        }
        self.transactions.push_back(logged);
        superseded
    }

    fn entries_of(&mut self, tid: Tid) -> Option<&mut BTreeMap<Pba, Entry>> {
        let first = self.transactions.front()?.tid;
        // Numbers are consecutive, so the place follows from the number.
        let index = usize::try_from(tid.0.wrapping_sub(first.0)).ok()?;
        let logged = self.transactions.get_mut(index)?;
        (logged.tid == tid).then_some(&mut logged.entries)
    }

    /// The block was freed: no version of it may go home.
    pub fn cancel(&mut self, pba: Pba) {
        if let Some(tid) = self.newest.remove(&pba)
            && let Some(entries) = self.entries_of(tid)
        {
            entries.remove(&pba);
        }
    }

    /// A version of the block has been written home.
    pub fn written(&mut self, pba: Pba, tid: Tid) {
        if self.newest.get(&pba) == Some(&tid) {
            self.cancel(pba);
        }
    }

    /// Blocks of the oldest transactions, until those free at least `log_blocks`.
    pub fn oldest(&self, log_blocks: u32) -> Vec<(Pba, Tid, Image)> {
        let mut freed = 0;
        let mut blocks = Vec::new();
        for logged in &self.transactions {
            if freed >= log_blocks {
                break;
            }
            freed += logged.blocks;
            blocks.extend(logged.entries.iter().map(|(pba, entry)| (*pba, logged.tid, entry.image.clone())));
        }
        blocks.sort_by_key(|(pba, _, _)| *pba);
        blocks
    }

    /// Takes off the transactions at the front that have nothing left to write. Returns the log blocks and the number of
    /// transactions freed.
    pub fn retire(&mut self) -> (u32, u64) {
        let (mut blocks, mut transactions) = (0, 0);
        while let Some(done) = self.transactions.pop_front_if(|logged| logged.entries.is_empty()) {
            blocks += done.blocks;
            transactions += 1;
        }
        (blocks, transactions)
    }

    /// The oldest transaction that is left: its number and first block.
    pub fn front(&self) -> Option<(Tid, u32)> {
        self.transactions.front().map(|logged| (logged.tid, logged.start))
    }

    /// True if nothing is left to be checkpointed.
    pub fn is_empty(&self) -> bool {
        self.transactions.is_empty()
    }
}
