//! [`Tables`]: where each cluster of the disk is.
//!
//! Changes are made in memory, and [`super::flush`] writes them. A table that is new is written
//! before what leads to it.

use std::collections::HashSet;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;

use super::cache::{Cache, Table};
use super::error::{Damage, Result, What};
use super::format::entry::{self, COPIED, Cluster};
use super::format::header::Header;
use super::host::{Host, index};

/// Memory for L2 tables.
const CACHE: u64 = 32 << 20;

/// A part of the disk that lies in one place.
#[derive(Clone, Copy, Debug)]
pub(super) struct Piece {
    /// Its offset on the disk.
    pub(super) guest: u64,
    /// Bytes.
    pub(super) len: u64,
    /// Of its first byte; what is compressed begins with the cluster.
    pub(super) place: Cluster,
}

/// What must be done before the entries of an L2 table can change.
pub(super) enum Writable {
    /// Nothing.
    Yes,
    /// There is no table.
    Absent,
    /// It is shared with a snapshot: this is its offset and a copy of it.
    Shared(u64, Vec<u8>),
}

/// The L1 table, and the L2 tables that are in memory.
pub(super) struct Tables {
    host: Arc<Host>,
    version: u32,
    cluster_bits: u32,
    l1: Vec<u64>,
    l1_offset: u64,
    changed: Option<Range<usize>>,
    l2: Cache,
    /// Tables that the L1 table on the medium does not name.
    new: HashSet<u64>,
}

impl Tables {
    /// Reads the L1 table.
    pub(super) fn load(host: Arc<Host>, header: &Header) -> Result<Self> {
        let bytes = host.read(header.l1_offset, u64::from(header.l1_entries) * 8)?;
        let words = bytes.as_chunks::<8>().0.iter().map(|word| u64::from_be_bytes(*word));
        Ok(Self {
            version: header.version,
            cluster_bits: header.cluster_bits,
            l1: words.collect(),
            l1_offset: header.l1_offset,
            changed: None,
            l2: Cache::new(CACHE, header.cluster()),
            new: HashSet::new(),
            host,
        })
    }

    fn cluster(&self) -> u64 {
        1 << self.cluster_bits
    }

    /// Clusters of the disk that an L2 table leads to, as a power of two.
    fn l2_bits(&self) -> u32 {
        self.cluster_bits - 3
    }

    /// The L1 entry that leads to a cluster of the disk.
    pub(super) fn l1_index(&self, number: u64) -> u64 {
        number >> self.l2_bits()
    }

    fn within(&self, number: u64) -> u64 {
        number & ((1 << self.l2_bits()) - 1)
    }

    /// The offsets of the L2 tables.
    pub(super) fn l2_offsets(&self) -> impl Iterator<Item = Result<u64, Damage>> {
        let entries = (0_u64..).zip(&self.l1);
        entries.filter_map(|(number, entry)| {
            let found = entry::l1(*entry, number, self.cluster_bits);
            found.map(|found| found.map(|(offset, _)| offset)).transpose()
        })
    }

    /// The L2 table of an L1 entry, which is then in memory.
    fn l2_table(&mut self, l1_index: u64) -> Result<Option<(u64, bool)>> {
        let entry = self.l1.get(index(l1_index)).copied().unwrap_or(0);
        let Some((offset, copied)) = entry::l1(entry, l1_index, self.cluster_bits)? else {
            return Ok(None);
        };
        if self.l2.get(offset).is_none() {
            let (end, len) = (self.host.len(), self.cluster());
            if offset >= end {
                return Err(Damage::Beyond { what: What::L2, offset, len, end }.into());
            }
            self.l2.insert(offset, self.host.read(offset, len)?.to_vec());
        }
        Ok(Some((offset, copied)))
    }

