//! Block maps with one wrong bit, on volumes whose inodes have no checksums.

use std::collections::BTreeSet;

use cairn_base::units::{as_index, as_u64};
use cairn_base::{Ino, Pba, bitmap};
use cairn_check::{BlockSet, Finding, Place, Report};

use super::super::claims::Owners;
use super::super::map::has_map;
use super::super::map_bit::{self, WrongBit};
use super::super::proved::Proved;
use super::super::state::State;
use super::super::visitor::Runs;
use super::super::{kinds, map};
use super::candidate::{Candidate, Proof};
use crate::format::features::{Compat, Incompat, RoCompat};

/// Inodes that are looked at, at most.
const MOST: usize = 64;
/// Pieces of a file that are no accident.
const PIECES: i64 = 16;
/// Blocks of a map that are descended from at most.
const MOST_NODES: u32 = 1024;

/// The only such map, with its bit right.
pub(super) fn candidates(state: &State, report: &Report) -> Vec<Candidate> {
    let is_sealed = state.layout.features.ro_compat(RoCompat::METADATA_CSUM);
    // Where walks have ended before their maps did, nothing is proved.
    if is_sealed || Owners::are_too_many(state) {
        return Vec::new();
    }
    let suspects = suspects(state, report).into_iter().take(MOST).map(Ino);
    let found = suspects.filter_map(|ino| Some((ino, map_bit::find(state, ino)?)));
    let found: Vec<_> = found.filter(|(_, bit)| !bit.is_doubted).collect();
    // Two files cannot both have what neither has now. Files in pieces are usual, so that only a
    // map that is quite in order with its bit right is believed rather than another one.
    let is_disputed = |(ino, bit): &(Ino, WrongBit)| {
        let mut others = found.iter().filter(|(other, _)| other != ino);
        others
            .any(|(_, other)| other.gain.saturating_add(PIECES) > bit.gain && overlaps(bit, other))
    };
    let proved = if found.is_empty() { None } else { Proved::find(state).ok() };
    let is_shared = |ino: Ino| {
        let is = |one: &Finding| one.place.inode == Some(ino.get());
        let twice = |one: &&Finding| one.kind.code == kinds::MAP_TWICE.code;
        report.findings.iter().filter(twice).any(is)
    };
    // Of two files that have a block, the one that does not count its blocks may be the wrong one.
    let is_others = |ino: Ino| {
        let doubts = proved.as_ref().is_none_or(|proved| proved.doubts_another(ino));
        doubts && is_shared(ino)
    };
    let is_possible = |one: &&(Ino, WrongBit)| !is_disputed(one) && !is_others(one.0);
    let mut kept = found.iter().filter(is_possible);
    // Of several, one may only seem to fit beside another.
    match (kept.next(), kept.next()) {
        (Some((ino, bit)), None) => vec![candidate(state, *ino, bit)],
        _ => Vec::new(),
    }
}

fn candidate(state: &State, ino: Ino, bit: &WrongBit) -> Candidate {
    let size = u64::from(state.layout.block_size);
    let place = Place::inode(ino.get()).at_block(bit.pba.get()).at_offset(as_u64(bit.at));
    let kind = if bit.is_disputed { &kinds::MAP_DISPUTED } else { &kinds::MAP_BIT };
    let findings = vec![Finding::new(kind, place).hex(bit.stored, bit.right)];
    let at = bit.pba.get().saturating_mul(size).saturating_add(as_u64(bit.at));
    Candidate { findings, edits: vec![(at, vec![bit.right])], proof: Proof::Witness }
}

fn overlaps(one: &WrongBit, other: &WrongBit) -> bool {
    let meet = |(from, len): &(u64, u64), (at, count): &(u64, u64)| {
        *from < at.saturating_add(*count) && *at < from.saturating_add(*len)
    };
    one.blocks.iter().any(|range| other.blocks.iter().any(|other| meet(range, other)))
}

