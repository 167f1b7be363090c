//! Inodes whose records or entries have changed since the last checkpoint. This list keeps them in
//! memory.
//!
//! Locking: a leaf.

use std::collections::BTreeMap;
use std::sync::Arc;

use cairn_base::ranked_lock::{Mutex, Rank};

use crate::format::Nid;
use crate::inode::Inode;

/// References to the inodes that the next checkpoint must write, by nid.
pub(crate) struct DirtyInodes(Mutex<BTreeMap<Nid, Arc<Inode>>>);

impl Default for DirtyInodes {
    fn default() -> Self {
        Self(Mutex::new(Rank::Leaf, BTreeMap::new()))
    }
}

impl DirtyInodes {
    /// Adds one.
    pub(crate) fn insert(&self, inode: &Arc<Inode>) {
        self.0.lock().insert(inode.nid, inode.clone());
    }

    /// Removes an inode. The caller may hold its locks: a last reference is dropped after this
    /// module's lock is released.
    pub(crate) fn remove(&self, nid: Nid) {
        let removed = self.0.lock().remove(&nid);
        drop(removed);
    }

    /// All of them.
    #[must_use]
    pub(crate) fn list(&self) -> Vec<Arc<Inode>> {
        self.0.lock().values().cloned().collect()
    }

    /// How many.
    #[must_use]
    pub(crate) fn len(&self) -> usize {
        self.0.lock().len()
    }
}
