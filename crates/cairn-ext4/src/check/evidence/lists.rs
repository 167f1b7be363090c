//! Attribute blocks of inodes with one wrong bit in their place.

use cairn_check::{Finding, Place};

use super::super::doubted_lists::DoubtedList;
use super::super::kinds;
use super::super::state::State;
use super::candidate::{Candidate, Proof};
use crate::format::features::Incompat;

/// Offsets of the two parts of `i_file_acl`.
const LOW_AT: usize = 104;
const HIGH_AT: usize = 118;

/// The inodes with their own attribute blocks, all of them and one by one.
pub(super) fn candidates(state: &State) -> Vec<Candidate> {
    let proved = state.doubted_lists.found().into_iter().filter(|one| one.is_proved);
    let single: Vec<_> = proved.filter_map(|one| candidate(state, &one)).collect();
    let all = Candidate {
        findings: single.iter().flat_map(|one| one.findings.clone()).collect(),
        edits: single.iter().flat_map(|one| one.edits.clone()).collect(),
        proof: Proof::Witness,
    };
    (single.len() > 1).then_some(all).into_iter().chain(single).collect()
}

fn candidate(state: &State, one: &DoubtedList) -> Option<Candidate> {
    let record = state.record_place(one.ino)?;
    let at = |offset: usize| u64::try_from(offset).ok().and_then(|at| record.checked_add(at));
    let right = one.right.to_le_bytes();
    let mut edits = vec![(at(LOW_AT)?, right.get(..4)?.to_vec())];
    if state.layout.features.incompat(Incompat::BITS_64) {
        edits.push((at(HIGH_AT)?, right.get(4..6)?.to_vec()));
    }
    let place = Place::inode(one.ino.get()).in_field("i_file_acl");
    let finding = Finding::new(&kinds::MAP_BIT, place).stored(one.stored).computed(one.right);
    Some(Candidate { findings: vec![finding], edits, proof: Proof::Witness })
}
