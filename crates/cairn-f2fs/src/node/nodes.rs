//! Node blocks in memory: found by nid, changed in place, written to the node logs.
//!
//! A node is read once. It stays in memory while it is referenced or dirty; clean nodes are evicted
//! under the volume's budget. A pinned image (a write in flight) is copied when it is changed.
//! Every write gives a node a new address, frees the old one and changes the NAT.
//!
//! Invariants: one [`Node`] for each nid; a dirty node is in the dirty list, which holds it in
//! memory; a node's address changes only in [`Nodes::write`], which one thread at a time calls for
//! a node (under an inode's lock, or the exclusive operation lock).
//!
//! Locking, in this order: the chain (which write comes after which in the logs), a node's image
//! (rank Node, several in rising order of nid), NAT, segments, the index. The index and the dirty
//! list are not held during I/O.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Weak};

use cairn_base::ranked_lock::{Mutex, Rank};
use cairn_base::stats::Counter;
use cairn_block::BlockDevice;
use cairn_cache::block::{Image, image_bytes};
use cairn_cache::budget::{Budget, Reclaim, Use};

use crate::blocks;
use crate::corrupt::Corrupt;
use crate::error::Result;
use crate::format::node::Marks;
use crate::format::path::NodeKind;
use crate::format::units::{BLOCK_BYTES, BLOCK_SIZE};
use crate::format::{BlockAddr, Layout, NatEntry, Nid, NodeFooter, inode};
use crate::nat::Nat;
use crate::segment::Segments;
use crate::space::{Reservation, Space};

use super::block::{DirtyList, Node, Owner};
use super::chain::Chain;
use super::index::Index;

/// Nodes that are examined for each one to evict.
const LOOKS: u64 = 16;

/// Memory that a node takes.
pub(crate) const NODE_BYTES: u64 = image_bytes(BLOCK_BYTES);

/// The number of a removed node; see [`Nodes::release`].
#[must_use = "the number can be given out again only when it is released"]
#[derive(Debug)]
pub(crate) struct Removed {
    nid: Nid,
    /// It never had an address.
    at_once: bool,
}

/// The node blocks of a writable volume that are in memory.
pub struct Nodes {
    pub(super) layout: Layout,
    pub(super) device: Arc<dyn BlockDevice>,
    budget: Arc<Budget>,
    pub(super) nat: Arc<Nat>,
    /// `None` on a read-only volume.
    room: Option<Room>,
    index: Index,
    dirty: Arc<DirtyList>,
    pub(super) chain: Chain,
    /// `cp_ver` of the footers of nodes written now.
    version: AtomicU64,
    /// The next shard to evict clean nodes from.
    hand: AtomicUsize,
    /// Nodes in memory.
    resident: AtomicU64,
    /// Counters.
    pub stats: NodeStats,
}

/// Where nodes take their blocks from.
pub struct Room {
    /// The logs.
    pub(crate) segments: Arc<Segments>,
    /// The counters.
    pub(crate) space: Arc<Space>,
}

/// Counters of nodes.
#[derive(Debug, Default)]
pub struct NodeStats {
    /// Read from the device.
    pub(crate) read: Counter,
    /// Written in all.
    pub written: Counter,
    /// Written for an fsync: with a mark.
    pub(crate) marked: Counter,
    /// Evicted from memory.
    pub(crate) evicted: Counter,
    /// Batches that had to wait for an earlier one of the chain.
    pub(crate) chain_waits: Counter,
}

