//! Foreground cleaning: what is still valid in a section moves away, and the next checkpoint makes the section free.
//!
//! The section with the fewest valid blocks goes first. Data blocks are copied as they are on the device to the cold log,
//! whatever the page cache holds: what is dirty there is written later, to wherever the pointer leads then. Node blocks are made
//! dirty, and the checkpoint writes them. All of it happens with the gate closed and without readers, so nobody uses an
//! address that moves; no lock of an inode is needed.
//!
//! Locking: one cleaner at a time (after inodes, before the gate).

use std::collections::BTreeSet;
use std::sync::Arc;

use cairn_base::ranked_lock::{Mutex, Rank};
use cairn_base::stats::{Counter, Report};
use cairn_block::{BlockDevice, Bytes};

use crate::blocks::{self, Writes};
use crate::checkpoint::Reason;
use crate::error::Result;
use crate::format::inode::Inode as Record;
use crate::format::path::NodeKind;
use crate::format::units::{BLOCK_SIZE, BLOCKS_PER_SEGMENT};
use crate::format::{BlockAddr, CheckpointFlags, Log, SegNo, bits, node};
use crate::node::Node;
use crate::segment::{Owner, Segments};
use crate::store::Store;
use crate::volume::Volume;

/// After inode.data and an inode's fsync, before the gate.
const CLEANER: Rank = Rank(230);
/// Sections cleaned in one call at most.
const ROUNDS: u32 = 64;
/// Sections that are made free beyond what is needed, so that the next operation does not ask again.
const SPARE: u32 = 2;

/// See the module.
pub struct Cleaner {
    /// Sections that cannot be cleaned: something in them has no owner.
    stuck: Mutex<BTreeSet<u32>>,
    /// Counters.
    pub stats: CleanerStats,
}

/// What cleaning cost.
#[derive(Debug, Default)]
pub struct CleanerStats {
    /// Sections cleaned.
    pub sections: Counter,
    /// Data blocks moved.
    pub data: Counter,
    /// Node blocks moved.
    pub nodes: Counter,
}

impl CleanerStats {
    /// The counters, by name.
    #[must_use]
    pub fn report(&self) -> Report {
        Report::new()
            .with("sections", self.sections.get())
            .with("data_blocks", self.data.get())
            .with("node_blocks", self.nodes.get())
    }
}

impl Default for Cleaner {
    fn default() -> Self {
        Self { stuck: Mutex::new(CLEANER, BTreeSet::new()), stats: CleanerStats::default() }
    }
}

/// A valid data block: where it is, what points to it.
pub(crate) struct Live {
    addr: BlockAddr,
    owner: Owner,
    /// The node with the pointer.
    pub(crate) node: Arc<Node>,
    /// The byte in the node where the pointer stands.
    at: usize,
}

impl Live {
    /// Makes the pointer say something else.
    pub(crate) fn set(&self, addr: BlockAddr) {
        self.node.modify()[self.at..self.at + 4].copy_from_slice(&addr.get().to_le_bytes());
    }
}

impl Volume {
    /// Cleans until `wanted` sections are free, or nothing can be gained. Call it outside the gate.
    ///
    /// # Errors
    /// A node is damaged, or the device failed: the volume stops.
    pub(crate) fn clean(&self, wanted: u32) -> Result<()> {
        let store = self.store()?;
        let mut stuck = self.cleaner.stuck.lock();
        for _ in 0..ROUNDS {
            if store.segments.free_sections() >= wanted + SPARE {
                break;
            }
            if store.segments.prefree_segments() >= store.layout.segs_per_sec {
                store.checkpoints.write(Reason::Cleaning)?;
                continue;
            }
            let Some(section) = victim(store, &stuck) else { break };
            let cut = store.gate.close_to_move();
            store.gate.check()?;
            let outcome = self.move_section(store, section, &mut stuck);
            self.stop_after(&outcome);
            outcome?;
            drop(cut);
            self.cleaner.stats.sections.add(1);
            store.checkpoints.write(Reason::Cleaning)?;
        }
        Ok(())
    }

