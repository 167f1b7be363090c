//! The file type of inodes whose mode and contents contradict each other.
//!
//! The first walk sets such inodes aside. When all others are known, the types in the directory
//! entries decide: the type that contents and names agree on is that of the inode.

use std::collections::BTreeMap;

use cairn_base::Ino;
use cairn_check::{Finding, Place};
use cairn_vfs::FileKind;

use super::directory;
use super::each_entry::each_entry;
use super::facts::Suspect;
use super::inodes;
use super::kinds;
use super::state::State;
use crate::form::types;
use crate::format::features::Incompat;

/// Decides of what type the inodes are that were set aside, and examines them as such.
pub(super) fn resolve(state: &State) {
    let mut suspects = std::mem::take(&mut *state.suspects.lock());
    suspects.sort_unstable_by_key(|suspect| suspect.ino.get());
    if suspects.is_empty() {
        return;
    }
    let names = named(state, &suspects);
    for suspect in suspects {
        let Suspect { ino, bytes, fitting } = suspect;
        let Some(record) = state.record(ino) else { continue };
        let said = names.get(&ino.get()).copied();
        if let Some((kind, is_proved)) = types::decided(&record, said, &fitting) {
            let right = types::mode_of(record.mode, kind);
            let finding = match is_proved {
                true => &kinds::INODE_TYPE,
                false => &kinds::INODE_TYPE_UNPROVED,
            };
            let place = Place::inode(ino.get()).in_field("i_mode");
            state.findings.add(Finding::new(finding, place).modes(record.mode, right));
            state.corrected.set_mode(ino, right);
        }
        inodes::examine(state, ino, &bytes);
    }
}

/// The type that the names of each inode set aside have: `None` if they differ.
fn named(state: &State, suspects: &[Suspect]) -> BTreeMap<u64, Option<FileKind>> {
    let mut found = BTreeMap::new();
    if !state.layout.features.incompat(Incompat::FILETYPE) {
        return found;
    }
    let is_asked = |ino: u64| suspects.binary_search_by_key(&ino, |other| other.ino.get()).is_ok();
    let known = state.inodes.iter();
    let known = known.filter(|(_, facts)| facts.is_directory() && !facts.is_broken());
    let known = known.map(|(ino, _)| Ino(ino));
    let possible = suspects.iter().filter(|other| other.fitting.contains(&FileKind::Directory));
    for ino in known.chain(possible.map(|other| other.ino)) {
        if state.is_cancelled() {
            break;
        }
        let Some(directory) = directory::open(state, ino) else { continue };
        each_entry(&directory, |_, entry| {
            let ino = u64::from(entry.ino);
            let kind = FileKind::of_entry_code(entry.file_type).filter(|_| is_asked(ino));
            if let Some(kind) = kind {
                let seen = found.entry(ino).or_insert(Some(kind));
                *seen = seen.filter(|other| *other == kind);
            }
        });
    }
    found
}
