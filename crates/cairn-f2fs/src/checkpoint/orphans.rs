//! Orphans: open inodes without links. The next mount frees them.

#![cfg_attr(
    not(test),
    deny(
        clippy::indexing_slicing,
        clippy::as_conversions,
        clippy::arithmetic_side_effects,
        clippy::unwrap_used,
        clippy::expect_used
    )
)]

use std::collections::BTreeSet;

use cairn_base::ranked_lock::{Mutex, Rank};
use cairn_base::units::as_index;

use crate::error::{Error, Result};
use crate::format::{Layout, Nid};

/// The set that the next checkpoint writes. Locking: a leaf.
pub(crate) struct Orphans {
    most: usize,
    state: Mutex<State>,
}

struct State {
    inos: BTreeSet<Nid>,
    /// True if the set differs from the last checkpoint's.
    dirty: bool,
}

impl Orphans {
    /// The set of a checkpoint.
    #[must_use]
    pub(crate) fn new(layout: &Layout, inos: impl IntoIterator<Item = Nid>) -> Self {
        let state = State { inos: inos.into_iter().collect(), dirty: false };
        Self { most: as_index(layout.max_orphans()), state: Mutex::new(Rank::Leaf, state) }
    }

    /// Adds an open inode that has lost its last link. The operation that removes the link calls
    /// this with the operation lock held.
    ///
    /// # Errors
    /// A checkpoint has no room for more orphans.
    pub(crate) fn add(&self, ino: Nid) -> Result<()> {
        let mut state = self.state.lock();
        if state.inos.len() >= self.most {
            return Err(Error::NO_SPACE);
        }
        state.dirty |= state.inos.insert(ino);
        Ok(())
    }

    /// Removes an inode that has been freed or has a link again. True if it was in the set.
    pub(crate) fn remove(&self, ino: Nid) -> bool {
        let mut state = self.state.lock();
        let was = state.inos.remove(&ino);
        state.dirty |= was;
        was
    }

    /// Is the inode one of them?
    #[must_use]
    pub(crate) fn contains(&self, ino: Nid) -> bool {
        self.state.lock().inos.contains(&ino)
    }

    /// All of them.
    #[must_use]
    pub(crate) fn list(&self) -> Vec<Nid> {
        self.state.lock().inos.iter().copied().collect()
    }

    /// True if the set has changed since the last checkpoint.
    #[must_use]
    pub(crate) fn is_dirty(&self) -> bool {
        self.state.lock().dirty
    }

    pub(super) fn committed(&self) {
        self.state.lock().dirty = false;
    }
}
