//! The options of a mounted volume, which may change while operations run.
//!
//! Options that every operation reads are atomics. Each operation sees a change at some time during
//! `remount`.
//!
//! Locking: `changing` precedes every other lock of the volume; `current` has rank Leaf.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use cairn_base::ranked_lock::{Mutex, Rank};
use cairn_vfs::OnDamage;

use crate::options::MountOptions;

/// The options of a mounted volume.
pub(crate) struct LiveOptions {
    /// Held by a call that changes options, from reading the old ones to applying the new ones.
    pub(crate) changing: Mutex<()>,
    current: Mutex<Arc<MountOptions>>,
    access_times: AtomicBool,
    group_of_parent: AtomicBool,
    /// The superblock's setting, used if no option sets another.
    pub(crate) on_damage: OnceLock<OnDamage>,
}

impl LiveOptions {
    pub(crate) fn new(options: MountOptions) -> Self {
        Self {
            access_times: AtomicBool::new(options.access_times),
            group_of_parent: AtomicBool::new(options.group_of_parent),
            on_damage: OnceLock::new(),
            changing: Mutex::new(Rank::Options, ()),
            current: Mutex::new(Rank::Leaf, Arc::new(options)),
        }
    }

    /// A copy of the present options.
    pub(crate) fn get(&self) -> Arc<MountOptions> {
        self.current.lock().clone()
    }

    /// Replaces the options.
    pub(crate) fn set(&self, options: MountOptions) {
        self.access_times.store(options.access_times, Ordering::Relaxed);
        self.group_of_parent.store(options.group_of_parent, Ordering::Relaxed);
        *self.current.lock() = Arc::new(options);
    }

    /// True if access times are kept.
    pub(crate) fn access_times(&self) -> bool {
        self.access_times.load(Ordering::Relaxed)
    }

    /// What to do about damage: by `errors=`, or by the superblock.
    pub(crate) fn on_damage(&self) -> OnDamage {
        let asked = self.current.lock().on_damage;
        asked.unwrap_or_else(|| self.on_damage.get().copied().unwrap_or_default())
    }

    /// True if new files get the group of their directory.
    pub(crate) fn group_of_parent(&self) -> bool {
        self.group_of_parent.load(Ordering::Relaxed)
    }
}