impl Nodes {
    /// An empty cache. Without `room` nodes can only be read. `version` is
    /// [`crate::format::Checkpoint::node_version`] of the last checkpoint.
    #[must_use]
    pub fn new(
        layout: Layout,
        device: Arc<dyn BlockDevice>,
        budget: Arc<Budget>,
        nat: Arc<Nat>,
        room: Option<Room>,
        version: u64,
    ) -> Arc<Self> {
        let nodes = Arc::new(Self {
            layout,
            device,
            budget: budget.clone(),
            nat,
            room,
            index: Index::new(),
            dirty: Arc::new(Mutex::new(Rank::Leaf, BTreeMap::new())),
            chain: Chain::new(Rank::NodeChain),
            version: AtomicU64::new(version),
            hand: AtomicUsize::new(0),
            resident: AtomicU64::new(0),
            stats: NodeStats::default(),
        });
        let hook: Weak<dyn Reclaim> = Arc::downgrade(&(nodes.clone() as Arc<dyn Reclaim>));
        budget.add_reclaim(hook);
        nodes
    }

    pub(super) fn room(&self) -> &Room {
        self.room.as_ref().expect("nodes of a volume that is only read do not change")
    }

    /// A node, read if it is not in memory. Its footer has been checked against the NAT.
    ///
    /// # Errors
    /// No node has this nid, the block at its address is another one, an inode's checksum is wrong;
    /// or the device failed.
    pub(crate) fn get(&self, nid: Nid) -> Result<Arc<Node>> {
        let node = self.index.get_or_load(nid, || self.load(nid))?;
        if self.budget.over() > 0 {
            self.budget.make_room(0);
        }
        Ok(node)
    }

    /// The node at `offset` in the tree of inode `ino`, to which its parent points.
    ///
    /// # Errors
    /// As [`Nodes::get`]; or the node's footer names another place.
    pub(crate) fn child(&self, nid: Nid, ino: Nid, offset: u32) -> Result<Arc<Node>> {
        let node = self.get(nid)?;
        let bad = |what, value: u32| Corrupt::Node {
            nid,
            addr: node.address(),
            what,
            value: value.into(),
        };
        if node.ino() != ino {
            return Err(
                bad("the footer names another inode than the parent's", node.ino().get()).into()
            );
        }
        if node.offset() != offset {
            return Err(
                bad("the footer's offset is not where the parent points", node.offset()).into()
            );
        }
        Ok(node)
    }

    /// The node of an inode; `None` if there is no such inode.
    ///
    /// # Errors
    /// As [`Nodes::get`].
    pub fn inode(&self, ino: Nid) -> Result<Option<Arc<Node>>> {
        // A node that was just made has no NAT entry yet.
        if let Some(node) = self.index.peek(ino) {
            return Ok((node.kind() == NodeKind::Inode).then_some(node));
        }
        let entry = self.nat.lookup(ino)?;
        // The number belongs to another kind of node, so no such inode exists.
        if entry.is_free() || entry.ino != ino {
            return Ok(None);
        }
        self.get(ino).map(Some)
    }

    fn load(&self, nid: Nid) -> Result<Arc<Node>> {
        let entry = self.nat.lookup(nid)?;
        if entry.is_free() {
            return Err(Corrupt::Nat {
                nid,
                what: "a pointer names a node that does not exist",
                value: 0,
            }
            .into());
        }
        let mut entry = entry;
        let bytes = loop {
            let bytes = blocks::read(&*self.device, entry.block_addr.pba(), 1)?;
            // The node may have been written elsewhere meanwhile, and its old block may have been
            // allocated again.
            let now = self.nat.lookup(nid)?;
            if now == entry || now.is_free() {
                break bytes;
            }
            entry = now;
        };
        self.decode(nid, entry, bytes.into())
    }

    /// The node of a block that was read from the address in its NAT entry.
    fn decode(&self, nid: Nid, entry: NatEntry, image: Image) -> Result<Arc<Node>> {
        self.stats.read.add(1);
        let footer = NodeFooter::read(&image);
        footer.check(nid, entry.ino, entry.block_addr)?;
        let bad =
            |what| Corrupt::Node { nid, addr: entry.block_addr, what, value: footer.offset.into() };
        let kind = NodeKind::at(footer.offset)
            .ok_or_else(|| bad("the footer's offset is beyond the tree"))?;
        if (kind == NodeKind::Inode) != footer.is_inode() {
            return Err(bad("offset 0 belongs to inodes alone").into());
        }
        if kind == NodeKind::Inode {
            inode::verify(&image, nid, &self.layout)?;
        }
        if self.room.as_ref().is_some_and(|room| !room.segments.is_valid(entry.block_addr)) {
            return Err(old_version(nid, entry.block_addr).into());
        }
        Ok(self.adopt(image, footer, kind, entry))
    }

