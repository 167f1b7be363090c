//! [`Metadata`]: which clusters of the file hold tables. Data is never written there, whatever the
//! tables of a damaged image say.

use std::collections::HashSet;
use std::ops::Range;

use cairn_base::ranked_lock::{Rank, RwLock};

use super::error::{Damage, What};

/// The numbers of the clusters that hold tables.
pub(super) struct Metadata(RwLock<HashSet<u64>>);

impl Metadata {
    pub(super) fn new() -> Self {
        Self(RwLock::new(Rank::Leaf, HashSet::new()))
    }

    /// Takes the `len` bytes at `offset` for a table of an image that is opened.
    ///
    /// # Errors
    /// Another table is there.
    pub(super) fn claim(
        &self,
        what: What,
        offset: u64,
        len: u64,
        cluster: u64,
    ) -> Result<(), Damage> {
        if len == 0 {
            return Ok(());
        }
        let mut known = self.0.write();
        let clusters = offset / cluster..offset.saturating_add(len).div_ceil(cluster);
        match clusters.clone().find(|one| !known.insert(*one)) {
            Some(one) => Err(Damage::Overlap { what, offset: one * cluster }),
            None => Ok(()),
        }
    }

    pub(super) fn add(&self, clusters: Range<u64>) {
        self.0.write().extend(clusters);
    }

    pub(super) fn remove(&self, cluster: u64) {
        self.0.write().remove(&cluster);
    }

    pub(super) fn contains(&self, cluster: u64) -> bool {
        self.0.read().contains(&cluster)
    }
}
