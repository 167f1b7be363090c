//! [`Ledger`]: which parts of one inode are durable, and which flush or commit makes the others
//! durable.
//!
//! | part | ext4: transaction | F2FS: version of the checkpoint before it |
//! |---|---|---|
//! | [`Part::Attributes`] | the record's last change of any kind | – (a dirty node says so) |
//! | [`Part::Data`] | existence, names, size, map, owner, mode, extended attributes: everything but times | nodes left the tree: roll-forward does not see that |
//! | [`Part::Names`] | – (part of the data) | linked, renamed or unlinked: roll-forward does not see that |
//! | [`Part::Logged`] | – | its nodes were written where roll-forward finds them |
//!
//! **Loading and eviction.** What is unknown counts as not durable: the data of a loaded inode
//! counts as written at the time of loading, and its parts as changed in the commit that was in
//! flight ([`Ledger::loaded`]). So an inode may be evicted if loading it again assumes at least
//! what the ledger says. It must stay in memory if a part that loading does not assume was [changed
//! in](Ledger::changed_in) a future commit.
//!
//! Locking: rank Leaf.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use cairn_base::ranked_lock::{Mutex, Rank};
use cairn_block::Result;

use super::{FlushOrigin, Flushes, Mark};

/// State of an inode that becomes durable together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum Part {
    /// All of the inode: what fsync makes durable.
    Attributes,
    /// What is needed to find and read the data: what fdatasync makes durable.
    Data,
    /// The names of the inode.
    Names,
    /// The nodes of the inode in the log.
    Logged,
}

const PARTS: usize = 4;

/// Which parts of one inode are durable. `V` numbers commits.
pub struct Ledger<V> {
    flushes: Arc<Flushes>,
    /// The mark of the last write plus one; 0 if nothing was written.
    written: AtomicU64,
    changed: Mutex<[Option<V>; PARTS]>,
}

impl<V: Copy + PartialEq> Ledger<V> {
    /// The ledger of a new inode, of which nothing has been written.
    #[must_use]
    pub fn fresh(flushes: &Arc<Flushes>) -> Self {
        let changed = Mutex::new(Rank::Leaf, [None; PARTS]);
        Self { flushes: flushes.clone(), written: AtomicU64::new(0), changed }
    }

    /// The ledger of an inode that was read from the device. It assumes that the data was written
    /// just now and that `parts` changed in `version`.
    #[must_use]
    pub fn loaded(flushes: &Arc<Flushes>, parts: &[Part], version: V) -> Self {
        let ledger = Self::fresh(flushes);
        ledger.wrote();
        parts.iter().for_each(|part| ledger.changed(*part, version));
        ledger
    }

    /// Records that a write of this inode has completed.
    pub fn wrote(&self) {
        self.written.fetch_max(self.flushes.mark().0 + 1, Ordering::SeqCst);
    }

    /// The mark that a flush must cover to make all completed writes durable; `None` if nothing was
    /// written.
    #[must_use]
    pub fn written(&self) -> Option<Mark> {
        self.written.load(Ordering::SeqCst).checked_sub(1).map(Mark)
    }

    /// Returns when all writes that completed before `written` was taken are on the medium.
    ///
    /// # Errors
    /// As [`Flushes::cover`].
    pub fn cover(&self, written: Option<Mark>) -> Result<FlushOrigin> {
        written.map_or(Ok(FlushOrigin::Already), |mark| self.flushes.cover(mark))
    }

    /// Records that a part changed. Whether `version` is the commit with the change or the one
    /// before it, the format decides.
    pub fn changed(&self, part: Part, version: V) {
        self.changed.lock()[part as usize] = Some(version);
    }

    /// The version in which a part last changed; `None` if it did not change.
    #[must_use]
    pub fn last_change(&self, part: Part) -> Option<V> {
        self.changed.lock()[part as usize]
    }

    /// True if a part last changed in `version`.
    #[must_use]
    pub fn changed_in(&self, part: Part, version: V) -> bool {
        self.last_change(part) == Some(version)
    }
}
