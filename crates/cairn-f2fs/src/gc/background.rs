//! `background_gc`: cleans a section now and then while the volume is idle. Also foreground
//! cleaning for other threads (`gc_merge`).
//!
//! The daemon sleeps for 30 seconds. If the volume was used within the last five seconds, the next
//! sleep is longer, up to a minute. If much of the space is taken by invalid blocks, it is shorter.
//! If there was nothing worth cleaning, it is five minutes. While checkpoints are disabled nothing
//! is cleaned, because cleaned sections could not be used.
//!
//! With `gc_merge` an operation that needs space asks the daemon and waits. One thread then does
//! all cleaning, and one round serves all waiting operations.
//!
//! Locking: the locks of `Sleep` and of the requests are leaves. While the daemon cleans it holds
//! only the locks of cleaning.

use std::sync::{Arc, Weak};
use std::time::Duration;

use cairn_base::ranked_lock::{Mutex, Rank};
use cairn_base::runtime::{Daemon, Progress};

use super::cleaner::Cleaner;
use super::policy::{BackgroundGc, GcVictim};
use super::relocate;
use super::victim::Choice;
use crate::error::Result;
use crate::format::units::BLOCKS_PER_SEGMENT;
use crate::store::Store;

/// Shortest sleep, and the step by which sleeps change.
const MIN_SLEEP: Duration = Duration::from_secs(30);
const MAX_SLEEP: Duration = Duration::from_secs(60);
/// Sleep after a round that found nothing to clean.
const NO_GC_SLEEP: Duration = Duration::from_secs(300);
/// The volume is idle if there was no activity for this long.
const IDLE: Duration = Duration::from_secs(5);
/// Sleeps become shorter if at least this percentage of the users' blocks is invalid, and at most
/// this percentage is free.
const LIMIT: u64 = 40;
/// With this many candidates or fewer, nothing is cleaned.
const FEW_SECTIONS: usize = 3;

/// How long the daemon sleeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Sleep(Duration);

impl Sleep {
    fn longer(&mut self) {
        if self.0 != NO_GC_SLEEP {
            self.0 = (self.0 + MIN_SLEEP).min(MAX_SLEEP);
        }
    }

    fn shorter(&mut self) {
        self.0 = match self.0 {
            NO_GC_SLEEP => MAX_SLEEP,
            sleep => sleep.saturating_sub(MIN_SLEEP).max(MIN_SLEEP),
        };
    }

    fn found(&mut self, something: bool) {
        if !something {
            self.0 = NO_GC_SLEEP;
        } else if self.0 == NO_GC_SLEEP {
            self.0 = MIN_SLEEP;
        }
    }
}

/// What the daemon remembers from step to step.
struct State {
    sleep: Sleep,
    /// When the sleep ends.
    due: Option<Duration>,
    /// The activity at the last look, and the time of that look.
    seen: Option<(u64, Duration)>,
}

impl Cleaner {
    /// All activity on the volume, as a growing number.
    fn activity(&self, store: &Store) -> u64 {
        let placed: u64 =
            store.segments.stats.placed.iter().map(cairn_base::stats::Counter::get).sum();
        let gc = &self.stats;
        let own = gc.data_blocks_moved.get() + gc.node_blocks_moved.get();
        (store.operation_lock.counts().0 + placed + store.segments.stats.in_place.get())
            .saturating_sub(own)
    }

    /// Cleans one section, if one is worth it. Returns whether it did.
    fn collect_in_background(&self, store: &Store) -> Result<bool> {
        let options = self.mount.options();
        if !self.has_room()? {
            return self.collect().map(|()| true);
        }
        let Some(mut working) = self.working.try_lock() else { return Ok(true) };
        working.follow(store.checkpoints.version());
        self.stats.calls_bg.add(1);
        let choice = match options.background_gc {
            BackgroundGc::Sync => Choice::Greedy,
            _ if options.atgc => Choice::AgeThreshold,
            _ => Choice::CostBenefit,
        };
        let few = store.segments.choose(|all| all.take(FEW_SECTIONS + 1).count() <= FEW_SECTIONS);
        let data_first = options.gc_victim != GcVictim::Greedy;
        let victim = if few { None } else { self.victim(store, choice, data_first, &working) };
        let Some(victim) = victim else {
            self.stats.no_victim.add(1);
            return Ok(false);
        };
        let stats = &self.stats;
        let before = (stats.data_blocks_moved.get(), stats.node_blocks_moved.get());
        let moved = relocate::clean_section(self, store, &victim)?;
        stats.data_blocks_bg.add(stats.data_blocks_moved.get() - before.0);
        stats.node_blocks_bg.add(stats.node_blocks_moved.get() - before.1);
        if moved.stuck {
            working.stuck.insert(victim.section);
        }
        Ok(!moved.full)
    }

