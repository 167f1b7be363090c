//! [`Refcounts`]: how often each cluster of the file is in use, and which are free.
//!
//! Everything changes in memory. [`super::flush`] writes it: blocks, then what leads to them. A
//! block that is made lies in the first cluster of those that it counts, so that it counts itself.
//! A refcount table that is too small moves to the end, and the old one is given back when the
//! header names the new one.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use cairn_block::ErrorKind;

use super::cache::{Cache, Table};
use super::error::{Damage, Error, Result, What};
use super::format::header::{Header, MOST_REFCOUNT_TABLE};
use super::format::refcount;
use super::host::{Host, index};
use super::metadata::Metadata;

/// Memory for blocks.
const CACHE: u64 = 16 << 20;
const RESERVED: u64 = 0x1ff;
/// Offsets in tables have 56 bits.
const MOST_OFFSET: u64 = 1 << 56;

/// Clusters that were free.
pub(super) struct Allocated {
    /// Their numbers in the file.
    pub(super) clusters: Range<u64>,
    /// They are new at the end of the file, and read as zeros.
    pub(super) fresh: bool,
}

/// What leads to the blocks and has changed.
pub(super) enum TableChange {
    /// Bytes of the refcount table.
    Entries(u64, Bytes),
    /// The table is elsewhere: it was written, and the header must say where.
    Moved {
        /// Its offset.
        offset: u64,
        /// Its clusters.
        clusters: u32,
        /// All of it.
        bytes: Bytes,
    },
}

/// The refcounts.
pub(super) struct Refcounts {
    host: Arc<Host>,
    metadata: Arc<Metadata>,
    order: u32,
    cluster_bits: u32,
    /// Clusters that a block counts, as a power of two.
    block_bits: u32,
    table: Vec<u64>,
    table_offset: u64,
    changed: Option<Range<usize>>,
    moved: bool,
    blocks: Cache,
    /// No cluster before this one is free.
    hint: u64,
    /// The file is new and zero from here on.
    fresh_from: u64,
    /// Clusters of refcount tables that have moved.
    left: Vec<u64>,
}

fn words(bytes: &[u8]) -> Vec<u64> {
    bytes.as_chunks::<8>().0.iter().map(|word| u64::from_be_bytes(*word)).collect()
}

impl Refcounts {
    /// Reads the table; its clusters and the blocks' become known as metadata.
    pub(super) fn load(host: Arc<Host>, metadata: Arc<Metadata>, header: &Header) -> Result<Self> {
        let cluster = header.cluster();
        let len = u64::from(header.refcount_table_clusters) * cluster;
        let table = words(&host.read(header.refcount_table_offset, len)?);
        metadata.claim(What::RefcountTable, header.refcount_table_offset, len, cluster)?;
        for (number, entry) in table.iter().enumerate().filter(|(_, entry)| **entry != 0) {
            let offset = checked(*entry, number as u64, cluster)?;
            metadata.claim(What::RefcountBlock, offset, cluster, cluster)?;
        }
        let fresh_from = if host.is_zero_beyond() { host.len() } else { u64::MAX };
        Ok(Self {
            order: header.refcount_order,
            cluster_bits: header.cluster_bits,
            block_bits: header.cluster_bits + 3 - header.refcount_order,
            table,
            table_offset: header.refcount_table_offset,
            changed: None,
            moved: false,
            blocks: Cache::new(CACHE, cluster),
            hint: 0,
            fresh_from,
            left: Vec::new(),
            host,
            metadata,
        })
    }

    fn cluster(&self) -> u64 {
        1 << self.cluster_bits
    }

    /// The offset of the block of a region, which is then in memory.
    fn block(&mut self, region: u64) -> Result<Option<u64>> {
        let entry = usize::try_from(region).ok().and_then(|region| self.table.get(region));
        let Some(entry) = entry.copied().filter(|entry| *entry != 0) else { return Ok(None) };
        let offset = checked(entry, region, self.cluster())?;
        if self.blocks.get(offset).is_none() {
            let (end, len) = (self.host.len(), self.cluster());
            if offset >= end {
                let what = What::RefcountBlock;
                return Err(Damage::Beyond { what, offset, len, end }.into());
            }
            self.blocks.insert(offset, self.host.read(offset, len)?.to_vec());
        }
        Ok(Some(offset))
    }

    fn split(&self, cluster: u64) -> (u64, usize) {
        (cluster >> self.block_bits, index(cluster & ((1 << self.block_bits) - 1)))
    }

    /// The refcount of a cluster of the file.
    pub(super) fn get(&mut self, cluster: u64) -> Result<u64> {
        let (region, at) = self.split(cluster);
        let Some(block) = self.block(region)? else { return Ok(0) };
        let table = self.blocks.get(block).expect("it was just read");
        Ok(refcount::get(table.bytes(), self.order, at))
    }

