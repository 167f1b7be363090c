//! The NAT in memory: where each node is, and which nids are free.
//!
//! An entry is looked for in the entries changed since the last snapshot, then in those that the
//! checkpoint in flight holds, then in the last checkpoint's journal, then in the current copy of
//! its NAT block. Nothing of the last checkpoint is overwritten before the next one is on the
//! medium: [`Nat::plan`] returns the blocks to write and moves the changed entries to the
//! checkpoint in flight, [`Nat::committed`] makes that one the last.
//!
//! Invariants: an nid is in at most one of *pool* (known to be free), *allocated* (without an
//! address yet) and *changed* or *in_flight*; an nid that had an address is not allocated again
//! before a checkpoint on the medium has it as free.
//!
//! A NAT block has no checksum. So an nid that a valid node has is not allocated, whatever its
//! entry says ([`Nat::learn_nodes`]).
//!
//! Locking: one lock of rank Allocator (before the segments'), never held while a NAT block is
//! read; another one before it, held while the nids of nodes are learnt. A reader tries again if a
//! checkpoint was committed meanwhile.

#![cfg_attr(
    not(test),
    deny(
        clippy::indexing_slicing,
        clippy::as_conversions,
        clippy::arithmetic_side_effects,
        clippy::unwrap_used,
        clippy::expect_used
    )
)]

mod flush;
mod free;
mod nid_set;
mod with_nodes;

use std::collections::BTreeMap;
use std::sync::Arc;

use cairn_base::ranked_lock::{Mutex, Rank};
use cairn_base::sabotage::Safeguard;
use cairn_base::stats::Counter;
use cairn_base::units::as_index;
use cairn_cache::block::{BufferCache, Image};

use crate::corrupt::Corrupt;
use crate::error::{Error, Result};
use crate::format::layout::Side;
use crate::format::summary::NatJournal;
use crate::format::{BlockAddr, Checkpoint, Layout, NatEntry, Nid, bits, nat};

pub(crate) use flush::NatPlan;
use free::FreeNids;
pub(crate) use nid_set::NidSet;
use with_nodes::WithNodes;

/// Orders among the locks of rank Allocator.
const LEARNING_ORDER: u64 = 0;
const LOCK_ORDER: u64 = 1;

/// The NAT of a mounted volume, with the changes since the last checkpoint.
pub struct Nat {
    layout: Arc<Layout>,
    cache: Arc<BufferCache>,
    state: Mutex<State>,
    /// Held while the nids of nodes are learnt. Before `state`.
    learning: Mutex<()>,
    /// Counters.
    pub(crate) stats: NatStats,
}

/// The interface of callers that only look up.
pub(crate) type NatTable = Nat;

/// Counters of the NAT.
#[derive(Debug, Default)]
pub(crate) struct NatStats {
    /// NAT blocks read or found in the cache for a look-up.
    pub(crate) block_lookups: Counter,
    /// NAT blocks searched for free nids.
    pub(crate) blocks_scanned: Counter,
    /// NAT blocks written by checkpoints.
    pub(crate) blocks_written: Counter,
}

struct State {
    /// Entries changed since the last snapshot.
    changed: BTreeMap<Nid, NatEntry>,
    /// Entries that the checkpoint in flight writes.
    in_flight: BTreeMap<Nid, NatEntry>,
    /// The last checkpoint's journal.
    journal: BTreeMap<Nid, NatEntry>,
    /// Which copy of each block is current.
    bitmap: Vec<u8>,
    /// Checkpoints committed: the copies have changed roles.
    generation: u64,
    free: FreeNids,
    with_nodes: WithNodes,
}

impl State {
    fn known(&self, nid: Nid) -> Option<NatEntry> {
        self.changed.get(&nid).copied().or_else(|| self.in_snapshot(nid))
    }

    /// The entry as in the newest snapshot.
    fn in_snapshot(&self, nid: Nid) -> Option<NatEntry> {
        self.in_flight.get(&nid).or_else(|| self.journal.get(&nid)).copied()
    }

    fn side(&self, block: u32) -> Side {
        Side::of_bit(bits::test(&self.bitmap, as_index(block)))
    }
}

