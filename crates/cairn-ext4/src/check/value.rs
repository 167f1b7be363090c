//! The value of an attribute that has an inode of its own: three places have its hash, and two of
//! them decide.

use std::sync::atomic::Ordering::Relaxed;

use cairn_base::checksum::crc32c;
use cairn_base::units::as_index;
use cairn_base::{Ino, Pba};
use cairn_check::{Finding, Place};

use super::facts::Bytes;
use super::state::State;
use super::visitor::Runs;
use super::{kinds, map};
use crate::format::inode::Inode as Record;
use crate::format::xattr::is_of_value;

/// Blocks of a map that are descended from at most.
const MOST_NODES: u32 = 64;

/// What the bytes of a value say of the hashes of its entry and its inode.
pub(super) enum Says {
    /// The entry is right.
    Entry,
    /// The entry is wrong.
    Inode,
    /// Neither is right.
    Neither,
}

/// Compares the hashes with the bytes. Adds the finding if it is the inode that is wrong.
pub(super) fn judge(
    state: &State,
    ino: Ino,
    record: &Record,
    (name, entry): (&[u8], u32),
    bytes: Option<u32>,
) -> Says {
    let stored = record.value_facts().hash;
    let hash = bytes.unwrap_or(stored);
    match (is_of_value(entry, name, hash), hash == stored) {
        // Linux reads no value whose entry has no hash.
        (true, true) if entry == 0 => Says::Inode,
        (true, true) => Says::Entry,
        (false, true) if bytes.is_some() => Says::Inode,
        (true, false) if entry != 0 => {
            let place = Place::inode(ino.get()).in_field("i_atime");
            state.findings.add(Finding::new(&kinds::VALUE_HASH, place).hex(stored, hash));
            Says::Entry
        }
        _ => Says::Neither,
    }
}

/// The hash of the bytes. Each value is read once, and all together as many blocks as the volume
/// has.
pub(super) fn hash(state: &State, ino: Ino, record: &Record) -> Bytes {
    if let Some(known) = state.values.lock().get(&ino.get()) {
        return *known;
    }
    let found = read(state, ino, record).map_or_else(
        |unread| unread,
        |bytes| Bytes::Hash(crc32c(state.layout.value_seed(), &bytes)),
    );
    state.values.lock().insert(ino.get(), found);
    found
}

/// Are the bytes those of the hash that the inode has?
pub(super) fn is_hashed(state: &State, ino: Ino, record: &Record) -> bool {
    let bytes = read(state, ino, record);
    bytes.is_ok_and(|bytes| crc32c(state.layout.value_seed(), &bytes) == record.value_facts().hash)
}

fn read(state: &State, ino: Ino, record: &Record) -> Result<Vec<u8>, Bytes> {
    let block = u64::from(state.layout.block_size);
    let blocks = record.size.div_ceil(block);
    let before = state.totals.read_values.fetch_add(blocks, Relaxed);
    if before.saturating_add(blocks) > state.layout.blocks_count {
        return Err(Bytes::Unknown);
    }
    let mut found = Runs::new(MOST_NODES);
    map::walk(state, ino, record, &mut found);
    if found.is_damaged {
        // What a repair leaves of it is looked at again.
        return Err(Bytes::Unknown);
    }
    let mut bytes = Vec::new();
    let mut at = 0;
    for run in found.runs.iter().take_while(|run| run.start < blocks) {
        if run.start != at || run.unwritten {
            break;
        }
        let len = run.len.min(blocks.saturating_sub(at));
        for index in 0..len {
            let pba = Pba(run.pba.get().saturating_add(index));
            let read = state.source.block(pba).map_err(|error| {
                state.unreadable(Place::inode(ino.get()).at_block(pba.get()), &error);
                Bytes::Unknown
            })?;
            bytes.extend_from_slice(read.get(..as_index(state.layout.block_size)).unwrap_or(&[]));
        }
        at = at.saturating_add(len);
    }
    if at < blocks {
        return Err(Bytes::Refused("has a hole"));
    }
    bytes.truncate(usize::try_from(record.size).unwrap_or(usize::MAX));
    Ok(bytes)
}
