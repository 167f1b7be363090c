//! Free nids: found by searching NAT blocks one after the other, only as far as needed.

use std::collections::{BTreeMap, HashMap};

use crate::format::{Layout, NatEntry, Nid, nat};

/// Most free nids kept in memory; what is dropped is found again by the search.
const POOL_LIMIT: usize = 8192;
/// The first nid that can be anybody's: nid 0 means none, 1 and 2 are the kernel's, 3 is the root.
const FIRST: u32 = 4;

/// The pool, what was given out of it, and how far the search is.
pub(super) struct FreeNids {
    /// Known to be free, with the version their entry has.
    pool: BTreeMap<Nid, u8>,
    /// Given out, without an address yet.
    allocated: HashMap<Nid, u8>,
    /// The NAT block to search next; the search goes round.
    cursor: u32,
    blocks: u32,
    /// Blocks searched without finding anything since something was last found or freed.
    fruitless: u32,
}

impl FreeNids {
    pub(super) fn new(layout: &Layout, hint: Nid) -> Self {
        let blocks = layout.nat_blocks();
        let cursor = Layout::nat_place(hint).0.strict_rem(blocks);
        Self { pool: BTreeMap::new(), allocated: HashMap::new(), cursor, blocks, fruitless: 0 }
    }

    /// Gives out the lowest known one.
    pub(super) fn take(&mut self) -> Option<Nid> {
        let (nid, version) = self.pool.pop_first()?;
        self.allocated.insert(nid, version);
        Some(nid)
    }

    /// Gives out this one, whether it is known or not.
    pub(super) fn allocate_exact(&mut self, nid: Nid, version: u8) {
        self.pool.remove(&nid);
        self.allocated.insert(nid, version);
    }

    /// The block to search now; `None` if all were searched in vain.
    pub(super) fn next_block(&mut self) -> Option<u32> {
        if self.fruitless >= self.blocks {
            return None;
        }
        let block = self.cursor;
        self.cursor = block.strict_add(1).strict_rem(self.blocks);
        Some(block)
    }

    /// Adds what is free in a NAT block. `known` overrides its entries; what is `changed` is free
    /// only after a checkpoint.
    pub(super) fn scan(
        &mut self,
        block: u32,
        image: &[u8],
        known: impl Fn(Nid) -> Option<NatEntry>,
        changed: impl Fn(Nid) -> bool,
    ) {
        let first = Layout::first_nid(block);
        let before = self.pool.len();
        for (nid, stored) in (first.get()..).map(Nid).zip(nat::entries(image)) {
            let entry = known(nid).unwrap_or(stored);
            let free = nid.get() >= FIRST
                && entry.is_free()
                && !changed(nid)
                && !self.allocated.contains_key(&nid);
            if free {
                self.pool.insert(nid, entry.version);
            }
        }
        self.fruitless =
            if self.pool.len() > before { 0 } else { self.fruitless.saturating_add(1) };
    }

    /// An nid whose freedom a checkpoint now knows.
    pub(super) fn add(&mut self, nid: Nid, version: u8) {
        if nid.get() >= FIRST && self.pool.len() < POOL_LIMIT {
            self.pool.insert(nid, version);
        }
        self.fruitless = 0;
    }

    /// Takes back one that was given out; false if it was not.
    pub(super) fn give_back(&mut self, nid: Nid) -> bool {
        let Some(version) = self.allocated.remove(&nid) else { return false };
        self.pool.insert(nid, version);
        self.fruitless = 0;
        true
    }

    /// It is in use now.
    pub(super) fn forget(&mut self, nid: Nid) {
        self.allocated.remove(&nid);
        self.pool.remove(&nid);
    }

    pub(super) fn allocated_version(&self, nid: Nid) -> Option<u8> {
        self.allocated.get(&nid).copied()
    }

    /// Where the next mount should begin its search.
    pub(super) fn hint(&self) -> Nid {
        let cursor = Layout::first_nid(self.cursor).max(Nid(FIRST));
        self.pool.keys().next().copied().unwrap_or(cursor)
    }
}
