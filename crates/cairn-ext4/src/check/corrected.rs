//! [`Corrected`]: file types and flags that are others than the stored ones, because the contents
//! of the inodes and their names prove it. What follows is read with them.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use cairn_base::Ino;
use cairn_base::ranked_lock::{Mutex, Rank};

use crate::form;

#[derive(Clone, Copy, Debug, Default)]
struct Other {
    mode: Option<u16>,
    flags: Option<u32>,
}

/// Other modes and flags, by inode.
#[derive(Debug)]
pub(super) struct Corrected {
    /// There is one. Nearly always there is none.
    is_used: AtomicBool,
    others: Mutex<BTreeMap<u64, Other>>,
}

impl Default for Corrected {
    fn default() -> Self {
        let others = Mutex::new(Rank::Leaf, BTreeMap::new());
        Self { is_used: AtomicBool::new(false), others }
    }
}

impl Corrected {
    fn with(&self, ino: Ino, set: impl FnOnce(&mut Other)) {
        set(self.others.lock().entry(ino.get()).or_default());
        self.is_used.store(true, Relaxed);
    }

    /// Notes another mode.
    pub(super) fn set_mode(&self, ino: Ino, mode: u16) {
        self.with(ino, |other| other.mode = Some(mode));
    }

    /// Notes other flags.
    pub(super) fn set_flags(&self, ino: Ino, flags: u32) {
        self.with(ino, |other| other.flags = Some(flags));
    }

    /// Puts what is noted of an inode into the bytes of its record.
    pub(super) fn apply(&self, ino: Ino, bytes: &mut [u8]) {
        if !self.is_used.load(Relaxed) {
            return;
        }
        let other = self.others.lock().get(&ino.get()).copied().unwrap_or_default();
        form::set(bytes, other.mode, other.flags);
    }

    /// Is something noted of the inode?
    pub(super) fn has(&self, ino: Ino) -> bool {
        self.is_used.load(Relaxed) && self.others.lock().contains_key(&ino.get())
    }
}
