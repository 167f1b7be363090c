//! Garbage collection: what is still valid in a section moves away, and the next checkpoint makes the section free.
//!
//! | part | knows |
//! |---|---|
//! | [`victim`] | which section is cleaned next |
//! | [`policy`] | when foreground cleaning begins, writes a checkpoint and stops |
//! | [`relocate`] | how blocks move while everybody goes on |
//! | [`stats`] | what it all cost |
//!
//! *Foreground*: whoever is about to change the volume has room made first ([`Volume::collect`]), outside the gate.
//!
//! Locking: one cleaner at a time ([`Collector::working`], after inodes, before the gate).

pub mod policy;
pub mod relocate;
pub mod stats;
pub mod victim;

use std::collections::BTreeSet;

use cairn_base::ranked_lock::{Mutex, Rank};

use crate::checkpoint::Reason;
use crate::error::Result;
use crate::format::units::BLOCKS_PER_SEGMENT;
use crate::segment::SectionInfo;
use crate::store::Store;
use crate::volume::Volume;

pub use policy::{GcVictim, Situation};
pub use stats::{GcStats, Written};

use policy::{Begin, Foreground};
use victim::{Choice, Rule};

/// After inode.data and an inode's fsync, before the gate.
const CLEANER: Rank = Rank(230);
/// Sections cleaned in one call at most.
const ROUNDS: u32 = 64;

/// See the module.
pub struct Collector {
    /// Held by whoever cleans. Sections that cannot be cleaned: something in them has no owner.
    working: Mutex<BTreeSet<u32>>,
    /// Counters.
    pub stats: GcStats,
}

impl Default for Collector {
    fn default() -> Self {
        Self { working: Mutex::new(CLEANER, BTreeSet::new()), stats: GcStats::default() }
    }
}

impl Volume {
    /// Makes room for what is pending, as far as there is something to gain. Call it outside the gate.
    ///
    /// # Errors
    /// A node is damaged, or the device failed: the volume stops.
    pub(crate) fn collect(&self) -> Result<()> {
        let store = self.store()?;
        let mut stuck = self.gc.working.lock();
        if self.situation()?.enough(0) {
            // Somebody else made room meanwhile.
            return Ok(());
        }
        self.gc.stats.calls_fg.add(1);
        let outcome = self.foreground(store, &mut stuck);
        self.stop_after(&outcome);
        outcome
    }

    fn foreground(&self, store: &Store, stuck: &mut BTreeSet<u32>) -> Result<()> {
        let mut call = Foreground::new(self.options().gc_victim);
        for _ in 0..ROUNDS {
            if call.begin(&self.situation()?) == Begin::Checkpoint {
                self.checkpoint_to_collect(store)?;
            }
            let Some(victim) = self.victim(store, Choice::Greedy, call.data_first(), stuck) else {
                self.gc.stats.no_victim.add(1);
                break;
            };
            if !call.accepts(victim.is_node(), &self.situation()?) {
                break;
            }
            let moved = relocate::clean_section(self, store, &victim)?;
            if moved.stuck {
                stuck.insert(victim.section);
            }
            let now = self.situation()?;
            if moved.full {
                if now.prefree == 0 {
                    break;
                }
                self.checkpoint_to_collect(store)?;
            } else if !call.goes_on(moved.whole, &now) {
                break;
            } else if call.checkpoint_between(&now) {
                self.checkpoint_to_collect(store)?;
            }
        }
        Ok(())
    }

    /// Makes one section more free, if one can be gained; also where there is room enough. Call it outside the gate.
    ///
    /// # Errors
    /// As [`Volume::collect`].
    pub(crate) fn clean_one(&self) -> Result<()> {
        let store = self.store()?;
        let mut stuck = self.gc.working.lock();
        let wanted = store.segments.free_sections() + 1;
        for _ in 0..ROUNDS {
            let Some(victim) = self.victim(store, Choice::Greedy, false, &stuck) else { break };
            let outcome = relocate::clean_section(self, store, &victim);
            self.stop_after(&outcome);
            if outcome?.stuck {
                stuck.insert(victim.section);
            }
            self.checkpoint_to_collect(store)?;
            if store.segments.free_sections() >= wanted {
                break;
            }
        }
        Ok(())
    }

    fn checkpoint_to_collect(&self, store: &Store) -> Result<()> {
        self.gc.stats.checkpoints.add(1);
        store.checkpoints.write(Reason::Cleaning).map(drop)
    }

    fn victim(&self, store: &Store, choice: Choice, data_first: bool, stuck: &BTreeSet<u32>) -> Option<SectionInfo> {
        let whole = store.layout.segs_per_sec * BLOCKS_PER_SEGMENT;
        let rule = Rule { choice, data_first, whole, now: store.segments.elapsed() };
        store.segments.choose(|all| victim::select(all.filter(|info| !stuck.contains(&info.section)), rule))
    }

    /// How much room there is, and how much is needed.
    ///
    /// # Errors
    /// The volume is only read.
    pub fn situation(&self) -> Result<Situation> {
        let store = self.store()?;
        let pending = self.pending();
        let required = store.space.required(pending);
        Ok(Situation {
            free: store.segments.free_sections(),
            prefree: store.segments.prefree_segments(),
            lower: required.lower,
            upper: required.upper,
            reserved: store.space.reserved_sections(),
            logs_suffice: store.segments.logs_suffice(pending),
        })
    }
}