impl Nat {
    /// The NAT of a checkpoint. `cache` holds metadata blocks of the volume.
    #[must_use]
    pub fn new(
        layout: Arc<Layout>,
        cache: Arc<BufferCache>,
        checkpoint: &Checkpoint,
        journal: &NatJournal,
    ) -> Self {
        let state = State {
            changed: BTreeMap::new(),
            in_flight: BTreeMap::new(),
            journal: journal.0.iter().copied().collect(),
            bitmap: checkpoint.nat_bitmap.clone(),
            generation: 0,
            free: FreeNids::new(&layout, checkpoint.next_free_nid),
            with_nodes: WithNodes::default(),
        };
        let state = Mutex::new_ordered(Rank::Allocator, LOCK_ORDER, state);
        let learning = Mutex::new_ordered(Rank::Allocator, LEARNING_ORDER, ());
        Self { layout, cache, state, learning, stats: NatStats::default() }
    }

    /// The entry of a nid, which may be free. Nids 0, 1 and 2, and numbers beyond the table, are
    /// free.
    ///
    /// # Errors
    /// The entry is impossible, or the device failed.
    pub fn lookup(&self, nid: Nid) -> Result<NatEntry> {
        if !self.layout.is_nid(nid) || nid < Nid::ROOT {
            return Ok(NatEntry::default());
        }
        Ok(self.entry(nid)?.validate(nid, &self.layout)?)
    }

    /// The address of this nid's node, if there is one.
    ///
    /// # Errors
    /// As [`Nat::lookup`].
    pub(crate) fn address(&self, nid: Nid) -> Result<Option<BlockAddr>> {
        let entry = self.lookup(nid)?;
        Ok((!entry.is_free()).then_some(entry.block_addr))
    }

    /// True if the newest snapshot has a node with this nid.
    ///
    /// # Errors
    /// As [`Nat::lookup`].
    pub(crate) fn is_committed(&self, nid: Nid) -> Result<bool> {
        if !self.layout.is_nid(nid) || nid < Nid::ROOT {
            return Ok(false);
        }
        Ok(!self.entry_of(nid, |state| state.in_snapshot(nid))?.is_free())
    }

    fn entry(&self, nid: Nid) -> Result<NatEntry> {
        self.entry_of(nid, |state| state.known(nid))
    }

    /// The entry in `known`, else in the NAT block.
    fn entry_of(&self, nid: Nid, known: impl Fn(&State) -> Option<NatEntry>) -> Result<NatEntry> {
        if !self.layout.is_nid(nid) {
            return Err(Corrupt::Nat {
                nid,
                what: "there is no such nid",
                value: nid.get().into(),
            }
            .into());
        }
        let (block, index) = Layout::nat_place(nid);
        loop {
            let (side, generation) = {
                let state = self.state.lock();
                if let Some(entry) = known(&state) {
                    return Ok(entry);
                }
                (state.side(block), state.generation)
            };
            let image = self.block(block, side)?;
            if self.state.lock().generation == generation {
                return Ok(nat::entry(&image, index));
            }
        }
    }

    fn block(&self, block: u32, side: Side) -> Result<Image> {
        self.stats.block_lookups.add(1);
        Ok(self.cache.get(self.layout.nat_address(block, side))?.image())
    }

    /// The version that summaries of this nid's data blocks carry; the nid may be one that was just
    /// allocated.
    ///
    /// # Errors
    /// As [`Nat::lookup`].
    pub fn version(&self, nid: Nid) -> Result<u8> {
        if let Some(version) = self.state.lock().free.allocated_version(nid) {
            return Ok(version);
        }
        Ok(self.lookup(nid)?.version)
    }

    /// Allocates a nid. It belongs to the caller until it gets an address or is freed.
    ///
    /// # Errors
    /// No nid is free, or the device failed.
    pub(crate) fn allocate(&self) -> Result<Nid> {
        loop {
            let (block, side, generation) = {
                let mut state = self.state.lock();
                if let Some(nid) = state.free.take() {
                    return Ok(nid);
                }
                let Some(block) = state.free.next_block() else { return Err(Error::NO_SPACE) };
                (block, state.side(block), state.generation)
            };
            let image = self.block(block, side)?;
            self.stats.blocks_scanned.add(1);
            let mut state = self.state.lock();
            if state.generation == generation {
                let State { changed, in_flight, journal, free, with_nodes, .. } = &mut *state;
                let damaged = free.scan(
                    block,
                    &image,
                    |nid| journal.get(&nid).copied(),
                    |nid| changed.contains_key(&nid) || in_flight.contains_key(&nid),
                    |nid| with_nodes.has(nid),
                );
                if let Some(nid) = damaged {
                    with_nodes.note_damaged(nid);
                }
            }
        }
    }

