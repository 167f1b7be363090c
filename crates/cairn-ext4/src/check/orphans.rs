//! Inodes whose deletion or truncation has begun: the list in the superblock, and the orphan file.

use cairn_base::Ino;
use cairn_check::{Finding, Place};

use super::kinds;
use super::map;
use super::state::State;
use super::visitor::{Run, Runs};
use crate::format::features::{Compat, RoCompat};
use crate::format::orphan;

/// Finds all orphans before inodes are looked at. Returns how many there are.
pub(super) fn find(state: &State) -> u64 {
    let listed = list(state);
    let has = |feature| state.layout.features.compat(feature);
    if has(Compat::ORPHAN_FILE) && !has(Compat::HAS_JOURNAL) {
        state.find(&kinds::ORPHAN_JOURNAL, Place::field("s_orphan_file_inum"));
    }
    let ino = Ino(state.superblock.raw.s_orphan_file_inum.get().into());
    let is_file = has(Compat::ORPHAN_FILE) && ino.get() != 0 && !state.strangers.contains(&ino);
    let in_file = if is_file { file(state) } else { 0 };
    let is_marked = state.layout.features.ro_compat(RoCompat::ORPHAN_PRESENT);
    // A mount sets the mark, and an unmount clears it.
    let is_left = is_file && in_file == 0 && !state.is_recovered;
    if in_file > 0 && !is_marked || is_left && is_marked {
        let place = Place::field("s_feature_ro_compat");
        state.find(&kinds::ORPHAN_INVALID, place);
    }
    listed.saturating_add(in_file)
}

/// Reports orphans on a volume that was unmounted cleanly.
pub(super) fn report(state: &State, count: u64) {
    if count > 0 && !state.is_recovered {
        let finding = Finding::new(&kinds::ORPHAN_PENDING, Place::volume());
        state.findings.add(finding.stored(count));
    }
}

fn add(state: &State, ino: Ino) -> bool {
    let is_possible = ino.get() >= u64::from(state.layout.first_ino);
    match state.facts(ino).filter(|_| is_possible) {
        Some(facts) if !facts.is_orphan() => {
            facts.set_orphan();
            true
        }
        _ => {
            let finding = Finding::new(&kinds::ORPHAN_INVALID, Place::inode(ino.get()));
            state.findings.add(finding.stored(ino.get()));
            false
        }
    }
}

fn list(state: &State) -> u64 {
    let mut next = state.superblock.raw.s_last_orphan.get();
    let mut count = 0_u64;
    // A member is added once, so the list ends.
    while next != 0 && add(state, Ino(next.into())) {
        count = count.saturating_add(1);
        next = state.record(Ino(next.into())).map_or(0, |record| record.dtime);
    }
    count
}

/// Blocks of the map of an orphan file: it has some hundred blocks.
const MAP_BLOCKS: u32 = 4096;

/// The first block of the file that nothing was written to: no mount reads a file with one.
pub(super) fn hole(runs: &[Run]) -> Option<u64> {
    let mut end = 0;
    for run in runs {
        if run.start != end || run.unwritten {
            return Some(end);
        }
        end = run.end();
    }
    None
}

fn file(state: &State) -> u64 {
    let ino = Ino(state.superblock.raw.s_orphan_file_inum.get().into());
    let Some(record) = state.record(ino) else {
        state.find(&kinds::ORPHAN_INVALID, Place::field("s_orphan_file_inum"));
        return 0;
    };
    let mut blocks = Runs::new(MAP_BLOCKS);
    map::walk(state, ino, &record, &mut blocks);
    let hole = hole(&blocks.runs);
    if let Some(at) = hole {
        let place = Place::inode(ino.get()).at_file_block(at);
        state.findings.add(Finding::new(&kinds::ORPHAN_INVALID, place).stored("a hole"));
    }
    let seed = record.seed(ino, &state.layout);
    let mut count = 0_u64;
    let blocks_of_file = record.size.checked_div(state.layout.block_size.into()).unwrap_or(0);
    // With a hole the size says nothing.
    let most = state.layout.blocks_count;
    let mut left = if hole.is_some() { most } else { blocks_of_file.min(most) };
    for run in blocks.runs {
        let len = run.len.min(left);
        left = left.saturating_sub(len);
        for index in 0..len {
            let pba = cairn_base::Pba(run.pba.get().saturating_add(index));
            let place = Place::inode(ino.get()).at_block(pba.get());
            let block = match state.source.block(pba) {
                Ok(block) => block,
                Err(error) => {
                    state.unreadable(place, &error);
                    continue;
                }
            };
            match orphan::decode(&block, pba, seed) {
                Ok(inos) => {
                    for ino in inos.into_iter().filter(|ino| ino.get() != 0) {
                        count = count.saturating_add(u64::from(add(state, ino)));
                    }
                    if orphan::has_needless_checksum(&block, seed) {
                        let finding = Finding::new(&kinds::ORPHAN_INVALID, place);
                        state.findings.add(finding.stored("a checksum without metadata_csum"));
                    }
                }
                Err(why) => {
                    let kind = &kinds::ORPHAN_INVALID;
                    state.report(kind, kind, place, &why);
                }
            }
        }
    }
    count
}
