//! The options of a mounted volume: they may change while operations run.
//!
//! Those that are asked for on every operation stand in atomics of their own; a change becomes visible to each operation
//! at some moment while `remount` runs.
//!
//! Locking: `changing` comes before every other lock of the volume; `current` is a leaf.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use cairn_base::ranked_lock::{Mutex, Rank};
use cairn_vfs::OnDamage;

use crate::options::MountOptions;

/// See the module.
pub struct LiveOptions {
    /// Held by whoever changes options, from reading the old ones to applying the new.
    pub(crate) changing: Mutex<()>,
    current: Mutex<Arc<MountOptions>>,
    access_times: AtomicBool,
    group_of_parent: AtomicBool,
    /// Of the superblock, for when the options do not say.
    pub(crate) on_damage: OnceLock<OnDamage>,
}

impl LiveOptions {
    pub(crate) fn new(options: MountOptions) -> Self {
        Self {
            access_times: AtomicBool::new(options.access_times),
            group_of_parent: AtomicBool::new(options.group_of_parent),
            on_damage: OnceLock::new(),
            changing: Mutex::new(Rank(Rank::VOLUME.0 - 1), ()),
            current: Mutex::new(Rank::LEAF, Arc::new(options)),
        }
    }

    /// All of them, as they are now.
    pub fn get(&self) -> Arc<MountOptions> {
        self.current.lock().clone()
    }

    /// Replaces all of them.
    pub(crate) fn set(&self, options: MountOptions) {
        self.access_times.store(options.access_times, Ordering::Relaxed);
        self.group_of_parent.store(options.group_of_parent, Ordering::Relaxed);
        *self.current.lock() = Arc::new(options);
    }

    /// Access times are kept.
    pub fn access_times(&self) -> bool {
        self.access_times.load(Ordering::Relaxed)
    }

    /// What damage that somebody comes across means: `errors=`, or what the superblock wishes.
    pub fn on_damage(&self) -> OnDamage {
        let asked = self.current.lock().on_damage;
        asked.unwrap_or_else(|| self.on_damage.get().copied().unwrap_or_default())
    }

    /// New files take the group of their directory.
    pub fn group_of_parent(&self) -> bool {
        self.group_of_parent.load(Ordering::Relaxed)
    }
}
