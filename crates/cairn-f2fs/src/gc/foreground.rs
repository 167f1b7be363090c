//! Cleaning for an operation that waits for space, and the parts that background cleaning shares.

use super::adaptive;
use super::cleaner::{Cleaner, Working};
use super::policy::{Foreground, GcVictim, RoundStart, SpaceState};
use super::relocate::{self, MoveMode};
use super::victim::{self, Choice, Rule};
use crate::checkpoint::Reason;
use crate::error::Result;
use crate::format::units::BLOCK_BYTES;
use crate::segment::SectionInfo;
use crate::space::WRITE_BACK_PIECE;
use crate::store::Store;

/// Most sections cleaned in one call.
const ROUNDS: u32 = 64;
/// Most blocks moved together: 64 MiB.
const MOST_GROUP: u64 = 16_384;

impl Cleaner {
    /// As [`Cleaner::collect`], but with `gc_merge` the daemon does it.
    ///
    /// # Errors
    /// As [`Cleaner::collect`].
    pub(crate) fn collect_merged(&self) -> Result<()> {
        if self.mount.options().gc_merge && self.merged.ask(&*self.inodes.runtime) {
            // A failure has stopped the volume.
            return self.mount.store()?.operation_lock.check();
        }
        self.collect()
    }

    /// Makes room for pending writes, as long as cleaning gains space. Call it without the
    /// operation lock.
    ///
    /// # Errors
    /// A write failed: the volume stops.
    pub(crate) fn collect(&self) -> Result<()> {
        let store = self.mount.store()?;
        let mut working = self.working.lock();
        if self.has_room()? {
            // Another thread freed sections meanwhile.
            return Ok(());
        }
        self.stats.calls_fg.add(1);
        let outcome = match self.mount.options().gc_victim {
            GcVictim::Adaptive => self.adaptive(store, &mut working),
            policy => self.foreground(store, policy, &mut working),
        };
        self.mount.stop_after(&outcome);
        outcome
    }

    /// True if the policy in force finds enough room for pending writes.
    ///
    /// # Errors
    /// The volume is only read.
    pub(crate) fn has_room(&self) -> Result<bool> {
        let now = self.space_state()?;
        Ok(match self.mount.options().gc_victim {
            GcVictim::Adaptive => {
                adaptive::enough(&now, now.prefree / self.mount.disk.layout.usable_segments())
            }
            GcVictim::Greedy | GcVictim::DataFirst => now.enough(0),
        })
    }

    /// Cleans with as many victims at once and as few checkpoints as the free sections allow.
    fn adaptive(&self, store: &Store, working: &mut Working) -> Result<()> {
        let whole = store.layout.section_capacity();
        let most = (store.budget.limit() / 4 / BLOCK_BYTES)
            .clamp(whole.into(), MOST_GROUP.max(whole.into()))
            / u64::from(whole);
        for _ in 0..ROUNDS {
            working.follow(store.checkpoints.version());
            let now = self.space_state()?;
            let deferred =
                now.prefree / store.layout.usable_segments() + working.deferred.len() as u32;
            if adaptive::checkpoint_is_due(&now, deferred) {
                self.checkpoint_to_collect(store)?;
                continue;
            }
            if adaptive::enough(&now, deferred) {
                break;
            }
            let group = adaptive::group(&now, deferred, u32::try_from(most).unwrap_or(1));
            let victims = self.group(store, working, group, whole);
            if victims.is_empty() {
                self.stats.no_victim.add(1);
                break;
            }
            let moved = relocate::clean_sections(self, store, &victims, MoveMode::Sorted)?;
            if moved.stuck {
                working.stuck.extend(victims.iter().map(|victim| victim.section));
            }
            working.deferred.extend(
                victims.iter().filter(|victim| victim.is_node()).map(|victim| victim.section),
            );
            if moved.full {
                self.checkpoint_to_collect(store)?;
            }
        }
        Ok(())
    }

