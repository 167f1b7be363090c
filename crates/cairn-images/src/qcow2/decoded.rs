//! [`Decoded`]: the compressed clusters that were decoded last.

use std::sync::Arc;

use super::host::index;

/// Memory for them.
const MEMORY: u64 = 8 << 20;

/// Clusters that were decoded last.
pub(super) struct Decoded {
    limit: usize,
    /// The offset of the compressed bytes, and the cluster; the one used last is the last.
    clusters: Vec<(u64, Arc<[u8]>)>,
}

impl Decoded {
    pub(super) fn new(cluster: u64) -> Self {
        Self { limit: index(MEMORY / cluster).clamp(2, 32), clusters: Vec::new() }
    }

    pub(super) fn get(&mut self, host: u64) -> Option<Arc<[u8]>> {
        let at = self.clusters.iter().position(|(offset, _)| *offset == host)?;
        let found = self.clusters.remove(at);
        let bytes = found.1.clone();
        self.clusters.push(found);
        Some(bytes)
    }

    pub(super) fn put(&mut self, host: u64, bytes: Arc<[u8]>) {
        if self.clusters.len() >= self.limit {
            self.clusters.remove(0);
        }
        self.clusters.push((host, bytes));
    }

    /// Clusters of the file may hold something else from now on.
    pub(super) fn clear(&mut self) {
        self.clusters.clear();
    }
}
