//! Checkpoints: the whole volume consistent on the medium, at once.
//!
//! [`Checkpoints::write`] closes the gate, writes everything dirty to places that the last checkpoint does not use, then the
//! pack that it does not use, and last that pack's closing block, behind a flush and forced through. Until that block is on
//! the medium the last checkpoint counts, whatever happened; from then on the new one does. Only then do the parts take the new
//! state for the present one (`committed`): blocks freed before it may be written again.
//!
//! A write that fails stops the volume ([`crate::gate::Gate::stop`]): memory is ahead of the medium then, and what the last
//! checkpoint holds must stay.
//!
//! Locking: none of its own while the device works but the gate, closed.

mod orphans;
mod read;
pub mod summaries;
mod write;

use std::sync::{Arc, OnceLock, Weak};

use cairn_base::ranked_lock::{Mutex, Rank};
use cairn_base::runtime::Runtime;
use cairn_base::stats::{Counter, Histogram};
use cairn_block::BlockDevice;

use crate::error::Result;
use crate::format::layout::Side;
use crate::format::{Checkpoint, CheckpointFlags, Features, Layout, Nid};
use crate::gate::{Cut, Gate};
use crate::nat::Nat;
use crate::node::Nodes;
use crate::segment::Segments;
use crate::space::Space;

pub use orphans::Orphans;
pub use read::{Loaded, load};

/// Why a checkpoint is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(usize)]
pub enum Reason {
    /// Somebody asked for the whole volume: sync.
    Sync,
    /// An fsync that roll-forward cannot serve.
    Fsync,
    /// Segments are needed that only a checkpoint makes free.
    Cleaning,
    /// Too much is dirty in memory.
    Memory,
    /// Roll-forward is done.
    Recovery,
    /// The volume is closed: the pack gets node summaries and the mark of a clean end.
    Umount,
}

impl Reason {
    /// All reasons.
    pub const ALL: [Self; 6] = [Self::Sync, Self::Fsync, Self::Cleaning, Self::Memory, Self::Recovery, Self::Umount];

    /// Its name in statistics.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Sync => "sync",
            Self::Fsync => "fsync",
            Self::Cleaning => "cleaning",
            Self::Memory => "memory",
            Self::Recovery => "recovery",
            Self::Umount => "umount",
        }
    }
}

/// Who has more in memory than nodes: inodes and directory data.
pub trait Hook: Send + Sync {
    /// Writes what can be written while operations go on (directory data), so that the gate is closed for less time.
    ///
    /// # Errors
    /// A write failed.
    fn prepare(&self) -> Result<()>;

    /// Writes all directory data that is still dirty and puts all inodes' fields into their nodes. The gate is closed: use
    /// `cut` instead of entering it.
    ///
    /// # Errors
    /// A write failed: the volume stops.
    fn cut(&self, cut: &Cut<'_>) -> Result<()>;

    /// Waits for the data writes under way whose blocks this checkpoint makes reachable.
    ///
    /// # Errors
    /// One of them failed.
    fn settle(&self) -> Result<()>;

    /// The checkpoint is on the medium; the gate is still closed.
    fn committed(&self, version: u64);
}

/// What the checkpoint is made of.
pub struct Parts {
    /// The volume's geometry.
    pub layout: Layout,
    /// The volume.
    pub device: Arc<dyn BlockDevice>,
    /// The gate.
    pub gate: Arc<Gate>,
    /// Counters.
    pub space: Arc<Space>,
    /// The NAT.
    pub nat: Arc<Nat>,
    /// The SIT and the logs.
    pub segments: Arc<Segments>,
    /// Node blocks.
    pub nodes: Arc<Nodes>,
    /// Time.
    pub runtime: Arc<dyn Runtime>,
    /// Tell the device about blocks that are not needed any more.
    pub discard: bool,
}

/// See the module.
pub struct Checkpoints {
    parts: Parts,
    hook: OnceLock<Weak<dyn Hook>>,
    state: Mutex<State>,
    /// Inodes without links that are open.
    pub orphans: Orphans,
    /// Counters.
    pub stats: CheckpointStats,
}

struct State {
    /// The last checkpoint on the medium.
    last: Checkpoint,
    side: Side,
    /// Flags to be raised by the next one.
    raise: CheckpointFlags,
}

/// What checkpoints cost.
#[derive(Debug, Default)]
pub struct CheckpointStats {
    /// Written, by reason.
    pub written: [Counter; Reason::ALL.len()],
    /// Asked for while nothing was dirty.
    pub nothing_to_do: Counter,
    /// Failed.
    pub failed: Counter,
    /// Blocks of packs.
    pub pack_blocks: Counter,
    /// Blocks discarded after checkpoints.
    pub discarded_blocks: Counter,
    /// How long the gate was closed.
    pub closed_ns: Histogram,
}

impl Checkpoints {
    /// After the checkpoint of `pack`, which named these orphans.
    #[must_use]
    pub fn new(parts: Parts, pack: &Loaded, orphans: Vec<Nid>) -> Arc<Self> {
        let mut raise = CheckpointFlags::empty();
        if parts.layout.features.contains(Features::QUOTA_INO) {
            // Usage is not kept: whoever keeps it must count anew.
            raise |= CheckpointFlags::QUOTA_NEED_FSCK;
        }
        let state = State { last: pack.checkpoint.clone(), side: pack.side, raise };
        Arc::new(Self {
            orphans: Orphans::new(&parts.layout, orphans),
            parts,
            hook: OnceLock::new(),
            state: Mutex::new(Rank::LEAF, state),
            stats: CheckpointStats::default(),
        })
    }

    /// Whom to ask for what else is dirty. The first one stays.
    pub fn set_hook(&self, hook: Weak<dyn Hook>) {
        self.hook.get_or_init(|| hook);
    }

    fn hook(&self) -> Option<Arc<dyn Hook>> {
        self.hook.get()?.upgrade()
    }

    /// The last checkpoint on the medium.
    #[must_use]
    pub fn last(&self) -> Checkpoint {
        self.state.lock().last.clone()
    }

    /// Version of the last checkpoint.
    #[must_use]
    pub fn version(&self) -> u64 {
        self.state.lock().last.version
    }

    /// All checkpoints from the next one on carry these flags, too: `FSCK`, `ERROR`, `QUOTA_NEED_FSCK`.
    pub fn raise(&self, flags: CheckpointFlags) {
        self.state.lock().raise |= flags;
    }

    /// Is there anything that the last checkpoint does not hold? Inodes and directories that only the [`Hook`] knows are
    /// not counted.
    #[must_use]
    pub fn is_dirty(&self) -> bool {
        let parts = &self.parts;
        self.orphans.is_dirty()
            || parts.nodes.dirty_count() > 0
            || parts.nat.is_dirty()
            || parts.segments.is_dirty()
            || parts.space.is_dirty()
    }
}