    /// Brings those of these nodes into memory that exist and are not there, in one batch. Sorts
    /// `nids`. The caller bounds their number. The cache may evict them at any time.
    ///
    /// # Errors
    /// As [`Nodes::get`], but for nids without a node.
    pub(crate) fn load_many(&self, nids: &mut Vec<Nid>) -> Result<()> {
        nids.dedup();
        nids.retain(|nid| self.index.peek(*nid).is_none());
        if nids.is_empty() {
            return Ok(());
        }
        nids.sort_unstable();
        nids.dedup();
        let mut wanted = Vec::with_capacity(nids.len());
        for nid in nids.iter() {
            let entry = self.nat.lookup(*nid)?;
            if !entry.is_free() {
                wanted.push((entry.block_addr, *nid, entry));
            }
        }
        wanted.sort_unstable_by_key(|(addr, ..)| *addr);
        let addrs: Vec<BlockAddr> = wanted.iter().map(|(addr, ..)| *addr).collect();
        let blocks = blocks::read_many(&*self.device, &addrs)?;
        for ((_, nid, entry), block) in wanted.into_iter().zip(blocks.iter()) {
            self.index.get_or_load(nid, || {
                let same = self.nat.lookup(nid)? == entry;
                if same { self.decode(nid, entry, block.into()) } else { self.load(nid) }
            })?;
        }
        if self.budget.over() > 0 {
            self.budget.make_room(0);
        }
        Ok(())
    }

    fn adopt(
        &self,
        image: Image,
        footer: NodeFooter,
        kind: NodeKind,
        entry: NatEntry,
    ) -> Arc<Node> {
        self.budget.charge(Use::Metadata, NODE_BYTES);
        self.resident.fetch_add(1, Relaxed);
        let owner =
            if footer.marks.contains(Marks::COLD) { Owner::Other } else { Owner::Directory };
        Arc::new(Node::new(image, footer, kind, owner, entry, self.dirty.clone()))
    }

    /// A new node: zeros and a footer, dirty, without an address until it is written. `nid` was
    /// just allocated; the block and the node are counted.
    ///
    /// # Errors
    /// The NAT cannot be read.
    ///
    /// # Panics
    /// The nid is in use, there is no such offset, or the reservation is used up.
    pub fn create(
        &self,
        nid: Nid,
        ino: Nid,
        offset: u32,
        owner: Owner,
        reservation: &mut Reservation,
    ) -> Result<Arc<Node>> {
        let kind = NodeKind::at(offset).expect("a node in the tree");
        assert_eq!(kind == NodeKind::Inode, nid == ino, "offset 0 belongs to inodes alone");
        let version = self.nat.version(nid)?;
        let marks = if owner == Owner::Other { Marks::COLD } else { Marks::empty() };
        let footer =
            NodeFooter { nid, ino, marks, offset, cp_ver: 0, next_blkaddr: BlockAddr::NULL };
        let mut image = Image::zeroed(BLOCK_SIZE);
        footer.write(image.make_mut());
        let entry = NatEntry { version, ino, block_addr: BlockAddr::NULL };
        let node = self.adopt(image, footer, kind, entry);
        self.index.insert(nid, node.clone());
        reservation.take_node(kind == NodeKind::Inode);
        drop(node.modify());
        Ok(node)
    }

