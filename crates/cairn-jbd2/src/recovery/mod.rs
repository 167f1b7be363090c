//! Recovery: three passes over the log.
//!
//! 1. SCAN finds the end: transactions follow each other by number, each closed by a good commit block.
//! 2. REVOKE collects the blocks that must not be replayed from transactions up to the one that revoked them.
//! 3. REPLAY hands the newest copy of every other block to a sink.
//!
//! Bounded: no pass visits more blocks than the log has, whatever the log says. The revoke table is one hash map.

mod scan;

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use cairn_base::{Pba, Tid, memory};
use cairn_block::Durability;
use cairn_cache::block::Image;

use crate::area::JournalArea;
use crate::error::{Error, Result};
use crate::format::superblock::Superblock;
use scan::{Copy, Log, Step};

/// Newest committed contents of blocks, by home address.
pub type Images = HashMap<Pba, Image>;

/// What a recovery did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Recovered {
    /// Transactions replayed.
    pub transactions: u32,
    /// Blocks written home (or laid over the device).
    pub blocks: u64,
    /// Revoke records seen.
    pub revokes: u64,
    /// Number the next transaction must have.
    pub next: Tid,
}

/// Replays the log to the device of the volume, and marks it empty. Does nothing but read if it already is.
///
/// # Errors
/// The device failed, or the journal superblock or a committed transaction is damaged; then nothing was written. A log that is
/// not whole at its end stops there.
pub fn recover(area: &JournalArea, home: &Arc<dyn cairn_block::BlockDevice>) -> Result<Recovered> {
    recover_with(area, home, || Ok(()))
}

/// Like [`recover`], with more to be written home before the log is declared empty: what fast commits change.
///
/// # Errors
/// As [`recover`], or `more` failed: then the log is as it was.
pub fn recover_with(
    area: &JournalArea,
    home: &Arc<dyn cairn_block::BlockDevice>,
    more: impl FnOnce() -> Result<(), cairn_block::Error>,
) -> Result<Recovered> {
    let mut superblock = read_superblock(area)?;
    if superblock.start == 0 {
        return Ok(Recovered { next: superblock.sequence, ..Recovered::default() });
    }
    let (blocks, recovered) = collect(area, &superblock)?;
    within(&blocks, home.geometry().size / u64::from(area.block_size))?;
    let mut sorted: Vec<_> = blocks.into_iter().collect();
    sorted.sort_by_key(|(pba, _)| *pba);
    crate::home::write(&**home, area.block_size, sorted.iter().map(|(pba, image)| (*pba, image.clone())))?;
    more()?;
    home.flush()?;
    // Only now may the log be declared empty. Its next transaction must not look like a continuation of the old log.
    superblock.start = 0;
    superblock.sequence = recovered.next;
    write_superblock(area, &superblock)?;
    Ok(recovered)
}

/// The newest committed copy of every block in the log, for a read-only open.
///
/// # Errors
/// As [`recover`].
pub fn replay_in_memory(area: &JournalArea) -> Result<Images> {
    let superblock = read_superblock(area)?;
    if superblock.start == 0 {
        return Ok(HashMap::new());
    }
    Ok(collect(area, &superblock)?.0)
}

/// What a damaged log holds before its damage: for looking at the volume, not for going on with it.
///
/// # Errors
/// The device failed, or the journal superblock is damaged.
pub fn salvage_in_memory(area: &JournalArea) -> Result<Images> {
    let superblock = read_superblock(area)?;
    if superblock.start == 0 {
        return Ok(HashMap::new());
    }
    let mut log = Log::new(area, &superblock);
    let (end, _) = log.scan()?;
    Ok(collect_until(log, end)?.0)
}

/// `-EUCLEAN`, as Linux stores it in `s_errno` for a damaged journal.
const DAMAGED: u32 = 0_u32.wrapping_sub(117);

/// Leaves word in the journal superblock that the log is damaged, for e2fsck and Linux; the log itself stays as it is.
///
/// # Errors
/// The device failed, or the journal superblock is damaged.
pub fn note_damage(area: &JournalArea) -> Result<()> {
    let mut superblock = read_superblock(area)?;
    superblock.errno = DAMAGED;
    write_superblock(area, &superblock)
}

/// Refuses copies of blocks that the volume does not have, before any block is written.
fn within(blocks: &Images, volume_blocks: u64) -> Result<()> {
    match blocks.keys().max() {
        Some(last) if last.get() >= volume_blocks => Err(Error::Corrupt {
            block: 0,
            what: "home of a logged block",
            value: last.get(),
            expected: "a block of the volume",
        }),
        _ => Ok(()),
    }
}

/// Reads and validates the journal superblock.
///
/// # Errors
/// The device failed, or the superblock is damaged.
pub fn read_superblock(area: &JournalArea) -> Result<Superblock> {
    Superblock::decode(&area.read(0)?, area.block_size, area.blocks())
}

/// Writes the journal superblock so that it is on the medium when this returns.
pub(crate) fn write_superblock(area: &JournalArea, superblock: &Superblock) -> Result<()> {
    let mut block = superblock.encode();
    block.resize(area.block_size as usize, 0);
    area.write(0, vec![Bytes::from(block)], Durability { preflush: false, fua: true })
}

/// The number after the last whole transaction.
pub(crate) fn end_of_log(area: &JournalArea, superblock: &Superblock) -> Result<Tid> {
    Log::new(area, superblock).find_end()
}

fn collect(area: &JournalArea, superblock: &Superblock) -> Result<(Images, Recovered)> {
    let mut log = Log::new(area, superblock);
    let end = log.find_end()?;
    collect_until(log, end)
}

/// Second and third pass, over the transactions before `end`.
fn collect_until(mut log: Log<'_>, end: Tid) -> Result<(Images, Recovered)> {
    let mut revoked: HashMap<Pba, Tid> = HashMap::new();
    // Pieces of transaction `end` may lie in the log, even its commit block: that number is not used again.
    let mut recovered = Recovered { next: end.next(), ..Recovered::default() };
    log.rewind();
    log.walk(end, |step| {
        if let Step::Revoke(tid, records) = step {
            recovered.revokes += records.len() as u64;
            for pba in records {
                let latest = revoked.entry(pba).or_insert(tid);
                if tid.is_after(*latest) {
                    *latest = tid;
                }
            }
        }
        Ok(())
    })?;
    let mut blocks = HashMap::new();
    log.rewind();
    log.walk(end, |step| {
        match step {
            Step::Copy(Copy { tid, pba, image }) => {
                memory::admit("the journal's blocks").map_err(cairn_block::Error::from)?;
                // A revoke in a transaction covers copies in it and in all before it.
                if revoked.get(&pba).is_none_or(|by| tid.is_after(*by)) {
                    blocks.insert(pba, image);
                }
            }
            Step::Commit => recovered.transactions += 1,
            Step::Revoke(..) => {}
        }
        Ok(())
    })?;
    recovered.blocks = blocks.len() as u64;
    Ok((blocks, recovered))
}
