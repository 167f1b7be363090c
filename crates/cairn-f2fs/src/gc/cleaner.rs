//! The cleaner: the parts it works on, and its state between two calls.
//!
//! Locking: `working` is held during cleaning. It is taken after inodes and before the operation
//! lock.

use std::collections::BTreeSet;
use std::sync::Arc;

use cairn_base::ranked_lock::{Mutex, Rank};
use cairn_cache::budget::{Charge, Use};

use super::adaptive::RecentWrites;
use super::merged::Merged;
use super::stats::GcStats;
use crate::blocks::Spare;
use crate::inodes::Inodes;
use crate::mount_state::MountState;
use crate::segment::SectionInfo;
use crate::store::Store;

/// Chooses victims and moves their valid blocks; one thread cleans at a time.
pub(crate) struct Cleaner {
    pub(crate) mount: Arc<MountState>,
    pub(crate) inodes: Arc<Inodes>,
    /// Held during cleaning.
    pub(super) working: Mutex<Working>,
    /// The buffer for moved blocks, kept between calls of cleaning. It counts in the cache's
    /// budget.
    spare: Mutex<Option<(Spare, Charge)>>,
    /// Requests that the daemon serves.
    pub(crate) merged: Merged,
    /// Counters.
    pub(crate) stats: GcStats,
}

/// What cleaning remembers.
#[derive(Default)]
pub(super) struct Working {
    /// Sections that cannot be cleaned, because some of their blocks have no owner, or cannot be
    /// read.
    pub(super) stuck: BTreeSet<u32>,
    /// Sections of nodes that the next checkpoint empties.
    pub(super) deferred: BTreeSet<u32>,
    /// The checkpoint after which `deferred` began.
    version: u64,
    /// What was written recently.
    pub(super) recent: RecentWrites,
}

impl Working {
    /// Clears `deferred` after a new checkpoint, which has emptied these sections.
    pub(super) fn follow(&mut self, version: u64) {
        if self.version != version {
            self.version = version;
            self.deferred.clear();
        }
    }

    pub(super) fn is_out(&self, info: &SectionInfo) -> bool {
        self.stuck.contains(&info.section) || self.deferred.contains(&info.section)
    }
}

impl Cleaner {
    pub(crate) fn new(inodes: Arc<Inodes>) -> Self {
        Self {
            mount: inodes.mount.clone(),
            inodes,
            working: Mutex::new(Rank::Cleaner, Working::default()),
            spare: Mutex::new(Rank::Leaf, None),
            merged: Merged::default(),
            stats: GcStats::default(),
        }
    }

    pub(super) fn take_spare(&self) -> Spare {
        self.spare.lock().take().map_or_else(Spare::default, |(spare, _)| spare)
    }

    pub(super) fn keep_spare(&self, store: &Store, spare: Spare) {
        let charge = store.budget.hold(Use::Metadata, spare.bytes() as u64);
        *self.spare.lock() = Some((spare, charge));
    }
}
