//! [`lost_start`]: a log that the journal's superblock calls empty, although it has a transaction
//! of the number that comes next.
//!
//! The superblock says where the log begins before the first block of that transaction is written.
//! So its commit block, of a time since the volume was mounted, proves that `s_start` was lost.
//! With a checksum the superblock is what was written.

use super::log_reader::LogReader;
use crate::area::{FORCED, JournalArea, read_superblock, write_superblock};
use crate::error::Result;
use crate::format::blocks::commit_time;
use crate::format::superblock::Superblock;
use crate::format::{Incompat, RawHeader, kind};

/// Most blocks that are tried as the first one.
const MOST_TRIED: usize = 16;

/// Where the log begins, if its superblock has lost that. The volume was not unmounted cleanly.
///
/// # Errors
/// The device failed, or the journal superblock is damaged.
pub fn lost_start(area: &JournalArea) -> Result<Option<u32>> {
    Ok(find(area, &read_superblock(area)?)?.map(|superblock| superblock.start))
}

/// Writes where the log begins, if its superblock has lost that. Returns the block.
///
/// # Errors
/// As [`lost_start`].
pub fn restore_start(area: &JournalArea) -> Result<Option<u32>> {
    let Some(right) = find(area, &read_superblock(area)?)? else { return Ok(None) };
    write_superblock(area, &right, FORCED)?;
    Ok(Some(right.start))
}

/// The superblock with the start of the log.
fn find(area: &JournalArea, superblock: &Superblock) -> Result<Option<Superblock>> {
    let mut log = LogReader::new(area, superblock);
    let is_unordered = log.layout.incompat.contains(Incompat::ASYNC_COMMIT);
    if superblock.start != 0 || log.layout.tags.has_checksums() || is_unordered {
        return Ok(None);
    }
    let (mut starts, mut commit) = (Vec::new(), None);
    for number in superblock.first..superblock.end() {
        // What cannot be read proves nothing.
        let bytes = log.read(number).unwrap_or_default();
        let header = RawHeader::read(&bytes).filter(|header| header.tid() == log.sequence);
        match header.map(|header| header.h_blocktype.get()) {
            Some(kind::DESCRIPTOR | kind::REVOKE) if starts.len() < MOST_TRIED => {
                starts.push(number);
            }
            Some(kind::COMMIT) if commit_time(&bytes) >= (area.since, 0) => commit = Some(number),
            _ => {}
        }
    }
    let Some(commit) = commit else { return Ok(None) };
    let mut best: Option<((u32, u32), Superblock)> = None;
    for start in starts {
        let mut other = superblock.clone();
        other.start = start;
        let end = LogReader::new(area, &other).scan()?.tid;
        let gained = end.0.wrapping_sub(superblock.sequence.0);
        let back = match commit.checked_sub(start) {
            Some(blocks) => blocks,
            None => commit.saturating_add(log.blocks()).saturating_sub(start),
        };
        if gained > 0 && best.as_ref().is_none_or(|(most, _)| (gained, back) > *most) {
            best = Some(((gained, back), other));
        }
    }
    Ok(best.map(|(_, superblock)| superblock))
}
