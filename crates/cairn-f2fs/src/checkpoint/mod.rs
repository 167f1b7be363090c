//! Checkpoints: each makes the whole volume consistent on the medium in one step.
//!
//! [`Checkpoints::write`] takes the operation lock exclusively, takes a snapshot of everything
//! dirty, with places that the last checkpoint does not use, and releases the lock. Then it writes
//! the snapshot, the pack that the last checkpoint does not use, and last that pack's closing
//! block, behind a flush and forced through. The last checkpoint is valid until that block is on
//! the medium; from then on the new one is. Then the parts make the new state that of the last
//! checkpoint (`committed`): blocks freed before the snapshot may be written again.
//!
//! A write that fails stops the volume (`OperationLock::stop`): memory is then ahead of the medium,
//! the blocks of the last checkpoint must stay, and no later checkpoint is written.
//!
//! Invariants: at most one checkpoint is in flight. A block is allocated only if it is free now, in
//! the checkpoint in flight, and in the last one.
//!
//! Locking: `writing` (before the operation lock) from the call until the checkpoint has completed;
//! the operation lock, exclusively, for the snapshot.

mod coming;
mod gather;
mod merge;
pub(crate) mod newer;
mod orphans;
mod plan;
mod queue;
mod read;
mod reason;
mod request;
pub(crate) mod summaries;
mod sync;
mod write;

use std::sync::{Arc, OnceLock, Weak};

use cairn_base::ranked_lock::{Mutex, Rank};
use cairn_base::runtime::{Event, Runtime};
use cairn_base::stats::{Counter, Histogram};
use cairn_block::BlockDevice;
use cairn_cache::block::Image;

use crate::error::Result;
use crate::format::layout::Side;
use crate::format::{BlockAddr, Checkpoint, CheckpointFlags, Features, Layout, Nid};
use crate::nat::Nat;
use crate::node::Nodes;
use crate::operation_lock::{CheckpointGuard, OperationLock};
use crate::segment::Segments;
use crate::space::Space;

pub(crate) use coming::Announced;
pub(crate) use merge::Merge;
pub use merge::MergeStats;
pub(crate) use orphans::Orphans;
pub use read::load;
pub(crate) use read::{Loaded, read_pack};
pub use reason::Reason;

/// The owner of dirty inodes and directory data, which a checkpoint includes.
pub(crate) trait Hook: Send + Sync {
    /// Reads the blocks that [`Hook::snapshot`] will need, while operations continue. Errors are
    /// ignored here, because the snapshot meets them again.
    fn prepare(&self);