    /// Removes the node: frees its block and its count, and drops its changes. The caller has freed
    /// everything below it, and [releases](Nodes::release) the nid when nothing in memory uses that
    /// number any more.
    ///
    /// # Errors
    /// As [`Nodes::get`]; or its block was not in use.
    pub(crate) fn remove(&self, nid: Nid) -> Result<Removed> {
        let node = self.get(nid)?;
        let guard = node.retire();
        self.dirty.lock().remove(&(node.ino(), nid));
        let addr = self.nat.free(nid)?;
        if let Some(addr) = addr.filter(|addr| *addr != BlockAddr::NULL) {
            self.room().segments.invalidate(addr)?;
        }
        self.room().space.release_node(node.kind() == NodeKind::Inode);
        drop(guard);
        if self.index.remove(nid) {
            self.gave_up(1);
        }
        Ok(Removed { nid, at_once: addr.is_none() })
    }

    /// Makes the nid of a removed node free: at once if no checkpoint and no log has it.
    pub(crate) fn release(&self, removed: Removed) {
        if removed.at_once {
            self.nat.give_back(removed.nid);
        }
    }

    /// The node, if it is in memory.
    #[must_use]
    pub(crate) fn peek(&self, nid: Nid) -> Option<Arc<Node>> {
        self.index.peek(nid)
    }

    /// Evicts up to `most` nodes and examines up to `looks`. Returns the number of evicted nodes.
    fn evict(&self, most: u64, mut looks: u64) -> u64 {
        let mut count = 0;
        // Two rounds: if all nodes were used, the first one only clears their marks.
        for _ in 0..2 * Index::SHARDS {
            if count >= most || looks == 0 {
                break;
            }
            let shard = self.hand.fetch_add(1, Relaxed) % Index::SHARDS;
            count += self.index.evict(shard, most - count, &mut looks);
        }
        self.stats.evicted.add(count);
        self.gave_up(count);
        count
    }

    fn gave_up(&self, count: u64) {
        self.resident.fetch_sub(count, Relaxed);
        self.budget.uncharge(Use::Metadata, count * NODE_BYTES);
    }

    // --- dirty nodes ---

    /// Number of dirty nodes.
    #[must_use]
    pub(crate) fn dirty_count(&self) -> usize {
        self.dirty.lock().len()
    }

    /// The dirty nodes of one inode.
    #[must_use]
    pub(crate) fn dirty_of(&self, ino: Nid) -> Vec<Arc<Node>> {
        self.dirty
            .lock()
            .range((ino, Nid(0))..=(ino, Nid(u32::MAX)))
            .map(|(_, node)| node.clone())
            .collect()
    }

    /// All dirty nodes, by the log they go to.
    #[must_use]
    pub(crate) fn dirty_in(&self, log: crate::format::Log) -> Vec<Arc<Node>> {
        self.dirty.lock().values().filter(|node| node.log() == log).cloned().collect()
    }

    /// Numbers of the dirty nodes.
    #[must_use]
    pub(crate) fn dirty_nids(&self) -> Vec<Nid> {
        self.dirty.lock().keys().map(|(_, nid)| *nid).collect()
    }

    /// `cp_ver` of nodes written now.
    #[must_use]
    pub fn version(&self) -> u64 {
        self.version.load(Relaxed)
    }

    /// Called when a checkpoint takes its snapshot, with the operation lock held exclusively: nodes
    /// written from now on have its version.
    pub(crate) fn set_version(&self, version: u64) {
        self.version.store(version, Relaxed);
    }
}

/// The block of a node that the SIT calls free: the NAT leads to what the node was before.
pub(super) const fn old_version(nid: Nid, addr: BlockAddr) -> Corrupt {
    let what = "the SIT has the block as free, so it is an old version of the node";
    Corrupt::Node { nid, addr, what, value: 0 }
}

impl Reclaim for Nodes {
    fn reclaim(&self, bytes: u64) -> u64 {
        // The search stays short even if nearly all nodes are dirty (recovery writes none before
        // its end).
        let clean = self.resident.load(Relaxed).saturating_sub(self.dirty_count() as u64);
        let most = bytes.div_ceil(NODE_BYTES).min(clean);
        self.evict(most, LOOKS * (most + 1)) * NODE_BYTES
    }
}
