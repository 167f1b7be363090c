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
    /// Differs from the last checkpoint's.
    dirty: bool,
}

impl Orphans {
    /// The set of a checkpoint.
    #[must_use]
    pub(crate) fn new(layout: &Layout, inos: impl IntoIterator<Item = Nid>) -> Self {
        let state = State { inos: inos.into_iter().collect(), dirty: false };
        Self { most: as_index(layout.max_orphans()), state: Mutex::new(Rank::Leaf, state) }
    }

    /// An inode has lost its last link and is open. Called with the operation lock held, by the
    /// operation that takes the link.
    ///
    /// # Errors
    /// A checkpoint can name no more.
    pub(crate) fn add(&self, ino: Nid) -> Result<()> {
        let mut state = self.state.lock();
        if state.inos.len() >= self.most {
            return Err(Error::NO_SPACE);
        }
        state.dirty |= state.inos.insert(ino);
        Ok(())
    }

    /// The inode has been freed, or has a link again. True if it was there.
    pub(crate) fn remove(&self, ino: Nid) -> bool {
        let mut state = self.state.lock();
        let was = state.inos.remove(&ino);
        state.dirty |= was;
        was
    }

    /// All of them.
    #[must_use]
    pub(crate) fn list(&self) -> Vec<Nid> {
        self.state.lock().inos.iter().copied().collect()
    }

    /// Has the set changed since the last checkpoint?
    #[must_use]
    pub(crate) fn is_dirty(&self) -> bool {
        self.state.lock().dirty
    }

    pub(super) fn committed(&self) {
        self.state.lock().dirty = false;
    }
}