    /// Where the parts of a range of the disk are, in order.
    pub(super) fn pieces(&mut self, range: Range<u64>) -> Result<Vec<Piece>> {
        let mut pieces: Vec<Piece> = Vec::new();
        let mut at = range.start;
        while at < range.end {
            let number = at >> self.cluster_bits;
            let l1_index = self.l1_index(number);
            let last = ((l1_index + 1) << (self.l2_bits() + self.cluster_bits)).min(range.end);
            let Some((table, _)) = self.l2_table(l1_index)? else {
                push(&mut pieces, Piece { guest: at, len: last - at, place: Cluster::Unallocated });
                at = last;
                continue;
            };
            while at < last {
                let number = at >> self.cluster_bits;
                let within = self.within(number);
                let entry = self.l2.get(table).expect("it was just read").entry(within);
                let mut place = entry::l2(entry, number, self.cluster_bits, self.version)?;
                let skipped = at & (self.cluster() - 1);
                if let Cluster::Data { host, .. } = &mut place {
                    *host += skipped;
                }
                let len = (self.cluster() - skipped).min(last - at);
                push(&mut pieces, Piece { guest: at, len, place });
                at += len;
            }
        }
        Ok(pieces)
    }

    /// What must be done before entries of this L2 table change.
    pub(super) fn writable(&mut self, l1_index: u64) -> Result<Writable> {
        Ok(match self.l2_table(l1_index)? {
            None => Writable::Absent,
            Some((_, true)) => Writable::Yes,
            Some((offset, false)) => {
                let table = self.l2.get(offset).expect("it was just read");
                Writable::Shared(offset, table.bytes().to_vec())
            }
        })
    }

    /// Takes a new L2 table, in a cluster that was allocated for it.
    pub(super) fn adopt(&mut self, l1_index: u64, offset: u64, bytes: Vec<u8>) {
        self.l2.insert(offset, bytes);
        self.l2.change(offset, Table::change_all);
        self.new.insert(offset);
        let at = index(l1_index);
        self.l1[at] = offset | COPIED;
        self.changed = Some(match self.changed.take() {
            Some(old) => old.start.min(at)..old.end.max(at + 1),
            None => at..at + 1,
        });
    }

    /// Sets the entry of a cluster of the disk, whose L2 table is writable.
    pub(super) fn set(&mut self, number: u64, entry: u64) -> Result<()> {
        let l1_index = self.l1_index(number);
        let within = self.within(number);
        let table = self.l2_table(l1_index)?;
        let (table, _) = table.expect("the table was made writable before");
        self.l2.change(table, |table| table.set_entry(within, entry));
        Ok(())
    }

    pub(super) fn has_changed(&self) -> bool {
        self.l2.has_changed() || self.changed.is_some()
    }

    pub(super) fn is_full(&self) -> bool {
        self.l2.is_full()
    }

    /// The new L2 tables.
    pub(super) fn new_tables(&self) -> Vec<(u64, Bytes)> {
        self.l2.changes(self.host.unit(), |offset| self.new.contains(&offset))
    }

    /// The new L2 tables are on the medium.
    pub(super) fn new_tables_written(&mut self) {
        self.l2.written(|offset| self.new.contains(&offset));
        self.new.clear();
    }

    /// The changes of the L1 table and of tables that it leads to.
    pub(super) fn changes(&self) -> Vec<(u64, Bytes)> {
        let mut changes = self.l2.changes(self.host.unit(), |offset| !self.new.contains(&offset));
        if let Some(changed) = self.changed.clone() {
            let per_unit = index(self.host.unit() / 8);
            let start = changed.start / per_unit * per_unit;
            let end = changed.end.next_multiple_of(per_unit);
            // The table fills its last unit with zeros.
            let entry = |at: usize| self.l1.get(at).copied().unwrap_or(0).to_be_bytes();
            let bytes: Vec<u8> = (start..end).flat_map(entry).collect();
            changes.push((self.l1_offset + start as u64 * 8, bytes.into()));
        }
        changes
    }

    /// Those changes are on the medium.
    pub(super) fn written(&mut self) {
        let new = std::mem::take(&mut self.new);
        self.l2.written(|offset| !new.contains(&offset));
        self.new = new;
        self.changed = None;
    }
}

/// Adds a piece; one that goes on where the last one ends makes it longer.
fn push(pieces: &mut Vec<Piece>, piece: Piece) {
    if let Some(last) = pieces.last_mut() {
        let follows = match (last.place, piece.place) {
            (Cluster::Unallocated, Cluster::Unallocated) => true,
            (Cluster::Zero { kept: None }, Cluster::Zero { kept: None }) => true,
            (Cluster::Data { host, copied }, Cluster::Data { host: next, copied: also }) => {
                host + last.len == next && copied == also
            }
            _ => false,
        };
        if follows {
            last.len += piece.len;
            return;
        }
    }
    pieces.push(piece);
}
