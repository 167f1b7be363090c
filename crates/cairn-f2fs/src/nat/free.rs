//! Free nids: found by searching NAT blocks one after the other, only as far as needed.

use std::collections::{BTreeMap, HashMap};

use crate::format::{Layout, NatEntry, Nid, nat};

/// Most free nids kept in memory. The search finds the others again.
const POOL_LIMIT: usize = 8192;
/// The first nid that can be allocated: nid 0 means none, 1 and 2 are the kernel's, 3 is the root.
const FIRST: u32 = 4;

/// The pool of free nids, the nids allocated from it, and the position of the search.
pub(super) struct FreeNids {
    /// Nids known to be free, with the version of their entries.
    pool: BTreeMap<Nid, u8>,
    /// Allocated nids without an address yet.
    allocated: HashMap<Nid, u8>,
    /// The NAT block to search next. After the last block the search continues at the first.
    cursor: u32,
    blocks: u32,
    /// Blocks searched without success since a nid was last found or freed.
    fruitless: u32,
}

impl FreeNids {
    pub(super) fn new(layout: &Layout, hint: Nid) -> Self {
        let blocks = layout.nat_blocks();
        let cursor = Layout::nat_place(hint).0.strict_rem(blocks);
        Self { pool: BTreeMap::new(), allocated: HashMap::new(), cursor, blocks, fruitless: 0 }
    }

    /// Allocates the lowest known nid.
    pub(super) fn take(&mut self) -> Option<Nid> {
        let (nid, version) = self.pool.pop_first()?;
        self.allocated.insert(nid, version);
        Some(nid)
    }

    /// Allocates this nid, whether it is known or not.
    pub(super) fn allocate_exact(&mut self, nid: Nid, version: u8) {
        self.pool.remove(&nid);
        self.allocated.insert(nid, version);
    }

    /// The next block to search; `None` if no block has a free nid.
    pub(super) fn next_block(&mut self) -> Option<u32> {
        if self.fruitless >= self.blocks {
            return None;
        }
        let block = self.cursor;
        self.cursor = block.strict_add(1).strict_rem(self.blocks);
        Some(block)
    }

    /// Adds the free nids of a NAT block. `known` overrides its entries. Nids in `changed` are free
    /// only after a checkpoint. One that `has_node` is not free, and the block is damaged: returns
    /// the first of them.
    pub(super) fn scan(
        &mut self,
        block: u32,
        image: &[u8],
        known: impl Fn(Nid) -> Option<NatEntry>,
        changed: impl Fn(Nid) -> bool,
        has_node: impl Fn(Nid) -> bool,
    ) -> Option<Nid> {
        let mut damaged = None;
        let first = Layout::first_nid(block);
        let before = self.pool.len();
        for (nid, stored) in (first.get()..).map(Nid).zip(nat::entries(image)) {
            let entry = known(nid).unwrap_or(stored);
            let free = nid.get() >= FIRST
                && entry.is_free()
                && !changed(nid)
                && !self.allocated.contains_key(&nid);
            if free && has_node(nid) {
                damaged = damaged.or(Some(nid));
            } else if free {
                self.pool.insert(nid, entry.version);
            }
        }
        self.fruitless =
            if self.pool.len() > before { 0 } else { self.fruitless.saturating_add(1) };
        damaged
    }

    /// Adds a nid that is free in the last checkpoint.
    pub(super) fn add(&mut self, nid: Nid, version: u8) {
        if nid.get() >= FIRST && self.pool.len() < POOL_LIMIT {
            self.pool.insert(nid, version);
        }
        self.fruitless = 0;
    }

    /// Frees an allocated nid; false if it was not allocated.
    pub(super) fn give_back(&mut self, nid: Nid) -> bool {
        let Some(version) = self.allocated.remove(&nid) else { return false };
        self.pool.insert(nid, version);
        self.fruitless = 0;
        true
    }

    /// Marks a nid as used.
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