    /// Sets the refcount of a cluster whose block exists.
    fn put(&mut self, cluster: u64, count: u64) -> Result<()> {
        let (region, at) = self.split(cluster);
        let Some(block) = self.block(region)? else {
            return Err(self.out_of_range(cluster, count));
        };
        let order = self.order;
        // The bytes that hold this count.
        let bits = 1_usize << order;
        let bytes = at * bits / 8..((at + 1) * bits).div_ceil(8);
        let set = |block: &mut [u8]| refcount::set(block, order, at, count);
        self.blocks.change(block, |table| table.edit(bytes, set));
        if count == 0 {
            self.hint = self.hint.min(cluster);
        }
        Ok(())
    }

    fn out_of_range(&self, cluster: u64, count: u64) -> Error {
        let offset = cluster << self.cluster_bits;
        Damage::Refcount { offset, count, most: refcount::most(self.order) }.into()
    }

    /// Takes one use from a cluster, and says how many are left.
    pub(super) fn release(&mut self, cluster: u64) -> Result<u64> {
        let count = self.get(cluster)?;
        let Some(left) = count.checked_sub(1) else {
            return Err(Damage::Uncounted { offset: cluster << self.cluster_bits }.into());
        };
        self.put(cluster, left)?;
        if left == 0 {
            self.metadata.remove(cluster);
        }
        Ok(left)
    }

    /// Sets a refcount, and makes the block that counts it if there is none.
    pub(super) fn set(&mut self, cluster: u64, count: u64) -> Result<()> {
        if count > refcount::most(self.order) {
            return Err(self.out_of_range(cluster, count));
        }
        let (region, _) = self.split(cluster);
        if self.block(region)?.is_none() {
            if count == 0 {
                return Ok(());
            }
            let place = self.allocate(1)?.clusters.start;
            if self.block(region)?.is_none() {
                self.make_block(region, place)?;
            } else {
                self.release(place)?;
            }
        }
        self.put(cluster, count)
    }

    /// From now on free clusters are sought behind this one, in regions that have nothing else.
    pub(super) fn search_behind(&mut self, cluster: u64) {
        self.hint = cluster.next_multiple_of(1 << self.block_bits);
    }

    /// Free clusters are sought everywhere.
    pub(super) fn search_everywhere(&mut self) {
        self.hint = 0;
    }

    /// The first run of at most `most` free clusters; they have a refcount of 1 now.
    ///
    /// # Errors
    /// No space; a damaged table. Nothing was allocated then.
    pub(super) fn allocate(&mut self, most: u64) -> Result<Allocated> {
        loop {
            let (region, at) = self.split(self.hint);
            if region >= self.table.len() as u64 {
                self.extend(0)?;
                continue;
            }
            let Some(block) = self.block(region)? else {
                let place = region << self.block_bits;
                self.take_end(place, 1)?;
                self.make_block(region, place)?;
                self.put(place, 1)?;
                continue;
            };
            let entries = 1_usize << self.block_bits;
            let bytes = self.blocks.get(block).expect("it was just read").bytes();
            let is_free = |at: &usize| refcount::get(bytes, self.order, *at) == 0;
            let Some(start) = (at..entries).find(is_free) else {
                self.hint = (region + 1) << self.block_bits;
                continue;
            };
            let stop = entries.min(start.saturating_add(index(most.min(1 << 32))));
            let end = (start..stop).find(|at| !is_free(at)).unwrap_or(stop);
            let first = (region << self.block_bits) + start as u64;
            // A run may be cut short by the end of a device that does not grow.
            let most = (self.host.most() >> self.cluster_bits).max(first + 1);
            let clusters = first..(first + (end - start) as u64).min(most);
            let fresh = self.take_end(first, clusters.end - first)?;
            for cluster in clusters.clone() {
                self.put(cluster, 1)?;
            }
            self.hint = clusters.end;
            return Ok(Allocated { clusters, fresh });
        }
    }

    /// Makes the file long enough for clusters that are about to be used, and says whether they are
    /// new and zero.
    fn take_end(&mut self, first: u64, count: u64) -> Result<bool> {
        let (start, end) = (first << self.cluster_bits, (first + count) << self.cluster_bits);
        if let Some(cluster) = (first..first + count).find(|one| self.metadata.contains(*one)) {
            let offset = cluster << self.cluster_bits;
            return Err(Damage::Overlap { what: What::Data, offset }.into());
        }
        if end > MOST_OFFSET {
            return Err(full("the file would be larger than qcow2 allows"));
        }
        self.host.ensure(end)?;
        let fresh = start >= self.fresh_from;
        if end > self.fresh_from {
            self.fresh_from = end;
        }
        Ok(fresh)
    }

    /// Makes an empty block for a region, in a cluster that is in use for it.
    fn make_block(&mut self, region: u64, place: u64) -> Result<()> {
        let offset = place << self.cluster_bits;
        // Written at once, so that no flush finds the host full.
        let zeros = vec![0; index(self.cluster())];
        self.host.write(offset, Bytes::from(zeros.clone()))?;
        self.blocks.insert(offset, zeros);
        self.blocks.change(offset, Table::change_all);
        self.metadata.add(place..place + 1);
        self.set_table(index(region), offset);
        Ok(())
    }

    fn set_table(&mut self, region: usize, offset: u64) {
        self.table[region] = offset;
        self.changed = Some(match self.changed.take() {
            Some(old) => old.start.min(region)..old.end.max(region + 1),
            None => region..region + 1,
        });
    }

