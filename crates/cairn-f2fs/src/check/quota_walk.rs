//! [`Quota`]: what a walk tells of quota.
//!
//! Locking: one lock, a leaf, held only for a moment.

use std::collections::BTreeMap;
use std::sync::Arc;

use cairn_base::ranked_lock::{Mutex, Rank};
use cairn_check::quota::Counted;

use crate::format::Inode;
use crate::format::units::{BlockAddr, Nid};

/// What a walk tells of quota, if the volume counts it.
pub(super) struct Quota {
    pub(super) counted: Counted,
    files: Mutex<BTreeMap<Nid, Arc<Contents>>>,
}

/// Where the contents of a quota file are.
pub(super) struct Contents {
    pub(super) size: u64,
    pub(super) blocks: BTreeMap<u64, BlockAddr>,
}

impl Default for Quota {
    fn default() -> Self {
        let files = Mutex::new(Rank::Leaf, BTreeMap::new());
        Self { counted: Counted::default(), files }
    }
}

impl Quota {
    /// Notes where the blocks of a quota file are.
    pub(super) fn add_file(&self, ino: Nid, record: &Inode, blocks: Vec<(u64, BlockAddr)>) {
        let blocks = blocks.into_iter().collect();
        let contents = Contents { size: record.size, blocks };
        self.files.lock().insert(ino, Arc::new(contents));
    }

    /// Where the contents of a quota file are, if the walk has seen it.
    pub(super) fn file(&self, ino: Nid) -> Option<Arc<Contents>> {
        self.files.lock().get(&ino).cloned()
    }
}
