//! Recovery: replays the log after a crash.
//!
//! 1. [`scan`] finds the end: transactions have consecutive numbers, and each ends with a valid
//!    commit block.
//! 2. [`revoke`] collects the blocks that must not be replayed.
//! 3. [`replay`] takes the newest contents of every other block.
//!
//! [`start`] finds a log that its superblock hides.
//!
//! A log with damage in a committed transaction is refused. For a repair, [`remains()`] takes what
//! is intact of it.
//!
//! **Bounds.** A pass visits each block of the log at most once. The revoke table is one hash map.

#![deny(
    clippy::indexing_slicing,
    clippy::as_conversions,
    clippy::arithmetic_side_effects,
    clippy::unwrap_used,
    clippy::expect_used
)]

mod log_reader;
mod remains;
mod replay;
mod revoke;
mod scan;
mod start;

use std::sync::Arc;

use cairn_base::Tid;
use cairn_base::sabotage::Safeguard;
use cairn_block::BlockDevice;

use crate::area::{FORCED, JournalArea, read_superblock, write_superblock};
use crate::error::{Error, Result};
use crate::format::superblock::Superblock;
use crate::home;
use log_reader::LogReader;
pub use remains::{Remains, mark_empty, remains, write_corrected};
pub use replay::{Images, Recovered};
pub use start::{lost_field, restore_field};

/// Replays the log to the volume's device and marks the log empty (`jbd2_journal_recover`). An
/// empty log is left as it is.
///
/// A transaction without a commit block ends the log.
///
/// # Errors
/// - The device failed.
/// - The journal superblock or a committed transaction is damaged. Nothing was written.
pub fn recover(area: &JournalArea, device: &Arc<dyn BlockDevice>) -> Result<Recovered> {
    recover_with(area, device, || Ok(()))
}

/// Like [`recover`]. Runs `apply_more` after the replay and before the log is marked empty: the
/// filesystem applies the fast commits there.
///
/// # Errors
/// As [`recover`], or `apply_more` failed. Then the log is unchanged.
pub fn recover_with(
    area: &JournalArea,
    device: &Arc<dyn BlockDevice>,
    apply_more: impl FnOnce() -> Result<(), cairn_block::Error>,
) -> Result<Recovered> {
    let mut superblock = read_superblock(area)?;
    if superblock.start == 0 {
        return Ok(Recovered { next: superblock.sequence, ..Recovered::default() });
    }
    let mut log = LogReader::new(area, &superblock);
    let end = log.find_end()?;
    let (images, recovered) = replay::replay(&mut log, end)?;
    check_homes(&images, &**device, area.block_size)?;
    let mut images: Vec<_> = images.into_iter().collect();
    images.sort_unstable_by_key(|(pba, _)| *pba);
    home::write(&**device, area.block_size, images.into_iter())?;
    apply_more()?;
    if !Safeguard::RecoveryFlush.is_off() {
        device.flush()?;
    }
    // The log may be marked empty only after this flush.
    superblock.start = 0;
    superblock.sequence = recovered.next;
    write_superblock(area, &superblock, FORCED)?;
    Ok(recovered)
}

/// The newest committed contents of every block in the log, for a read-only mount.
///
/// # Errors
/// As [`recover`].
pub fn replay_in_memory(area: &JournalArea) -> Result<Images> {
    replay_until(area, |log| log.find_end())
}

/// Like [`replay_in_memory`], up to the first damaged transaction. The result shows an old state of
/// the volume; the volume must not be written to on top of it.
///
/// # Errors
/// The device failed, or the journal superblock is damaged.
pub fn salvage_in_memory(area: &JournalArea) -> Result<Images> {
    replay_until(area, |log| Ok(log.scan()?.tid))
}

fn replay_until(
    area: &JournalArea,
    end: impl FnOnce(&mut LogReader<'_>) -> Result<Tid>,
) -> Result<Images> {
    let superblock = read_superblock(area)?;
    if superblock.start == 0 {
        return Ok(Images::new());
    }
    let mut log = LogReader::new(area, &superblock);
    let end = end(&mut log)?;
    Ok(replay::replay(&mut log, end)?.0)
}

/// Removes the record of an error from the journal superblock, of a log that is empty.
///
/// # Errors
/// The device failed, or the journal superblock is damaged.
pub fn forget_error(area: &JournalArea) -> Result<()> {
    let mut superblock = read_superblock(area)?;
    if superblock.errno != 0 {
        superblock.errno = 0;
        write_superblock(area, &superblock, FORCED)?;
    }
    Ok(())
}

/// Refuses a log with a block that the volume does not have.
fn check_homes(images: &Images, device: &dyn BlockDevice, block_size: u32) -> Result<()> {
    let blocks = device.geometry().size.checked_div(u64::from(block_size)).unwrap_or(0);
    match images.keys().max() {
        Some(last) if last.get() >= blocks => Err(Error::Corrupt {
            block: 0,
            what: "home location of a logged block",
            value: last.get(),
            expected: "a block of the volume",
        }),
        _ => Ok(()),
    }
}

/// The number after the last intact transaction of the log, and what is wrong with the transaction
/// of that number, if it was committed.
pub(crate) fn extent_of_log(
    area: &JournalArea,
    superblock: &Superblock,
) -> Result<(Tid, Option<Error>)> {
    let end = LogReader::new(area, superblock).scan()?;
    Ok((end.tid, end.damage))
}

/// The number after the last intact transaction of the log.
pub(crate) fn end_of_log(area: &JournalArea, superblock: &Superblock) -> Result<Tid> {
    LogReader::new(area, superblock).find_end()
}
