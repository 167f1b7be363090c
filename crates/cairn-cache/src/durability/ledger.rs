//! [`Ledger`]: what of one inode is durable, and what it takes to make the rest so.
//!
//! | part | ext4: transaction | F2FS: version of the checkpoint before it |
//! |---|---|---|
//! | [`Part::Attributes`] | the record last changed in any way | – (a dirty node says so) |
//! | [`Part::Data`] | existence, names, size, map, owner, mode, attributes of users: everything but times | nodes left the tree: roll-forward would not notice |
//! | [`Part::Names`] | – (part of the data) | linked, renamed or unlinked: roll-forward would miss that |
//! | [`Part::Logged`] | – | its nodes were written where roll-forward finds them |
//!
//! **Loading and eviction.** What is not known is not durable: a loaded inode's data counts as written just now, and its parts as
//! changed in whatever was under way ([`Ledger::loaded`]). So an inode may leave memory whenever that is no worse than what the
//! ledger says, and must stay where it is ([`Ledger::changed_in`] a commit that is yet to come, for a part that loading does
//! not assume).
//!
//! Locking: a leaf.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use cairn_base::ranked_lock::{Mutex, Rank};
use cairn_block::Result;

use super::{FlushOrigin, Flushes, Mark};

/// What changes together, and is needed together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum Part {
    /// Everything the inode says of itself: what fsync asks for.
    Attributes,
    /// What it takes to find and read the data: what fdatasync asks for.
    Data,
    /// The names that lead to it.
    Names,
    /// Its nodes in the log.
    Logged,
}

const PARTS: usize = 4;

/// See the module. `V` numbers commits.
pub struct Ledger<V> {
    flushes: Arc<Flushes>,
    /// One more than the mark of the last write; 0 if nothing was written.
    written: AtomicU64,
    changed: Mutex<[Option<V>; PARTS]>,
}

impl<V: Copy + PartialEq> Ledger<V> {
    /// Of an inode that is being made: nothing of it has been written.
    #[must_use]
    pub fn fresh(flushes: &Arc<Flushes>) -> Self {
        let changed = Mutex::new(Rank::LEAF, [None; PARTS]);
        Self { flushes: flushes.clone(), written: AtomicU64::new(0), changed }
    }

    /// Of an inode that was read: its data may have been written just now, and these parts changed in `version`.
    #[must_use]
    pub fn loaded(flushes: &Arc<Flushes>, parts: &[Part], version: V) -> Self {
        let ledger = Self::fresh(flushes);
        ledger.wrote();
        parts.iter().for_each(|part| ledger.changed(*part, version));
        ledger
    }

    /// A write of this inode has completed.
    pub fn wrote(&self) {
        self.written.fetch_max(self.flushes.mark().0 + 1, Ordering::SeqCst);
    }

    /// What a flush must cover for everything that was written so far.
    #[must_use]
    pub fn written(&self) -> Option<Mark> {
        self.written.load(Ordering::SeqCst).checked_sub(1).map(Mark)
    }

    /// Returns when everything that was written before `written` was taken is on the medium.
    ///
    /// # Errors
    /// As [`Flushes::cover`].
    pub fn cover(&self, written: Option<Mark>) -> Result<FlushOrigin> {
        written.map_or(Ok(FlushOrigin::Already), |mark| self.flushes.cover(mark))
    }

    /// A part changed, in the commit `version` or after it, as the format counts.
    pub fn changed(&self, part: Part, version: V) {
        self.changed.lock()[part as usize] = Some(version);
    }

    /// When a part last changed, as far as that can matter still.
    #[must_use]
    pub fn last_change(&self, part: Part) -> Option<V> {
        self.changed.lock()[part as usize]
    }

    /// Did a part last change in `version`?
    #[must_use]
    pub fn changed_in(&self, part: Part, version: V) -> bool {
        self.last_change(part) == Some(version)
    }
}
