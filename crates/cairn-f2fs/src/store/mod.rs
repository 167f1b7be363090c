//! [`Store`]: the parts that write a volume.
//!
//! | part | knows |
//! |---|---|
//! | `Space` | how much is in use and reserved |
//! | `OperationLock` | which operations run |
//! | `Nat` | where each node is, which nids are free |
//! | `Segments` | valid blocks, the position of each log, the owner of a block |
//! | `Nodes` | node blocks in memory, and how they are written |
//! | [`Checkpoints`] | how all of it reaches the medium at once |
//!
//! An operation reserves space (`Space::reserve`), takes the operation lock, changes nodes
//! (`Node::modify`), places data (`Segments::place`) and invalidates what it replaced, and
//! leaves.
//!
//! `Node::modify`: crate::node::Node::modify

pub(crate) mod live;
mod nids;
mod proof;
mod report;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use cairn_base::runtime::Runtime;
use cairn_block::BlockDevice;
use cairn_cache::block::BufferCache;
use cairn_cache::budget::Budget;

use crate::checkpoint::summaries::{current, journals};
use crate::checkpoint::{Checkpoints, Loaded, Parts, load};
use crate::error::Result;
use crate::format::Layout;
use crate::format::units::BLOCK_SIZE;
use crate::nat::Nat;
use crate::node::{Nodes, Room};
use crate::operation_lock::OperationLock;
use crate::segment::{Mode, SegmentSources, Segments};
use crate::space::{Pending, Space};

/// How a volume is opened.
#[derive(Clone, Copy, Debug)]
pub struct StoreOptions {
    /// How logs find room.
    pub(crate) mode: Mode,
    /// True if freed blocks are to be discarded.
    pub(crate) discard: bool,
}

/// The parts that write a volume: space, NAT, segments, nodes, checkpoints.
pub struct Store {
    /// Geometry.
    pub(crate) layout: Layout,
    /// The volume.
    pub(crate) device: Arc<dyn BlockDevice>,
    /// Memory for everything cached.
    pub(crate) budget: Arc<Budget>,
    /// Counters.
    pub(crate) space: Arc<Space>,
    /// Held shared by every operation.
    pub(crate) operation_lock: Arc<OperationLock>,
    /// The NAT.
    pub(crate) nat: Arc<Nat>,
    /// SIT and logs.
    pub segments: Arc<Segments>,
    /// Node blocks.
    pub nodes: Arc<Nodes>,
    /// Checkpoints.
    pub checkpoints: Arc<Checkpoints>,
    /// Blocks that were unusable when checkpoints were disabled.
    pub(crate) unusable_at_first: AtomicU64,
}

impl Store {
    /// Opens the valid pack for writing. The caller handles its roll-forward chain and its orphans.
    ///
    /// # Errors
    /// The pack, the SIT or a summary is impossible, or the device failed.
    pub fn open(
        device: Arc<dyn BlockDevice>,
        layout: Layout,
        options: StoreOptions,
        budget: Arc<Budget>,
        runtime: Arc<dyn Runtime>,
    ) -> Result<Self> {
        let cache = BufferCache::new(device, BLOCK_SIZE as u32, budget.clone());
        let pack = load(&cache, &layout)?;
        Self::with_pack(cache, budget, layout, &pack, options, runtime)
    }

    /// As [`Store::open`], with the pack that was read already. `cache` holds metadata blocks of
    /// the volume.
    ///
    /// # Errors
    /// As [`Store::open`].
    pub(crate) fn with_pack(
        cache: Arc<BufferCache>,
        budget: Arc<Budget>,
        layout: Layout,
        pack: &Loaded,
        options: StoreOptions,
        runtime: Arc<dyn Runtime>,
    ) -> Result<Self> {
        let device = cache.device().clone();
        let checkpoint = &pack.checkpoint;
        let journals = journals(pack, &cache, &layout)?;
        let segments = Arc::new(Segments::load(SegmentSources {
            layout,
            checkpoint,
            summaries: current(pack, &cache, &layout)?,
            journal: journals.sit,
            cache: cache.clone(),
            runtime: runtime.clone(),
            mode: options.mode,
        })?);
        let space = Space::new(checkpoint, &layout);
        let nat = Arc::new(Nat::new(Arc::new(layout), cache.clone(), checkpoint, &journals.nat));
        let proof = proof::Nodes { layout, device: device.clone(), nat: nat.clone() };
        segments.set_proof(Box::new(proof));
        let room = Room { segments: segments.clone(), space: space.clone() };
        let version = checkpoint.node_version();
        let nodes =
            Nodes::new(layout, device.clone(), budget.clone(), nat.clone(), Some(room), version);
        let operation_lock = Arc::new(OperationLock::new());
        let parts = Parts {
            layout,
            device: device.clone(),
            operation_lock: operation_lock.clone(),
            space: space.clone(),
            nat: nat.clone(),
            segments: segments.clone(),
            nodes: nodes.clone(),
            runtime,
            discard: options.discard && device.geometry().discard,
        };
        let checkpoints = Checkpoints::new(parts, pack, pack.orphans(&cache, &layout)?);
        Ok(Self {
            layout,
            device,
            budget,
            space,
            operation_lock,
            nat,
            segments,
            nodes,
            checkpoints,
            unusable_at_first: AtomicU64::new(0),
        })
    }
    /// Blocks that are neither used nor usable while checkpoints are disabled.
    pub(crate) fn unusable(&self) -> u64 {
        if !self.checkpoints.is_disabled() {
            return 0;
        }
        self.unusable_at_first.load(Ordering::Relaxed) + self.segments.held_back()
    }

    /// Sections that new blocks may take while checkpoints are disabled. Cleaned sections could not
    /// be used before they are enabled again. `pending` needs the others.
    pub(crate) fn spare_sections(&self, pending: Pending) -> u32 {
        let needed = self.space.required_sections(Pending { data: 0, ..pending }).lower;
        let kept = needed.saturating_add(self.space.reserved_sections());
        self.segments.free_sections().saturating_sub(kept)
    }

    /// While checkpoints are disabled, has reservations fail for what the logs could not take,
    /// beside `pending` and `dirty` blocks of data.
    pub(crate) fn limit_space(&self, pending: Pending, dirty: u64) {
        if self.checkpoints.is_disabled() {
            let writable = self.segments.writable(self.spare_sections(pending));
            let (placed, kept) = self.segments.placed();
            let placed = placed.saturating_add(pending.nodes);
            self.space.limit(self.unusable(), writable, placed, (dirty, kept));
        }
    }
}
