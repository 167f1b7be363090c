//! The second pass (jbd2's `PASS_REVOKE`): builds the revoke table.

use std::collections::HashMap;

use cairn_base::{Pba, Tid};

use super::log_reader::{LogReader, LoggedBlock, Record};
use crate::error::Result;

/// The newest transaction that revoked each block.
#[derive(Default)]
pub(super) struct RevokeTable {
    newest: HashMap<Pba, Tid>,
    /// Revoke records in the log, repetitions included.
    pub(super) records: u64,
}

impl RevokeTable {
    /// The table of the transactions before `end`.
    pub(super) fn read(log: &mut LogReader<'_>, end: Tid) -> Result<Self> {
        let mut table = Self::default();
        log.for_each(end, |record| {
            if let Record::Revoke(tid, blocks) = record {
                blocks.into_iter().for_each(|pba| table.insert(pba, tid));
            }
            Ok(())
        })?;
        Ok(table)
    }

    fn insert(&mut self, pba: Pba, tid: Tid) {
        self.records = self.records.saturating_add(1);
        let newest = self.newest.entry(pba).or_insert(tid);
        if tid.is_after(*newest) {
            *newest = tid;
        }
    }

    /// True if the block was revoked in its transaction or a later one.
    pub(super) fn revokes(&self, block: &LoggedBlock) -> bool {
        self.newest.get(&block.pba).is_some_and(|revoked_by| !block.tid.is_after(*revoked_by))
    }
}
