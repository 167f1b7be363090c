//! [`lost_field`]: a log that its superblock hides. The superblock calls the log empty, although it
//! has a transaction of the number that comes next; or it names another number than the first
//! transaction has, so that there seems to be none.
//!
//! The superblock says where the log begins before the first block of that transaction is written.
//! So its commit block, of a time since the volume was mounted, proves that `s_start` was lost. If
//! the write of the superblock was lost, an older one with a right checksum is there; the log may
//! then begin with a number behind that of the superblock.
//!
//! A wrong number looks like a log whose last transaction was checkpointed: then older blocks lie
//! where the next one will be. But then the log has the commit block of the one before.

use cairn_base::Tid;

use super::log_reader::LogReader;
use crate::area::{FORCED, JournalArea, read_superblock, write_superblock};
use crate::error::Result;
use crate::format::blocks::commit_time;
use crate::format::superblock::{Superblock, WrongField};
use crate::format::{Incompat, RawHeader, kind};

/// Most blocks that are tried as the first one.
const MOST_TRIED: usize = 16;
/// Numbers that a recovery leaves out before the next one, and that one.
const LEFT_OUT: u32 = 2;

/// The field that leads to the log, if the superblock has lost it. The volume was not unmounted
/// cleanly.
///
/// # Errors
/// The device failed, or the journal superblock is damaged.
pub fn lost_field(area: &JournalArea) -> Result<Option<WrongField>> {
    Ok(find(area, &read_superblock(area)?)?.map(|(_, field)| field))
}

/// Writes the field that leads to the log, if the superblock has lost it. Returns the field.
///
/// # Errors
/// As [`lost_field`].
pub fn restore_field(area: &JournalArea) -> Result<Option<WrongField>> {
    let Some((right, field)) = find(area, &read_superblock(area)?)? else { return Ok(None) };
    write_superblock(area, &right, FORCED)?;
    Ok(Some(field))
}

/// The superblock that leads to the log, and its field that was lost.
fn find(area: &JournalArea, superblock: &Superblock) -> Result<Option<(Superblock, WrongField)>> {
    if superblock.start != 0 {
        let Some(right) = with_sequence(area, superblock)? else { return Ok(None) };
        let (stored, computed) = (superblock.sequence.0, right.sequence.0);
        return Ok(Some((right, WrongField { field: "s_sequence", stored, computed })));
    }
    let Some(right) = with_start(area, superblock)? else { return Ok(None) };
    let (stored, computed) = (0, right.start);
    Ok(Some((right, WrongField { field: "s_start", stored, computed })))
}

/// The superblock with the number of the transaction where the log begins, if it has another one.
fn with_sequence(area: &JournalArea, superblock: &Superblock) -> Result<Option<Superblock>> {
    let mut log = LogReader::new(area, superblock);
    // What cannot be read proves nothing.
    let first = log.read(superblock.start).unwrap_or_default();
    let Some(header) = RawHeader::read(&first) else { return Ok(None) };
    let is_begin = matches!(header.h_blocktype.get(), kind::DESCRIPTOR | kind::REVOKE);
    let (begin, next) = (header.tid(), superblock.sequence);
    if !is_begin || begin == next || area.since == 0 {
        return Ok(None);
    }
    let mut other = superblock.clone();
    other.sequence = begin;
    let end = LogReader::new(area, &other).scan()?.tid;
    let gained = end.0.wrapping_sub(begin.0);
    // The one before the next may be there in part. No later one is there before the next.
    let may_be_older = next.0.wrapping_sub(end.0) <= LEFT_OUT;
    if gained == 0 || gained > log.blocks() || may_be_older {
        return Ok(None);
    }
    let mut is_new = false;
    for number in superblock.first..superblock.end() {
        let bytes = log.read(number).unwrap_or_default();
        let header = RawHeader::read(&bytes);
        let header = header.filter(|header| header.h_blocktype.get() == kind::COMMIT);
        let Some(header) = header else { continue };
        let ahead = next.0.wrapping_sub(header.tid().0);
        if next.is_after(begin) && (1..=LEFT_OUT).contains(&ahead) {
            return Ok(None);
        }
        is_new |= header.tid() == begin && commit_time(&bytes) >= (area.since.saturating_add(1), 0);
    }
    Ok(is_new.then_some(other))
}

/// The superblock with the start of the log, if it calls the log empty. The log begins with the
/// number of the superblock, if that was the last one, or else behind those that a recovery leaves
/// out: then the superblock is the one from before the volume was mounted.
fn with_start(area: &JournalArea, superblock: &Superblock) -> Result<Option<Superblock>> {
    let log = LogReader::new(area, superblock);
    if log.layout.incompat.contains(Incompat::ASYNC_COMMIT) {
        return Ok(None);
    }
    for left_out in 0..=LEFT_OUT {
        let mut next = superblock.clone();
        next.sequence = Tid(superblock.sequence.0.wrapping_add(left_out));
        if let Some(found) = with_start_of(area, &next)? {
            return Ok(Some(found));
        }
    }
    Ok(None)
}

/// The superblock with the start of a log whose first transaction has its number.
fn with_start_of(area: &JournalArea, superblock: &Superblock) -> Result<Option<Superblock>> {
    let mut log = LogReader::new(area, superblock);
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
    if starts.is_empty() {
        // They were lost: the block before is damage, for which a replay refuses the log.
        let before = commit.checked_sub(1).filter(|number| *number >= superblock.first);
        starts.push(before.unwrap_or_else(|| superblock.end().saturating_sub(1)));
    }
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
        if best.as_ref().is_none_or(|(most, _)| (gained, back) > *most) {
            best = Some(((gained, back), other));
        }
    }
    Ok(best.map(|(_, superblock)| superblock))
}