    /// Gives all changed blocks of directories their addresses and copies all inodes' fields into
    /// their nodes. The operation lock is held exclusively, which `guard` proves. Returns the
    /// blocks to write. Until [`Hook::written`] they must not be read from the device.
    ///
    /// # Errors
    /// A node cannot be read, or no segment has room: the volume stops.
    fn snapshot(&self, guard: &CheckpointGuard<'_>) -> Result<Vec<(BlockAddr, Image)>>;

    /// The blocks of the last [`Hook::snapshot`] are on the device.
    fn written(&self);
}

/// The parts that a checkpoint writes.
pub struct Parts {
    /// The volume's geometry.
    pub(crate) layout: Layout,
    /// The volume.
    pub(crate) device: Arc<dyn BlockDevice>,
    /// Held by operations, and exclusively for the snapshot.
    pub(crate) operation_lock: Arc<OperationLock>,
    /// Counters.
    pub(crate) space: Arc<Space>,
    /// The NAT.
    pub(crate) nat: Arc<Nat>,
    /// The SIT and the logs.
    pub(crate) segments: Arc<Segments>,
    /// Node blocks.
    pub(crate) nodes: Arc<Nodes>,
    /// Time.
    pub(crate) runtime: Arc<dyn Runtime>,
    /// True if freed blocks are to be discarded.
    pub(crate) discard: bool,
}

/// Writes checkpoints, one at a time, with the requests that each of them serves.
pub struct Checkpoints {
    parts: Parts,
    hook: OnceLock<Weak<dyn Hook>>,
    /// Held from before the snapshot of a checkpoint until it has completed.
    writing: Mutex<()>,
    state: Mutex<State>,
    /// A checkpoint has completed, or failed.
    completed: Event,
    merge: Merge,
    /// Inodes without links that are open.
    pub(crate) orphans: Orphans,
    /// Counters.
    pub stats: CheckpointStats,
}

struct State {
    /// The last checkpoint on the medium.
    last: Checkpoint,
    /// The newest snapshot's: in flight, or the same as `last`.
    newest: Checkpoint,
    side: Side,
    /// True while checkpoints are disabled: later changes can be dropped.
    disabled: bool,
    /// Flags that the next checkpoint raises.
    raise: CheckpointFlags,
}

/// Counters and times of checkpoints.
#[derive(Debug, Default)]
pub struct CheckpointStats {
    /// Written, by reason.
    pub written: [Counter; Reason::ALL.len()],
    /// Asked for while nothing was dirty.
    pub(crate) nothing_to_do: Counter,
    /// Failed.
    pub(crate) failed: Counter,
    /// Blocks of packs.
    pub(crate) pack_blocks: Counter,
    /// Blocks discarded after checkpoints.
    pub(crate) discarded_blocks: Counter,
    /// How long the checkpoint waited for the operation lock, until running operations had ended.
    pub(crate) closing_ns: Histogram,
    /// How long the operation lock was held exclusively.
    pub(crate) closed_ns: Histogram,
    /// How long checkpoints took in all, from waiting for the operation lock to completion.
    pub(crate) whole_ns: Histogram,
}

impl Checkpoints {
    /// The state after the checkpoint of `pack`, which named these orphans.
    #[must_use]
    pub fn new(parts: Parts, pack: &Loaded, orphans: Vec<Nid>) -> Arc<Self> {
        let mut raise = CheckpointFlags::empty();
        if parts.layout.features.contains(Features::QUOTA_INO) {
            // Quota usage is not maintained: fsck must count it again.
            raise |= CheckpointFlags::QUOTA_NEED_FSCK;
        }
        let last = pack.checkpoint.clone();
        let state = State { newest: last.clone(), last, side: pack.side, disabled: false, raise };
        Arc::new(Self {
            orphans: Orphans::new(&parts.layout, orphans),
            parts,
            hook: OnceLock::new(),
            writing: Mutex::new(Rank::Checkpoint, ()),
            state: Mutex::new(Rank::Leaf, state),
            completed: Event::new(),
            merge: Merge::default(),
            stats: CheckpointStats::default(),
        })
    }

    /// Sets the owner of dirty inodes and directories. Later calls have no effect.
    pub(crate) fn set_hook(&self, hook: Weak<dyn Hook>) {
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

    /// Version of the newest snapshot. New changes are not part of it.
    #[must_use]
    pub fn version(&self) -> u64 {
        self.state.lock().newest.version
    }

    /// Valid blocks in the newest snapshot.
    #[must_use]
    pub(crate) fn valid_blocks(&self) -> u64 {
        self.state.lock().newest.valid_block_count
    }

    /// True if checkpoints are disabled.
    #[must_use]
    pub(crate) fn is_disabled(&self) -> bool {
        self.state.lock().disabled
    }

    /// The daemon's counters.
    #[must_use]
    pub const fn merge_stats(&self) -> &MergeStats {
        &self.merge.stats
    }

    /// Adds flags to all further checkpoints: `FSCK`, `ERROR`, `QUOTA_NEED_FSCK`, `RESIZEFS`.
    pub(crate) fn raise(&self, flags: CheckpointFlags) {
        self.state.lock().raise |= flags;
    }

    /// True if damage was found, or a resize has begun, that the last checkpoint does not record.
    fn asks_for_flags(&self, last: &Checkpoint) -> bool {
        let raise = self.state.lock().raise;
        let asked = raise & (CheckpointFlags::FSCK | CheckpointFlags::RESIZEFS);
        !last.flags.contains(asked)
    }

    /// True if free space is to be discarded and all of it is.
    fn is_trimmed(&self) -> bool {
        self.parts.discard && self.parts.segments.undiscarded_blocks() == 0
    }

    /// True if all free space has been discarded, including the blocks that the last checkpoint
    /// freed.
    fn may_say_trimmed(&self, last: &Checkpoint) -> bool {
        !last.flags.contains(CheckpointFlags::TRIMMED) && self.is_trimmed()
    }

    /// True if anything has changed since the newest snapshot, except inodes and directories that
    /// only the [`Hook`] knows.
    #[must_use]
    pub(crate) fn is_dirty(&self) -> bool {
        let parts = &self.parts;
        self.orphans.is_dirty()
            || parts.nodes.dirty_count() > 0
            || parts.nat.is_dirty()
            || parts.segments.is_dirty()
            || parts.space.is_dirty()
    }
}