    /// As [`Nat::allocate`], for a certain nid: roll-forward makes an inode that had it.
    ///
    /// # Errors
    /// It is in use, or the NAT cannot be read.
    pub(crate) fn allocate_exact(&self, nid: Nid) -> Result<()> {
        let entry = self.lookup(nid)?;
        if !self.layout.is_nid(nid) || nid < Nid::ROOT || !entry.is_free() {
            return Err(Corrupt::Nat {
                nid,
                what: "roll-forward needs a number that is in use",
                value: 0,
            }
            .into());
        }
        self.state.lock().free.allocate_exact(nid, entry.version);
        Ok(())
    }

    /// Frees a nid that was allocated and never had an address.
    ///
    /// # Panics
    /// It is not one.
    pub(crate) fn give_back(&self, nid: Nid) {
        let returned = self.state.lock().free.give_back(nid);
        assert!(returned, "nid {nid} is given back but was not just allocated");
    }

    /// Sets the node's address to `addr`. Returns the old one ([`BlockAddr::NULL`] if there was
    /// none).
    ///
    /// # Errors
    /// As [`Nat::lookup`]; none if the nid was just allocated or has changed since the last
    /// checkpoint.
    #[cfg(test)]
    pub(crate) fn set_address(&self, nid: Nid, ino: Nid, addr: BlockAddr) -> Result<BlockAddr> {
        let allocated = self.state.lock().free.allocated_version(nid);
        let old = match allocated {
            Some(version) => NatEntry { version, ..NatEntry::default() },
            None => self.entry(nid)?,
        };
        self.set(nid, NatEntry { version: old.version, ino, block_addr: addr });
        Ok(old.block_addr)
    }

    /// Replaces an entry by one that the caller knows to be right.
    ///
    /// # Panics
    /// There can be no node at the address.
    pub fn set(&self, nid: Nid, entry: NatEntry) {
        assert!(self.layout.in_main(entry.block_addr), "nid {nid} at {}", entry.block_addr);
        let mut state = self.state.lock();
        state.free.forget(nid);
        state.changed.insert(nid, entry);
    }

    /// As [`Nat::set`], for several nodes.
    ///
    /// # Panics
    /// There can be no node at one of the addresses.
    pub(crate) fn set_all(&self, entries: &[(Nid, NatEntry)]) {
        let mut state = self.state.lock();
        for (nid, entry) in entries {
            assert!(self.layout.in_main(entry.block_addr), "nid {nid} at {}", entry.block_addr);
            state.free.forget(*nid);
            state.changed.insert(*nid, *entry);
        }
    }

    /// Removes a node's entry. The nid can be allocated again after a checkpoint. Returns the
    /// node's address; `None` if it never had one: then the nid stays allocated until
    /// [`Nat::give_back`].
    ///
    /// # Errors
    /// As [`Nat::lookup`]; none if the nid has changed since the last checkpoint.
    pub(crate) fn free(&self, nid: Nid) -> Result<Option<BlockAddr>> {
        if self.state.lock().free.allocated_version(nid).is_some() {
            return Ok(None);
        }
        let old = self.entry(nid)?;
        let version = old.version.wrapping_add(1);
        let entry = NatEntry { version, ino: Nid::NONE, block_addr: BlockAddr::NULL };
        let mut state = self.state.lock();
        state.changed.insert(nid, entry);
        state.with_nodes.freed(nid);
        if Safeguard::CheckpointNids.is_off() {
            state.free.add(nid, version);
        }
        Ok(Some(old.block_addr))
    }

    /// Sets which nids valid nodes have, unless it is known already: `found` tells it, without a
    /// lock of the NAT. Nodes may be freed meanwhile. Called before the first nid is allocated.
    pub(crate) fn learn_nodes(&self, found: impl FnOnce() -> NidSet) {
        if self.state.lock().with_nodes.is_known() {
            return;
        }
        let _one_at_a_time = self.learning.lock();
        if self.state.lock().with_nodes.is_known() {
            return;
        }
        let found = found();
        self.state.lock().with_nodes.learn(found);
    }

    /// The NAT called the node of an nid free, and this was found since the last call.
    #[must_use]
    pub(crate) fn take_damaged(&self) -> Option<Corrupt> {
        let nid = self.state.lock().with_nodes.take_damaged()?;
        Some(Corrupt::Nat { nid, what: "a number in use is called free", value: 0 })
    }

    /// True if an entry has changed since the last snapshot.
    #[must_use]
    pub(crate) fn is_dirty(&self) -> bool {
        !self.state.lock().changed.is_empty()
    }

    /// A good place to look for a free nid at the next mount: `next_free_nid`.
    #[must_use]
    pub(crate) fn next_free(&self) -> Nid {
        self.state.lock().free.hint()
    }
}

#[cfg(test)]
mod tests;
