//! Files with the flag of inodes that hold values of attributes: no attribute has the value, and a
//! directory has a name.

use std::collections::BTreeSet;

use cairn_base::Ino;
use cairn_check::{Finding, Place};

use super::directory;
use super::each_entry::each_entry;
use super::kinds;
use super::state::State;
use crate::form::stored_flags;
use crate::format::inode::InodeFlags;

/// Takes such inodes for the files that they are. All attributes are known.
pub(super) fn resolve(state: &State) {
    let values = state.inodes.iter().filter(|(_, facts)| facts.is_value());
    let unused: BTreeSet<u64> =
        values.filter(|(_, facts)| facts.references() == 0).map(|(ino, _)| ino).collect();
    if unused.is_empty() {
        return;
    }
    let mut named = BTreeSet::new();
    let known = state.inodes.iter().filter(|(_, facts)| facts.is_directory() && !facts.is_broken());
    for (ino, _) in known {
        if state.is_cancelled() {
            return;
        }
        let Some(directory) = directory::open(state, Ino(ino)) else { continue };
        each_entry(&directory, |_, entry| {
            let ino = u64::from(entry.ino);
            if unused.contains(&ino) {
                named.insert(ino);
            }
        });
    }
    for number in named {
        let ino = Ino(number);
        let Some((facts, bytes)) = state.facts(ino).zip(state.record_bytes(ino)) else { continue };
        let stored = stored_flags(&bytes);
        let right = InodeFlags::from_bits_retain(stored).difference(InodeFlags::EA_INODE).bits();
        let finding = Finding::new(&kinds::INODE_FLAGS, Place::inode(number).in_field("i_flags"));
        state.findings.add(finding.hex(stored, right));
        state.corrected.set_flags(ino, right);
        facts.clear_value();
    }
}