    /// True if many of the users' blocks are invalid and few are free.
    fn is_worn(&self, store: &Store) -> bool {
        let user = store.space.user_blocks();
        let invalid = user.saturating_sub(store.space.counts().valid_blocks);
        let spare =
            store.segments.free_segments().saturating_sub(store.space.overprovision_segments());
        let free = u64::from(spare) * u64::from(BLOCKS_PER_SEGMENT);
        invalid > user / 100 * LIMIT && free < invalid / 100 * LIMIT
    }
}

/// When the daemon cleans next, and what it waits for.
pub(crate) struct GcDaemon {
    cleaner: Weak<Cleaner>,
    state: Mutex<State>,
}

impl GcDaemon {
    /// The daemon of a cleaner.
    #[must_use]
    pub(crate) fn new(cleaner: &Arc<Cleaner>) -> Self {
        let state = State { sleep: Sleep(MIN_SLEEP), due: None, seen: None };
        Self { cleaner: Arc::downgrade(cleaner), state: Mutex::new(Rank::Leaf, state) }
    }

    /// Serves all waiting requests. True if there were any.
    fn serve(cleaner: &Cleaner) -> bool {
        let Some(asked) = cleaner.merged.waiting() else { return false };
        cleaner.stats.rounds_merged.add(1);
        if let Err(error) = cleaner.collect() {
            // The requester meets the same error.
            tracing::debug!(%error, "cleaning for others failed");
        }
        cleaner.merged.answer(asked);
        true
    }

    /// How long to wait before cleaning; `None` if it may start now.
    fn wait(&self, cleaner: &Cleaner, store: &Store, now: Duration) -> Option<Duration> {
        let mut state = self.state.lock();
        let sleep = state.sleep.0;
        let due = *state.due.get_or_insert(now + sleep);
        if now < due {
            return Some(due - now);
        }
        let activity = cleaner.activity(store);
        match state.seen {
            Some((seen, since)) if seen == activity => {
                (now - since < IDLE).then(|| IDLE - (now - since))
            }
            before => {
                state.seen = Some((activity, now));
                if before.is_none() {
                    // The volume seems idle. It must stay so for a while.
                    return Some(IDLE);
                }
                state.sleep.longer();
                let sleep = state.sleep.0;
                (state.due, state.seen) = (Some(now + sleep), None);
                Some(sleep)
            }
        }
    }
}

impl Daemon for GcDaemon {
    fn step(&self) -> Progress {
        let Some(cleaner) = self.cleaner.upgrade() else { return Progress::Done };
        if cleaner.mount.is_closed() {
            return Progress::Done;
        }
        let Ok(store) = cleaner.mount.store() else { return Progress::Done };
        if Self::serve(&cleaner) {
            return Progress::Worked;
        }
        let now = cleaner.inodes.runtime.monotonic();
        if let Some(wait) = self.wait(&cleaner, store, now) {
            return Progress::Idle(Some(wait));
        }
        let off = cleaner.mount.options().background_gc == BackgroundGc::Off;
        let mut found = false;
        if !off && cleaner.mount.check_writable().is_ok() && !store.checkpoints.is_disabled() {
            if cleaner.is_worn(store) {
                self.state.lock().sleep.shorter();
            }
            let outcome = cleaner.collect_in_background(store);
            cleaner.mount.stop_after(&outcome);
            found = outcome.unwrap_or_else(|error| {
                tracing::error!(%error, "cleaning in the background failed");
                false
            });
        }
        let mut state = self.state.lock();
        state.sleep.found(found);
        let sleep = state.sleep.0;
        // Cleaning itself does not count as activity.
        (state.due, state.seen) = (Some(cleaner.inodes.runtime.monotonic() + sleep), None);
        Progress::Idle(Some(sleep))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sleeps_change_step_by_step() {
        let mut sleep = Sleep(MIN_SLEEP);
        sleep.longer();
        assert_eq!(sleep.0, MAX_SLEEP);
        sleep.longer();
        assert_eq!(sleep.0, MAX_SLEEP);
        sleep.shorter();
        sleep.shorter();
        assert_eq!(sleep.0, MIN_SLEEP);
        sleep.found(false);
        assert_eq!(sleep.0, NO_GC_SLEEP);
        sleep.longer();
        assert_eq!(sleep.0, NO_GC_SLEEP);
        sleep.found(true);
        assert_eq!(sleep.0, MIN_SLEEP);
        sleep.found(false);
        sleep.shorter();
        assert_eq!(sleep.0, MAX_SLEEP);
    }

    #[test]
    fn modes_are_parsed_by_their_names() {
        assert_eq!(BackgroundGc::parse("background_gc=sync", "sync").unwrap(), BackgroundGc::Sync);
        let error = BackgroundGc::parse("background_gc=maybe", "maybe").unwrap_err().to_string();
        assert!(error.contains("background_gc=maybe") && error.contains("sync"), "{error}");
    }
}