    /// Allocates `run` clusters in a row, for a table, behind everything that is in use; with
    /// blocks that count them, and a larger refcount table if that is necessary. It always grows if
    /// `run` is 0.
    pub(super) fn extend(&mut self, run: u64) -> Result<u64> {
        let used = self.table.iter().rposition(|entry| *entry != 0).map_or(0, |last| last + 1);
        let used = used.max(index(self.hint >> self.block_bits).min(self.table.len()));
        let start = (used as u64) << self.block_bits;
        let per_cluster = self.cluster() / 8;
        let (mut blocks, mut table_clusters) = (1, 0);
        loop {
            let entries = used as u64 + blocks;
            table_clusters = if run == 0 || entries > self.table.len() as u64 {
                // Half as large again: a table moves seldom.
                (entries + entries / 2).div_ceil(per_cluster).max(table_clusters)
            } else {
                table_clusters
            };
            let needed = (blocks + table_clusters + run).div_ceil(1 << self.block_bits);
            if needed <= blocks {
                break;
            }
            blocks = needed;
        }
        if table_clusters << self.cluster_bits > MOST_REFCOUNT_TABLE {
            return Err(full("its refcount table would be larger than 8 MiB"));
        }
        let total = blocks + table_clusters + run;
        self.take_end(start, total)?;
        let place = start + blocks;
        if table_clusters > 0 {
            self.move_table(place, table_clusters)?;
        }
        for number in 0..blocks {
            self.make_block(used as u64 + number, start + number)?;
        }
        for cluster in start..start + total {
            self.put(cluster, 1)?;
        }
        Ok(place + table_clusters)
    }

    fn move_table(&mut self, place: u64, clusters: u64) -> Result<()> {
        let offset = place << self.cluster_bits;
        let len = index(clusters << self.cluster_bits);
        self.host.write(offset, Bytes::from(vec![0; len]))?;
        let old = self.table_offset >> self.cluster_bits;
        let old_clusters = (self.table.len() as u64 * 8).div_ceil(self.cluster());
        self.left.extend(old..old + old_clusters);
        self.metadata.add(place..place + clusters);
        self.table.resize(len / 8, 0);
        self.table_offset = offset;
        self.moved = true;
        Ok(())
    }

    /// The offsets of the blocks.
    pub(super) fn blocks(&self) -> impl Iterator<Item = Result<u64, Damage>> {
        let entries = (0_u64..).zip(&self.table).filter(|(_, entry)| **entry != 0);
        entries.map(|(number, entry)| checked(*entry, number, 1 << self.cluster_bits))
    }

    /// True if a flush has blocks to write that count more than before, or fewer.
    pub(super) fn has_changed(&self) -> bool {
        self.blocks.has_changed() || self.changed.is_some() || self.moved
    }

    pub(super) fn is_full(&self) -> bool {
        self.blocks.is_full()
    }

    /// The changed blocks.
    pub(super) fn block_changes(&self) -> Vec<(u64, Bytes)> {
        self.blocks.changes(self.host.unit(), |_| true)
    }

    /// What has changed of the way to the blocks.
    pub(super) fn table_change(&self) -> Option<TableChange> {
        let encode = |range: Range<usize>| -> Bytes {
            let words = self.table[range].iter().flat_map(|entry| entry.to_be_bytes());
            words.collect::<Vec<u8>>().into()
        };
        if self.moved {
            let len = self.table.len() as u64 * 8;
            let clusters = u32::try_from(len >> self.cluster_bits).expect("at most 8 MiB");
            let bytes = encode(0..self.table.len());
            return Some(TableChange::Moved { offset: self.table_offset, clusters, bytes });
        }
        let changed = self.changed.clone()?;
        let per_unit = index(self.host.unit() / 8);
        let start = changed.start / per_unit * per_unit;
        let end = changed.end.next_multiple_of(per_unit).min(self.table.len());
        Some(TableChange::Entries(self.table_offset + start as u64 * 8, encode(start..end)))
    }

    /// The blocks are on the medium.
    pub(super) fn blocks_written(&mut self) {
        self.blocks.written(|_| true);
    }

    /// What leads to the blocks is on the medium. Gives the clusters of tables that are not in use
    /// any more.
    pub(super) fn table_written(&mut self) -> Vec<u64> {
        (self.changed, self.moved) = (None, false);
        std::mem::take(&mut self.left)
    }
}

fn full(why: &str) -> Error {
    let detail = format!("the qcow2 image is full: {why}: convert it to one with larger clusters");
    cairn_block::Error::new(ErrorKind::NoSpace, "allocate", detail).into()
}

/// The offset of the block of an entry of the refcount table.
fn checked(entry: u64, number: u64, cluster: u64) -> Result<u64, Damage> {
    let bits = entry & RESERVED;
    if bits != 0 {
        return Err(Damage::Reserved { what: What::RefcountTable, index: number, entry, bits });
    }
    if !entry.is_multiple_of(cluster) {
        return Err(Damage::Unaligned { what: What::RefcountBlock, offset: entry, unit: cluster });
    }
    Ok(entry)
}
