//! The inodes that the superblock names: quota files and the file of orphans. Each counts as one of
//! the volume only with its feature, and if it holds what it should: the number may be wrong, and
//! be that of somebody's file.

use cairn_base::{Ino, Pba};
use cairn_check::Place;
use cairn_check::quota::has_quota_magic;

use super::kinds;
use super::map;
use super::map::has_map;
use super::state::State;
use super::visitor::Runs;
use crate::format::features::{Compat, RoCompat};
use crate::format::layout::inodes;
use crate::format::orphan;

/// Blocks of a map that are descended from at most.
const MAP_BLOCKS: u32 = 64;

/// Does an inode hold what it should?
type Holds = fn(&State, Ino) -> bool;

/// Finds wrong numbers, and notes the inodes that are named by mistake.
pub(super) fn check(state: &mut State) {
    let raw = state.superblock.raw;
    let features = state.layout.features;
    let has_quota = features.ro_compat(RoCompat::QUOTA);
    let wrong = |state: &State, field: &'static str, stored: u32, computed: u32| {
        let place = Place::field(field);
        state.differ(&kinds::SUPERBLOCK_FIELD, place, stored.into(), computed.into());
    };
    for (field, stored, reserved) in [
        ("s_usr_quota_inum", raw.s_usr_quota_inum.get(), 3_u32),
        ("s_grp_quota_inum", raw.s_grp_quota_inum.get(), 4),
    ] {
        let holds = has_quota && holds_quota(state, Ino(reserved.into()));
        match (stored, has_quota) {
            (0, true) if holds => wrong(state, field, 0, reserved),
            (0, _) => {}
            (stored, true) if stored == reserved => {}
            // What has no quota file keeps none.
            (stored, _) => wrong(state, field, stored, if holds { reserved } else { 0 }),
        }
    }
    let project = raw.s_prj_quota_inum.get();
    let has_orphans = features.compat(Compat::ORPHAN_FILE);
    let orphans = raw.s_orphan_file_inum.get();
    let files: [(_, _, _, Holds); 2] = [
        ("s_prj_quota_inum", project, has_quota, holds_quota),
        ("s_orphan_file_inum", orphans, has_orphans, holds_orphans),
    ];
    for (field, stored, has, holds) in files {
        let ino = Ino(stored.into());
        let is_possible = !state.is_reserved(ino) && state.layout.inode_group(ino).is_some();
        // A file of orphans is not made anew.
        let may_be_gone = has_quota && field != "s_orphan_file_inum";
        let is_kept = |ino| (may_be_gone && is_unused(state, ino)) || holds(state, ino);
        if stored != 0 && !(has && is_possible && is_kept(ino)) {
            wrong(state, field, stored, 0);
            state.strangers.push(ino);
        }
    }
    let journal = state.layout.journal_ino;
    if !state.is_reserved(journal) && !holds_journal(state, journal) {
        state.strangers.push(journal);
    }
}

/// The file may have been removed by a repair, which will make it anew.
fn is_unused(state: &State, ino: Ino) -> bool {
    state.record(ino).is_some_and(|record| record.links == 0)
}

/// Does an inode of the volume hold what it should, whatever its link count says?
pub(super) fn is_held(state: &State, ino: Ino) -> bool {
    holds_quota(state, ino) || holds_orphans(state, ino) || holds_journal(state, ino)
}

/// Does the inode hold a quota file?
pub(super) fn holds_quota(state: &State, ino: Ino) -> bool {
    let first = blocks(state, ino).first().map(|pba| state.source.block(*pba));
    first.is_some_and(|block| block.is_ok_and(|block| has_quota_magic(&block)))
}

/// Is the inode the list of bad blocks, or for limits that the volume does not have? Of these Linux
/// and e2fsck look at the map, and at nothing else that could be wrong.
pub(super) fn is_mere_map(state: &State, ino: Ino) -> bool {
    ino == inodes::BAD || is_unused_quota(state, ino)
}

/// Is the inode for limits of users or groups that the volume does not have?
pub(super) fn is_unused_quota(state: &State, ino: Ino) -> bool {
    let raw = &state.superblock.raw;
    let number = match ino {
        Ino(3) => raw.s_usr_quota_inum.get(),
        Ino(4) => raw.s_grp_quota_inum.get(),
        _ => return false,
    };
    // A number that is missing is put right, if this is a quota file.
    let is_used = state.layout.features.ro_compat(RoCompat::QUOTA)
        && (number != 0 || holds_quota(state, ino));
    !is_used
}

/// Does the inode hold a file of orphans? Some of its blocks may be damaged.
fn holds_orphans(state: &State, ino: Ino) -> bool {
    blocks(state, ino).into_iter().any(|pba| {
        let block = state.source.block(pba);
        block.is_ok_and(|block| orphan::has_magic(&block))
    })
}

/// Does the inode hold a journal?
fn holds_journal(state: &State, ino: Ino) -> bool {
    let first = blocks(state, ino).first().map(|pba| state.source.block(*pba));
    first.is_some_and(|block| block.is_ok_and(|block| cairn_jbd2::has_magic(&block)))
}

/// The first blocks of a regular file's runs.
fn blocks(state: &State, ino: Ino) -> Vec<Pba> {
    let record = state.record(ino).filter(|record| record.is_regular() && has_map(record));
    let Some(record) = record else { return Vec::new() };
    let mut found = Runs::new(MAP_BLOCKS);
    map::walk(state, ino, &record, &mut found);
    found.runs.iter().map(|run| run.pba).filter(|pba| state.layout.contains(*pba, 1)).collect()
}
