//! Reads fast commits: small changes of one transaction that Linux writes behind the log.
//!
//! The last `s_num_fc_blks` blocks of the journal are the fast-commit area. Its first block is
//! unused. Each fast commit is a run of `record`s; its TAIL record holds the number of a
//! transaction and a crc32c of the run. Only the transaction after the last one in the log counts:
//! fast commits of an older transaction have another number.
//!
//! **Bounds.** One pass over the area. It ends at the first run without a valid TAIL.

#![deny(
    clippy::indexing_slicing,
    clippy::as_conversions,
    clippy::arithmetic_side_effects,
    clippy::unwrap_used,
    clippy::expect_used
)]

mod operation;
mod record;
#[cfg(test)]
#[allow(
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::unwrap_used,
    reason = "a test may panic"
)]
mod tests;

use cairn_base::Tid;
use cairn_base::checksum::crc32c;

use crate::area::{JournalArea, read_superblock};
use crate::error::{Error, Result};
use crate::recovery;
pub use operation::{FastCommit, Name, Operation};
use record::{HEADER, Record, decode};

/// The fast commits after the last transaction of the log.
///
/// Read them before [`crate::recover`] empties the log, and apply them after its replay.
///
/// # Errors
/// The device failed, the log is damaged, or the fast commits use unknown features.
pub fn fast_commits(area: &JournalArea) -> Result<Vec<FastCommit>> {
    let superblock = read_superblock(area)?;
    if superblock.start == 0 || superblock.fast_commit_blocks() == 0 {
        return Ok(Vec::new());
    }
    let mut reader = Reader::new(recovery::end_of_log(area, &superblock)?);
    for block in superblock.end().saturating_add(1)..superblock.blocks {
        if !reader.block(block, &area.read(block)?)? {
            break;
        }
    }
    Ok(reader.complete)
}

/// Decodes the area block by block.
struct Reader {
    tid: Tid,
    /// Checksum of the records since the last TAIL.
    sum: u32,
    /// Changes since the last TAIL.
    open: FastCommit,
    complete: Vec<FastCommit>,
}

impl Reader {
    fn new(tid: Tid) -> Self {
        Self { tid, sum: 0, open: FastCommit::default(), complete: Vec::new() }
    }

    /// Decodes the next block. False if the valid part of the area ends in it.
    fn block(&mut self, number: u32, bytes: &[u8]) -> Result<bool> {
        let mut rest = bytes;
        while rest.len() >= HEADER {
            let Some((record, length)) = decode(rest) else { return Ok(false) };
            let (whole, after) = rest.split_at_checked(length).unwrap_or((rest, &[]));
            match record {
                Record::Head { tid, .. } if tid != self.tid => return Ok(false),
                Record::Head { features: 0, .. } | Record::Pad => {
                    self.sum = crc32c(self.sum, whole)
                }
                Record::Head { features, .. } => {
                    let (what, value) = ("features of a fast commit", u64::from(features));
                    return Err(Error::Corrupt { block: number, what, value, expected: "0" });
                }
                Record::Change(operation) => {
                    self.open.operations.push(operation);
                    self.sum = crc32c(self.sum, whole);
                }
                Record::Tail { tid, sum, covered } => {
                    let computed = crc32c(self.sum, whole.get(..covered).unwrap_or_default());
                    if tid != self.tid || sum != computed {
                        return Ok(false);
                    }
                    self.complete.push(std::mem::take(&mut self.open));
                    self.sum = 0;
                }
            }
            rest = after;
        }
        Ok(true)
    }
}
