//! The root directory, and with it the first inode table, on volumes where the first descriptor
//! gives the table a wrong place, and has no checksum and no backup.

use cairn_base::units::as_index;
use cairn_base::{Ino, Pba};

use super::super::state::State;
use crate::format::inode::{Inode as Record, InodeFlags};
use crate::format::layout::inodes;

/// Blocks that are looked at, at most: the first group has no more without clusters.
const SEARCHED: u64 = 65_536;
/// Places at most: the log has old copies of the table's first block.
const MOST: usize = 8;

/// The places of the first table by which the root is a directory that begins with its own names.
/// None if that is so where the descriptor says.
pub(super) fn tables(state: &State) -> Vec<Pba> {
    let layout = &state.layout;
    let record = state.record(inodes::ROOT);
    let Some((_, index)) = layout.inode_group(inodes::ROOT) else { return Vec::new() };
    if record.is_some_and(|record| is_root(state, &record)) {
        return Vec::new();
    }
    let first = layout.group_first_block(0).get();
    let count = SEARCHED.min(layout.group_blocks(0).into());
    let is_table = |table: &Pba| {
        let place = layout.inode_location(index, *table);
        let end = place.offset.saturating_add(as_index(layout.inode_size));
        let block = state.source.block(place.pba).ok();
        let record =
            block.and_then(|block| Record::decode_unchecked(block.get(place.offset..end)?, layout));
        record.is_some_and(|record| is_root(state, &record))
    };
    let places = (first..first.saturating_add(count)).map(Pba);
    places.take_while(|_| !state.is_cancelled()).filter(is_table).take(MOST).collect()
}

/// Is the record that of a directory whose first block, or the inode itself, says that it is the
/// root?
fn is_root(state: &State, record: &Record) -> bool {
    if !record.is_directory() || record.links < 2 {
        return false;
    }
    let is_ino = |word: Option<u32>| word.is_some_and(|ino| Ino(ino.into()) == inodes::ROOT);
    if record.flags.contains(InodeFlags::INLINE_DATA) {
        return is_ino(word(&record.block, 0));
    }
    let Some(first) = first_block(record) else { return false };
    if !state.layout.contains(first, 1) {
        return false;
    }
    let Ok(bytes) = state.source.block(first) else { return false };
    let named = |at: usize, name: &[u8]| bytes.get(at..).is_some_and(|at| at.starts_with(name));
    // `.` takes 12 bytes, of which the name is the ninth.
    is_ino(word(&bytes, 0)) && is_ino(word(&bytes, 12)) && named(8, b".\0") && named(20, b"..\0")
}

/// The first block of a directory, if the inode has its place.
fn first_block(record: &Record) -> Option<Pba> {
    const HEADER: u32 = 0xf30a;
    if !record.flags.contains(InodeFlags::EXTENTS) {
        return word(&record.block, 0).map(|block| Pba(block.into()));
    }
    let (head, depth) = (word(&record.block, 0)?, word(&record.block, 4)? >> 16);
    let is_leaf = head & 0xffff == HEADER && head >> 16 != 0 && depth == 0;
    let (high, low) = (word(&record.block, 16)? >> 16, word(&record.block, 20)?);
    is_leaf.then_some(Pba(u64::from(high) << 32 | u64::from(low)))
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..)?.first_chunk().map(|word| u32::from_le_bytes(*word))
}
