//! Reads fast commits: small changes of one transaction that Linux writes behind the log.
//!
//! The last `s_num_fc_blks` blocks of the journal are the fast-commit area. Its first block is
//! unused. Each fast commit is a run of `record`s; its TAIL record holds the number of a
//! transaction and a crc32c of the run. Only the transaction after the last one in the log counts:
//! fast commits of an older transaction have another number.
//!
//! **Bounds.** One pass over the area. It ends at the first run without a valid TAIL. If a complete
//! run lies behind that, the run was no torn one, but is damaged.

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

/// Blocks behind a supposed end in which a later fast commit is looked for, and blocks that one
/// takes.
const SEARCHED: u32 = 256;
const LONGEST: u32 = 64;

/// The fast commits after the last transaction of the log.
///
/// Read them before [`crate::recover`] empties the log, and apply them after its replay.
///
/// # Errors
/// The device failed, the log is damaged, or the fast commits use unknown features. One of them is
/// damaged: it has an end with another checksum and is the first one, as for Linux, or a later one
/// is complete.
pub fn fast_commits(area: &JournalArea) -> Result<Vec<FastCommit>> {
    let (complete, damage) = read(area)?;
    damage.map_or(Ok(complete), Err)
}

/// As [`fast_commits`], up to the first damaged one.
///
/// # Errors
/// The device failed, the log is damaged, or the fast commits use unknown features.
pub fn intact_fast_commits(area: &JournalArea) -> Result<Vec<FastCommit>> {
    Ok(read(area)?.0)
}

fn read(area: &JournalArea) -> Result<(Vec<FastCommit>, Option<Error>)> {
    let superblock = read_superblock(area)?;
    if superblock.start == 0 || superblock.fast_commit_blocks() == 0 {
        return Ok((Vec::new(), None));
    }
    let tid = recovery::end_of_log(area, &superblock)?;
    let mut reader = Reader::new(tid);
    for block in superblock.end().saturating_add(1)..superblock.blocks {
        if !reader.block(block, &area.read(block)?)? {
            let is_first = reader.complete.is_empty() && reader.wrong_sum.is_some();
            let is_damaged = is_first || is_followed(area, tid, block, superblock.blocks);
            let damage = is_damaged.then(|| reader.damage(block));
            return Ok((reader.complete, damage));
        }
    }
    Ok((reader.complete, None))
}

/// Is there a complete fast commit of the transaction behind a block?
fn is_followed(area: &JournalArea, tid: Tid, block: u32, end: u32) -> bool {
    let first = block.saturating_add(1);
    (first..first.saturating_add(SEARCHED).min(end)).any(|start| {
        let mut reader = Reader::new(tid);
        (start..start.saturating_add(LONGEST).min(end)).any(|block| {
            // What cannot be read proves nothing.
            let goes_on =
                area.read(block).is_ok_and(|bytes| matches!(reader.block(block, &bytes), Ok(true)));
            if !goes_on {
                reader = Reader::new(Tid(tid.0.wrapping_add(1)));
            }
            goes_on && !reader.complete.is_empty()
        })
    })
}

/// Decodes the area block by block.
struct Reader {
    tid: Tid,
    /// Checksum of the records since the last TAIL.
    sum: u32,
    /// Changes since the last TAIL.
    open: FastCommit,
    complete: Vec<FastCommit>,
    /// Stored and computed checksum of a TAIL of this transaction that does not hold.
    wrong_sum: Option<(u32, u32)>,
}

impl Reader {
    fn new(tid: Tid) -> Self {
        Self { tid, sum: 0, open: FastCommit::default(), complete: Vec::new(), wrong_sum: None }
    }

    /// The error for the block in which the valid part of the area ends.
    fn damage(&self, block: u32) -> Error {
        match self.wrong_sum {
            Some((stored, computed)) => {
                Error::Checksum { block, what: "fast commit", stored, computed }
            }
            None => {
                let (what, value) = ("fast commit", self.tid.0.into());
                Error::Corrupt {
                    block,
                    what,
                    value,
                    expected: "records, as later blocks have them",
                }
            }
        }
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
                    if tid == self.tid && sum != computed {
                        self.wrong_sum = Some((sum, computed));
                    }
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
