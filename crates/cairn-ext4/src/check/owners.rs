//! If blocks were claimed twice: all inodes that have some of them.

use std::sync::Arc;

use cairn_base::{Ino, Pba};
use cairn_check::{Finding, Place, Work};

use super::claims::Owners;
use super::counted;
use super::kinds;
use super::map::has_map;
use super::state::State;
use crate::format::layout::inodes;

/// Inodes of a step.
const STEP: u64 = 1024;

/// The walk over all inodes in use.
pub(super) struct Twice(pub(super) Arc<State>);

impl Work for Twice {
    fn steps(&self) -> u64 {
        self.0.inodes.len().div_ceil(STEP)
    }

    fn step(&self, number: u64) -> bool {
        let state = &*self.0;
        let first = number.saturating_mul(STEP);
        for (ino, facts) in state.inodes.range(first, first.saturating_add(STEP)) {
            if facts.is_in_use() && !facts.is_broken() {
                look(state, Ino(ino));
            }
        }
        state.progress.advance(1);
        !state.is_cancelled()
    }
}

fn look(state: &State, ino: Ino) {
    let Some(record) = state.record(ino).filter(|_| ino != inodes::RESIZE) else { return };
    let acl = record.file_acl;
    if acl != Pba(0) && state.twice.contains(state.cluster(acl.get())) {
        let place = Place::inode(ino.get()).at_block(acl.get()).in_field("i_file_acl");
        state.findings.add(Finding::new(&kinds::MAP_TWICE, place));
    }
    if has_map(&record) {
        let mut owners = Owners::new(state, ino);
        counted::walk(state, ino, &record, &mut owners);
        owners.report();
    }
}