    fn move_section(&self, store: &Store, section: u32, stuck: &mut BTreeSet<u32>) -> Result<()> {
        for segno in Segments::segments_of(&store.layout, section) {
            let info = store.segments.segment(segno);
            if info.valid == 0 {
                continue;
            }
            let valid = addresses(store, segno);
            let owners = store.segments.owners(segno)?;
            let owned = valid.iter().map(|(block, addr)| (*addr, owners.entries[usize::from(*block)]));
            let lost = if info.log.is_node() { self.move_nodes(store, owned)? } else { self.move_data(store, owned)? };
            if lost > 0 {
                tracing::warn!(%segno, lost, "blocks without an owner: fsck.f2fs must look at this volume");
                store.checkpoints.raise(CheckpointFlags::FSCK);
                stuck.insert(section);
            }
        }
        Ok(())
    }

    /// The checkpoint gives them new places. Returns how many belong to nobody.
    fn move_nodes(&self, store: &Store, owned: impl Iterator<Item = (BlockAddr, Owner)>) -> Result<u64> {
        let mut lost = 0;
        for (addr, owner) in owned {
            if store.nat.address(owner.nid)? == Some(addr) {
                drop(store.nodes.get(owner.nid)?.modify());
                self.cleaner.stats.nodes.add(1);
            } else {
                lost += 1;
            }
        }
        Ok(lost)
    }

    /// Copies data blocks to the cold log. Returns how many belong to nobody.
    fn move_data(&self, store: &Store, owned: impl Iterator<Item = (BlockAddr, Owner)>) -> Result<u64> {
        let (mut live, mut lost) = (Vec::new(), 0);
        for (addr, owner) in owned {
            match find(store, addr, owner)? {
                Some(found) => live.push(found),
                None => lost += 1,
            }
        }
        let owners: Vec<Owner> = live.iter().map(|block| block.owner).collect();
        let mut writes = Writes::new();
        let mut at = 0;
        while at < live.len() {
            let placed = store.segments.place(Log::ColdData, &owners[at..])?;
            for (index, block) in (0..).zip(&live[at..at + placed.count]) {
                let to = BlockAddr(placed.address.get() + index);
                writes.push(to.pba(), Bytes::from_owner(blocks::read(&*store.device, block.addr.pba(), 1)?));
                block.set(to);
                store.segments.invalidate(block.addr)?;
            }
            at += placed.count;
        }
        self.cleaner.stats.data.add(live.len() as u64);
        writes.write(&*store.device as &dyn BlockDevice)?;
        Ok(lost)
    }
}

/// The section that costs least, if cleaning it gains anything.
fn victim(store: &Store, stuck: &BTreeSet<u32>) -> Option<u32> {
    let all = store.segments.used_sections(0, store.layout.sections as usize);
    let whole = store.layout.segs_per_sec * BLOCKS_PER_SEGMENT;
    let worth = all.into_iter().filter(|info| info.valid < whole && !stuck.contains(&info.section));
    worth.min_by_key(|info| info.valid).map(|info| info.section)
}

/// The valid blocks of a segment. Its other blocks are kept from being taken: a log that filled them would undo the cleaning.
fn addresses(store: &Store, segno: SegNo) -> Vec<(u16, BlockAddr)> {
    let map = store.segments.valid_map(segno);
    let mut valid = Vec::new();
    for block in 0..BLOCKS_PER_SEGMENT as u16 {
        let addr = store.layout.address(segno, block);
        if bits::test(&map, block.into()) {
            valid.push((block, addr));
        } else {
            store.segments.protect(addr);
        }
    }
    valid
}

/// What points to a data block, if its owner in the summary does.
pub(crate) fn find(store: &Store, addr: BlockAddr, owner: Owner) -> Result<Option<Live>> {
    if store.nodes.peek(owner.nid).is_none() && store.nat.lookup(owner.nid)?.is_free() {
        return Ok(None);
    }
    let node = store.nodes.get(owner.nid)?;
    let slot = usize::from(owner.ofs_in_node);
    let image = node.image();
    let at = match node.kind() {
        NodeKind::Inode => {
            let record = Record::decode(&image, node.ino(), store.layout.features)?;
            if slot >= record.address_slots() as usize {
                return Ok(None);
            }
            record.data_pointer_at(slot as u32)
        }
        NodeKind::Direct if slot < node::POINTERS => 4 * slot,
        _ => return Ok(None),
    };
    debug_assert!(at + 4 <= BLOCK_SIZE);
    let word = image.get(at..at + 4).and_then(|bytes| bytes.first_chunk::<4>());
    let points = word.is_some_and(|word| u32::from_le_bytes(*word) == addr.get());
    Ok(points.then_some(Live { addr, owner, node, at }))
}