/// Inodes whose map contradicts something.
fn suspects(state: &State, report: &Report) -> BTreeSet<u64> {
    let telling = [
        &kinds::EXTENT_NODE,
        &kinds::EXTENT_ORDER,
        &kinds::EXTENT_INDEX,
        &kinds::MAP_RANGE,
        &kinds::MAP_SYSTEM,
        &kinds::MAP_TWICE,
        &kinds::INODE_SIZE,
        &kinds::INODE_SIZE_UNPROVED,
        &kinds::INODE_BLOCKS,
        &kinds::SYMLINK_TARGET,
        &kinds::DIRECTORY_HOLE,
        &kinds::JOURNAL_INVALID,
    ];
    let is = |finding: &&Finding| telling.iter().any(|kind| kind.code == finding.kind.code);
    let found = report.findings.iter().filter(is);
    let mut found: BTreeSet<u64> = found.filter_map(|finding| finding.place.inode).collect();
    let of_bitmaps = |kind: &cairn_check::Kind| {
        let found = report.findings.iter().filter(|finding| finding.kind.code == kind.code);
        found.filter_map(|finding| finding.place.group).collect::<BTreeSet<u64>>()
    };
    // Without a journal the bitmaps prove nothing, but the hash of a value does.
    let features = &state.layout.features;
    let has_log = features.compat(Compat::HAS_JOURNAL);
    if !has_log && !features.incompat(Incompat::EA_INODE) {
        return found;
    }
    let free = of_bitmaps(&kinds::BLOCK_BITMAP_FREE);
    if !free.is_empty() && !of_bitmaps(&kinds::BLOCK_BITMAP_USED).is_empty() {
        let is_value = |ino: &u64| {
            let record = state.record(Ino(*ino));
            record.is_some_and(|record| map_bit::is_value(state, &record))
        };
        let others = on_free_blocks(state, &free).into_iter();
        found.extend(others.filter(|ino| has_log || is_value(ino)));
    }
    found
}

/// Inodes that have blocks of these groups that the bitmaps call free.
fn on_free_blocks(state: &State, groups: &BTreeSet<u64>) -> Vec<u64> {
    let Ok(free) = BlockSet::new(state.layout.blocks_count) else { return Vec::new() };
    for number in groups.iter().filter_map(|number| u32::try_from(*number).ok()) {
        let Some(group) = state.groups.get(as_index(number)) else { continue };
        let Ok(bits) = state.source.block(group.desc.block_bitmap) else { continue };
        let first = state.layout.group_first_block(number).get();
        let most = bits.len().saturating_mul(8).min(as_index(state.layout.group_blocks(number)));
        for bit in (0..most).filter(|bit| !bitmap::test(&bits, *bit)) {
            free.insert(first.saturating_add(as_u64(bit)));
        }
    }
    let mut found = Vec::new();
    let known = state.inodes.iter().filter(|(_, facts)| facts.is_in_use() && !facts.is_broken());
    for (number, _) in known.take_while(|_| !state.is_cancelled()) {
        let Some(record) = state.record(Ino(number)).filter(has_map) else { continue };
        let mut nodes = Nodes { state, runs: Runs::new(MOST_NODES), blocks: Vec::new() };
        map::walk(state, Ino(number), &record, &mut nodes);
        let runs = nodes.runs.runs.iter().map(|run| (run.pba.get(), run.len));
        let all = runs.chain(nodes.blocks.iter().map(|block| (*block, 1)));
        if all.into_iter().any(|(from, len)| free.count_range(from, len) > 0) {
            found.push(number);
        }
    }
    found
}

/// The runs of a map, and its own blocks.
struct Nodes<'a> {
    state: &'a State,
    runs: Runs,
    blocks: Vec<u64>,
}

impl super::super::visitor::Visitor for Nodes<'_> {
    fn data(&mut self, run: super::super::visitor::Run) {
        self.runs.data(run);
    }

    fn node(&mut self, at: u64, pba: Pba) -> bool {
        self.blocks.push(pba.get());
        Owners::may_read(self.state, pba) && self.runs.node(at, pba)
    }

    fn fault(&mut self, fault: super::super::visitor::Fault) {
        self.runs.fault(fault);
    }
}
