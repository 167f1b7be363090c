//! [`Cache`]: tables of the file in memory, by their offset.
//!
//! What has changed stays until it was written. Beyond the limit, the half that was used longest
//! ago goes.

use std::collections::HashMap;
use std::ops::Range;

use bytes::Bytes;

use super::host::index;

/// One table: a cluster of the file.
pub(super) struct Table {
    bytes: Vec<u8>,
    /// Bytes that have changed since they were written.
    changed: Option<Range<usize>>,
    used: u64,
}

impl Table {
    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The entry of 8 bytes with this number, which the table has.
    pub(super) fn entry(&self, number: u64) -> u64 {
        let at = index(number * 8);
        self.bytes[at..at + 8].iter().fold(0, |value, byte| value << 8 | u64::from(*byte))
    }

    pub(super) fn set_entry(&mut self, number: u64, value: u64) {
        let at = index(number * 8);
        self.change(at..at + 8).copy_from_slice(&value.to_be_bytes());
    }

    /// The bytes of a range that the caller changes now.
    pub(super) fn change(&mut self, range: Range<usize>) -> &mut [u8] {
        self.changed = Some(match self.changed.take() {
            Some(old) => old.start.min(range.start)..old.end.max(range.end),
            None => range.clone(),
        });
        &mut self.bytes[range]
    }

    /// Changes something within a range, for what has other units than bytes: `edit` gets the whole
    /// table.
    pub(super) fn edit(&mut self, range: Range<usize>, edit: impl FnOnce(&mut [u8])) {
        let _ = self.change(range);
        edit(&mut self.bytes);
    }

    /// All of it is to be written.
    pub(super) fn change_all(&mut self) {
        let len = self.bytes.len();
        let _ = self.change(0..len);
    }
}

/// Tables in memory.
pub(super) struct Cache {
    limit: usize,
    tables: HashMap<u64, Table>,
    clock: u64,
    changed: usize,
}

impl Cache {
    /// For `bytes` of memory with tables of `table` bytes each.
    pub(super) fn new(bytes: u64, table: u64) -> Self {
        let limit = index(bytes / table).max(8);
        Self { limit, tables: HashMap::new(), clock: 0, changed: 0 }
    }

    pub(super) fn get(&mut self, offset: u64) -> Option<&Table> {
        self.clock += 1;
        let table = self.tables.get_mut(&offset)?;
        table.used = self.clock;
        Some(table)
    }

    /// Changes a table that is in memory.
    pub(super) fn change<T>(&mut self, offset: u64, change: impl FnOnce(&mut Table) -> T) -> T {
        let table = self.tables.get_mut(&offset).expect("it was read before it is changed");
        let was = table.changed.is_some();
        let done = change(table);
        self.changed += usize::from(table.changed.is_some() && !was);
        done
    }

    /// Takes a table as it is on the medium.
    pub(super) fn insert(&mut self, offset: u64, bytes: Vec<u8>) {
        if self.tables.len() >= self.limit {
            self.shrink();
        }
        self.clock += 1;
        let table = Table { bytes, changed: None, used: self.clock };
        self.remove(offset);
        self.tables.insert(offset, table);
    }

    /// Forgets a table, changed or not.
    pub(super) fn remove(&mut self, offset: u64) {
        if let Some(table) = self.tables.remove(&offset) {
            self.changed -= usize::from(table.changed.is_some());
        }
    }

    fn shrink(&mut self) {
        let clean = self.tables.values().filter(|table| table.changed.is_none());
        let mut used: Vec<u64> = clean.map(|table| table.used).collect();
        let half = used.len() / 2;
        if let Some((_, oldest, _)) = (half < used.len()).then(|| used.select_nth_unstable(half)) {
            let oldest = *oldest;
            self.tables.retain(|_, table| table.changed.is_some() || table.used > oldest);
        }
    }

    /// True if so many tables have changed that they must be written before more do.
    pub(super) fn is_full(&self) -> bool {
        self.changed > self.limit / 2
    }

    pub(super) fn has_changed(&self) -> bool {
        self.changed > 0
    }

    /// What has changed of the tables that `choose` takes: offset and bytes, in order, in units of
    /// `unit` bytes.
    pub(super) fn changes(&self, unit: u64, choose: impl Fn(u64) -> bool) -> Vec<(u64, Bytes)> {
        let chosen = self.tables.iter().filter(|(offset, _)| choose(**offset));
        let changed = chosen.filter_map(|(offset, table)| {
            let changed = table.changed.clone()?;
            let unit = index(unit);
            let start = changed.start / unit * unit;
            let end = changed.end.next_multiple_of(unit).min(table.bytes.len());
            let bytes = Bytes::copy_from_slice(&table.bytes[start..end]);
            Some((offset + start as u64, bytes))
        });
        let mut changed: Vec<_> = changed.collect();
        changed.sort_unstable_by_key(|(offset, _)| *offset);
        changed
    }

    /// The changes of the tables that `choose` takes are on the medium.
    pub(super) fn written(&mut self, choose: impl Fn(u64) -> bool) {
        for (offset, table) in &mut self.tables {
            if choose(*offset) && table.changed.take().is_some() {
                self.changed -= 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_changed_stays_and_is_given_in_whole_units() {
        let mut cache = Cache::new(8 * 1024, 1024);
        cache.insert(4096, vec![0; 1024]);
        cache.change(4096, |table| table.set_entry(70, 7));
        for number in 0..100 {
            cache.insert(8192 + number * 1024, vec![0; 1024]);
        }
        assert!(cache.tables.len() <= 9, "{}", cache.tables.len());
        assert_eq!(cache.get(4096).unwrap().entry(70), 7);
        let changes = cache.changes(512, |_| true);
        assert_eq!((changes.len(), changes[0].0, changes[0].1.len()), (1, 4096 + 512, 512));
        cache.written(|_| true);
        assert!(!cache.has_changed() && cache.changes(512, |_| true).is_empty());
    }
}
