//! Inodes that count no links, although names lead to them and nothing else says that they are
//! deleted: the bitmap has them, and they have no deletion time.

use std::collections::BTreeMap;

use cairn_base::units::as_index;
use cairn_base::{Ino, bitmap};
use cairn_check::{Finding, Place, Report};

use super::super::kinds;
use super::super::state::State;
use super::candidate::{Candidate, Proof};
use crate::format::inode::Inode as Record;

/// Inodes at most: each is a check of its own.
const MOST: usize = 8;

/// Each such inode with a count of the names that were found.
pub(super) fn candidates(state: &State, report: &Report) -> Vec<Candidate> {
    let mut names: BTreeMap<u64, u32> = BTreeMap::new();
    let is_lost = |finding: &&Finding| finding.kind.code == kinds::ENTRY_TARGET.code;
    for finding in report.findings.iter().filter(is_lost) {
        if let Some(ino) = finding.stored.as_ref().and_then(|stored| stored.number()) {
            let count = names.entry(ino).or_default();
            *count = count.saturating_add(1);
        }
    }
    let found = names.into_iter().filter_map(|(ino, names)| candidate(state, Ino(ino), names));
    found.take(MOST).collect()
}

fn candidate(state: &State, ino: Ino, names: u32) -> Option<Candidate> {
    let layout = &state.layout;
    let mut bytes = state.record_bytes(ino)?;
    let mut record = Record::decode_unchecked(&bytes, layout)?;
    let is_kept = record.links == 0 && record.dtime == 0 && record.mode != 0;
    if !is_kept || !is_marked(state, ino)? {
        return None;
    }
    // A directory has its own name, too. How many are below it is counted then.
    record.links = if record.is_directory() { 2 } else { names };
    record.encode(ino, layout, &mut bytes);
    let (group, index) = layout.inode_group(ino)?;
    let table = state.groups.get(as_index(group))?.desc.inode_table;
    let place = layout.inode_location(index, table);
    let at = place.pba.get().checked_mul(layout.block_size.into())?;
    let at = at.checked_add(u64::try_from(place.offset).ok()?)?;
    let finding = Finding::new(&kinds::INODE_LINKS, Place::inode(ino.get()));
    let findings = vec![finding.stored(0_u64).computed(record.links)];
    Some(Candidate { findings, edits: vec![(at, bytes)], proof: Proof::Witness })
}

/// Does the bitmap say that the inode is in use?
fn is_marked(state: &State, ino: Ino) -> Option<bool> {
    let (group, index) = state.layout.inode_group(ino)?;
    let group = state.groups.get(as_index(group)).filter(|group| group.has_inode_bitmap)?;
    let bits = state.source.block(group.desc.inode_bitmap).ok()?;
    let (first, behind) = (as_index(index), as_index(index).checked_add(1)?);
    Some(bitmap::next_set(&bits, first, behind) == Some(first))
}
