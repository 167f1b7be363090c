//! [`Contents`]: what a log has.

use crate::format::local_log::{Frame, Header};

/// A record that is whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Record {
    /// Where it is.
    pub(crate) offset: u64,
    /// What stands before its data object.
    pub(crate) frame: Frame,
    /// Data objects below this sequence were in the store when it was written.
    pub(crate) stable: u64,
}

/// What a log has.
#[derive(Default)]
pub(crate) struct Contents {
    /// None if it is nobody's.
    pub(crate) header: Option<Header>,
    /// In the order of flushes, up to the first that is not whole.
    pub(crate) records: Vec<Record>,
    /// What shows that there was more behind them.
    pub(crate) damage: Option<String>,
}

impl Contents {
    /// The number behind the last record.
    pub(crate) fn next(&self) -> u64 {
        let first = self.header.map_or(0, |header| header.first);
        first.saturating_add(self.records.len() as u64)
    }

    /// Bytes of the data objects of all records.
    pub(crate) fn bytes(&self) -> u64 {
        self.records.iter().map(|record| record.frame.length).sum()
    }
}
