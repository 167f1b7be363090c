//! The third pass (jbd2's `PASS_REPLAY`): the newest contents of each block that is not revoked.

use std::collections::HashMap;

use cairn_base::sabotage::Safeguard;
use cairn_base::{Pba, Tid, memory};
use cairn_cache::block::Image;

use super::log_reader::{LogReader, Record};
use super::revoke::RevokeTable;
use crate::error::Result;

/// Newest committed contents of blocks, by home location.
pub type Images = HashMap<Pba, Image>;

/// What a recovery did (jbd2's `recovery_info`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Recovered {
    /// Transactions replayed.
    pub transactions: u32,
    /// Blocks replayed.
    pub blocks: u64,
    /// Revoke records found.
    pub revokes: u64,
    /// Number of the next transaction.
    pub next: Tid,
}

/// Reads the second and the third pass over the transactions before `end`.
pub(super) fn replay(log: &mut LogReader<'_>, end: Tid) -> Result<(Images, Recovered)> {
    let table = RevokeTable::read(log, end)?;
    let (mut images, mut transactions) = (Images::new(), 0_u32);
    log.for_each(end, |record| {
        match record {
            Record::Block(block) if !table.revokes(&block) || Safeguard::RevokeCheck.is_off() => {
                memory::admit("the journal's blocks").map_err(cairn_block::Error::from)?;
                images.insert(block.pba, block.data);
            }
            Record::Block(_) | Record::Revoke(..) => {}
            Record::Commit => transactions = transactions.saturating_add(1),
        }
        Ok(())
    })?;
    let blocks = u64::try_from(images.len()).unwrap_or(u64::MAX);
    // The log may hold blocks of transaction `end`. Its number is not used again, so that they
    // never look like a part of the next transaction.
    let recovered = Recovered { transactions, blocks, revokes: table.records, next: end.next() };
    Ok((images, recovered))
}
