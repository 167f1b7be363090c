//! Counting the uses of every cluster anew, as after a crash with lazy refcounts.

use super::error::{Error, Result};
use super::format::entry::{self, Cluster};
use super::host::index;
use super::image::Image;
use super::snapshots;

/// Clusters of a file whose uses are counted: a quarter of a GiB of memory.
const MOST_CLUSTERS: u64 = 1 << 26;
/// L2 tables that are read, of the disk and of all snapshots.
const MOST_TABLES: u64 = 1 << 20;

/// The uses of each cluster.
struct Uses {
    counts: Vec<u32>,
    cluster: u64,
    tables: u64,
}

fn too_large() -> Error {
    Error::Refused(
        "the qcow2 image was not closed, and is too large to count its clusters here: run qemu-img \
         check -r all"
            .to_owned(),
    )
}

impl Uses {
    /// One more use of the clusters of a range. What lies beyond the end of the file has none yet.
    fn add(&mut self, offset: u64, len: u64) {
        if len == 0 {
            return;
        }
        let first = offset / self.cluster;
        let last = (offset.saturating_add(len - 1)) / self.cluster;
        for cluster in first..=last.min(self.counts.len() as u64) {
            if let Some(count) = self.counts.get_mut(index(cluster)) {
                *count = count.saturating_add(1);
            }
        }
    }
}

impl Image {
    /// Sets every refcount to what it must be. The map stays as it is, so any part of this may
    /// reach the medium.
    pub(super) fn rebuild(&self) -> Result<()> {
        let uses = self.count_uses()?;
        let mut writer = self.writer()?;
        for (cluster, count) in (0_u64..).zip(&uses.counts) {
            let count = u64::from(*count);
            if writer.refcounts.get(cluster)? != count {
                // A block that is missing must not be put where data is that nothing counts yet.
                writer.refcounts.search_behind(uses.counts.len() as u64);
                writer.refcounts.set(cluster, count)?;
                if writer.refcounts.is_full() {
                    self.flush_as(&mut writer)?;
                }
            }
        }
        writer.refcounts.search_everywhere();
        self.flush_as(&mut writer)
    }

    fn count_uses(&self) -> Result<Uses> {
        let (header, cluster) = (&self.header, self.cluster());
        let clusters = self.host.len().div_ceil(cluster);
        if clusters > MOST_CLUSTERS {
            return Err(too_large());
        }
        let mut uses = Uses { counts: vec![0; index(clusters)], cluster, tables: 0 };
        uses.add(0, cluster);
        let table = u64::from(header.refcount_table_clusters) * cluster;
        uses.add(header.refcount_table_offset, table);
        for offset in self.writer()?.refcounts.blocks() {
            uses.add(offset?, cluster);
        }
        let (snapshots, len) = snapshots::list(&self.host, header)?;
        uses.add(header.snapshots_offset, len);
        self.count_map(header.l1_offset, header.l1_entries, &mut uses)?;
        for one in snapshots {
            self.count_map(one.l1_offset, one.l1_entries, &mut uses)?;
        }
        Ok(uses)
    }

    fn count_map(&self, l1_offset: u64, entries: u32, uses: &mut Uses) -> Result<()> {
        let (bits, cluster) = (self.header.cluster_bits, self.cluster());
        let len = u64::from(entries) * 8;
        uses.add(l1_offset, len);
        let l1 = self.host.read(l1_offset, len)?;
        for (l1_index, word) in (0_u64..).zip(l1.as_chunks::<8>().0) {
            let found = entry::l1(u64::from_be_bytes(*word), l1_index, bits)?;
            let Some((offset, _)) = found else { continue };
            uses.tables += 1;
            if uses.tables > MOST_TABLES {
                return Err(too_large());
            }
            uses.add(offset, cluster);
            let table = self.host.read(offset, cluster)?;
            for (within, word) in (0_u64..).zip(table.as_chunks::<8>().0) {
                let number = (l1_index << (bits - 3)) + within;
                match entry::l2(u64::from_be_bytes(*word), number, bits, self.header.version)? {
                    Cluster::Data { host, .. } | Cluster::Zero { kept: Some((host, _)) } => {
                        uses.add(host, cluster);
                    }
                    Cluster::Compressed { host, len } => uses.add(host, len),
                    Cluster::Unallocated | Cluster::Zero { kept: None } => {}
                }
            }
        }
        Ok(())
    }
}