    /// The next victims, of one class.
    fn group(
        &self,
        store: &Store,
        working: &mut Working,
        most: u32,
        whole: u32,
    ) -> Vec<SectionInfo> {
        working.recent.follow(self.stats.written(store), store.space.user_blocks());
        let counts = store.space.counts();
        let working = &*working;
        store.segments.choose(|all| {
            let all = all.filter(|info| !working.is_out(info));
            let spare = |nodes: bool| -> u64 {
                all.clone()
                    .filter(|info| info.is_node() == nodes)
                    .map(|info| u64::from(whole - info.valid))
                    .sum()
            };
            let nodes = u64::from(counts.valid_nodes);
            let of_nodes = spare(true);
            let share = working.recent.share_of_nodes(
                of_nodes + spare(false),
                counts.valid_blocks.saturating_sub(nodes),
                nodes,
            );
            let data = victim::emptiest(all.clone().filter(|info| !info.is_node()), most);
            if of_nodes <= share && !data.is_empty() {
                return data;
            }
            let nodes = victim::emptiest(all.filter(SectionInfo::is_node), 1);
            match adaptive::cheaper(
                data.first().copied(),
                nodes.first().copied(),
                whole,
                working.recent.weight(),
            ) {
                Some(chosen) if chosen.is_node() => nodes,
                _ => data,
            }
        })
    }

    fn foreground(&self, store: &Store, policy: GcVictim, working: &mut Working) -> Result<()> {
        let mut call = Foreground::new(policy);
        for _ in 0..ROUNDS {
            if call.start_round(&self.space_state()?) == RoundStart::Checkpoint {
                self.checkpoint_to_collect(store)?;
            }
            let Some(victim) = self.victim(store, Choice::Greedy, call.data_first(), working)
            else {
                self.stats.no_victim.add(1);
                break;
            };
            if !call.accepts(victim.is_node(), &self.space_state()?) {
                break;
            }
            let moved = relocate::clean_section(self, store, &victim)?;
            if moved.stuck {
                working.stuck.insert(victim.section);
            }
            let now = self.space_state()?;
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

    /// Frees one more section if possible, even if there is enough room. Call it without the
    /// operation lock.
    ///
    /// # Errors
    /// As [`Cleaner::collect`].
    pub(crate) fn clean_one(&self) -> Result<()> {
        let store = self.mount.store()?;
        let mut working = self.working.lock();
        let wanted = store.segments.free_sections() + 1;
        for _ in 0..ROUNDS {
            let Some(victim) = self.victim(store, Choice::Greedy, false, &working) else { break };
            let outcome = relocate::clean_section(self, store, &victim);
            self.mount.stop_after(&outcome);
            if outcome?.stuck {
                working.stuck.insert(victim.section);
            }
            self.checkpoint_to_collect(store)?;
            if store.segments.free_sections() >= wanted {
                break;
            }
        }
        Ok(())
    }

    fn checkpoint_to_collect(&self, store: &Store) -> Result<()> {
        self.stats.checkpoints.add(1);
        store.checkpoints.write(Reason::Cleaning).map(drop)
    }

    pub(super) fn victim(
        &self,
        store: &Store,
        choice: Choice,
        data_first: bool,
        working: &Working,
    ) -> Option<SectionInfo> {
        let whole = store.layout.section_capacity();
        let rule = Rule { choice, data_first, whole, now: store.segments.elapsed() };
        store.segments.choose(|all| victim::select(all.filter(|info| !working.is_out(info)), rule))
    }

    /// How much room there is, and how much is needed.
    ///
    /// # Errors
    /// The volume is only read.
    pub(crate) fn space_state(&self) -> Result<SpaceState> {
        let store = self.mount.store()?;
        let mut pending = self.inodes.pending();
        if self.mount.options().gc_victim == GcVictim::Adaptive {
            // Room is made before each piece of write-back, so only one piece of the dirty data
            // counts.
            pending.data = pending.data.min(WRITE_BACK_PIECE);
        }
        let required = store.space.required_sections(pending);
        Ok(SpaceState {
            free: store.segments.free_sections(),
            prefree: store.segments.prefree_segments(),
            lower: required.lower,
            upper: required.upper,
            reserved: store.space.reserved_sections(),
            logs_suffice: store.segments.logs_suffice(pending),
        })
    }
}
