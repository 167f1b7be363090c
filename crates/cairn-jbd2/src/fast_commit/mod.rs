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

pub(crate) mod blocks;
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

use crate::area::{JournalArea, read_superblock};
use crate::error::{Error, Result};
use crate::recovery;
pub use operation::{FastCommit, Name, Operation};

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

/// The intact fast commits of a transaction, whatever the log says, and whether there are damaged
/// ones behind them.
///
/// # Errors
/// The device failed, the journal's superblock is damaged, or they use unknown features.
pub fn fast_commits_of(area: &JournalArea, tid: Tid) -> Result<(Vec<FastCommit>, bool)> {
    let superblock = read_superblock(area)?;
    let (complete, damage) = blocks::read(area, superblock.fast_commit_area(), tid)?;
    Ok((complete, damage.is_some()))
}

fn read(area: &JournalArea) -> Result<(Vec<FastCommit>, Option<Error>)> {
    let superblock = read_superblock(area)?;
    if superblock.start == 0 || superblock.fast_commit_blocks() == 0 {
        return Ok((Vec::new(), None));
    }
    let tid = recovery::end_of_log(area, &superblock)?;
    blocks::read(area, superblock.fast_commit_area(), tid)
}
