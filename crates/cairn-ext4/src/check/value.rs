//! The value of an attribute that has an inode of its own: three places have its hash, and two of
//! them decide.

use cairn_base::checksum::crc32c;
use cairn_base::units::as_index;
use cairn_base::{Ino, Pba};
use cairn_check::{Finding, Place};

use super::state::State;
use super::visitor::Runs;
use super::{kinds, map};
use crate::format::inode::Inode as Record;
use crate::format::xattr::entry_hashes_of_inode;

/// Bytes of a value at most.
const MOST: u64 = 64 << 10;
/// Blocks of a map that are descended from at most.
const MOST_NODES: u32 = 64;

/// What the bytes of a value say, where the hash of its inode contradicts the entry.
pub(super) enum Says {
    /// The entry is right.
    Entry,
    /// The inode is right.
    Inode,
    /// Neither is.
    Neither,
}

/// Compares the hashes with the bytes. Adds the finding if it is the inode that is wrong.
pub(super) fn judge(state: &State, ino: Ino, record: &Record, name: &[u8], entry: u32) -> Says {
    let stored = record.value_facts().hash;
    match hash(state, ino, record) {
        Some(hash) if hash == stored => Says::Inode,
        Some(hash) if entry_hashes_of_inode(name, hash).contains(&entry) => {
            let place = Place::inode(ino.get()).in_field("i_atime");
            state.findings.add(Finding::new(&kinds::VALUE_HASH, place).hex(stored, hash));
            Says::Entry
        }
        _ => Says::Neither,
    }
}

/// The hash of the bytes, if they can be read.
fn hash(state: &State, ino: Ino, record: &Record) -> Option<u32> {
    if record.size > MOST {
        return None;
    }
    let mut found = Runs::new(MOST_NODES);
    map::walk(state, ino, record, &mut found);
    if found.is_damaged {
        return None;
    }
    let block = u64::from(state.layout.block_size);
    let mut bytes = vec![0; usize::try_from(record.size).ok()?];
    for run in found.runs.iter().filter(|run| !run.unwritten) {
        for at in run.start..run.end().min(record.size.div_ceil(block)) {
            let pba = Pba(run.pba.get().saturating_add(at.saturating_sub(run.start)));
            let read = state.source.block(pba).ok()?;
            let from = usize::try_from(at.saturating_mul(block)).ok()?;
            let rest = bytes.get_mut(from..)?;
            let len = rest.len().min(as_index(state.layout.block_size));
            rest.get_mut(..len)?.copy_from_slice(read.get(..len)?);
        }
    }
    Some(crc32c(state.layout.value_seed(), &bytes))
}
