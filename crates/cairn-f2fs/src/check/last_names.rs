//! [`LastNames`]: what is known of the last names of inodes without one, where that is not only the
//! name that the inode records.
//!
//! Memory: as many inodes as `nameless` looks for.
//!
//! Locking: one lock, a leaf.

use std::collections::BTreeMap;

use cairn_base::ranked_lock::{Mutex, Rank};

use crate::format::units::Nid;

/// A name in slots that are free.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Freed {
    pub(super) dir: Nid,
    pub(super) name: Vec<u8>,
    pub(super) hash: u32,
}

/// The last name of an inode without one: that in a slot, or else the recorded one.
#[derive(Clone, Debug, Default)]
pub(super) struct Last {
    pub(super) slot: Option<Freed>,
    /// It may have been another one.
    pub(super) is_lost: bool,
}

/// The last names of inodes without one, of which the record is no proof.
pub(super) struct LastNames(Mutex<BTreeMap<Nid, Last>>);

impl Default for LastNames {
    fn default() -> Self {
        Self(Mutex::new(Rank::Leaf, BTreeMap::new()))
    }
}

impl LastNames {
    /// Keeps what is known of an inode without a name.
    pub(super) fn keep(&self, ino: Nid, last: Last) {
        self.0.lock().insert(ino, last);
    }

    /// What is known of an inode without a name.
    pub(super) fn of(&self, ino: Nid) -> Last {
        self.0.lock().get(&ino).cloned().unwrap_or_default()
    }

    /// Is there one whose last name is not known?
    pub(super) fn has_lost(&self) -> bool {
        self.0.lock().values().any(|last| last.is_lost)
    }
}
