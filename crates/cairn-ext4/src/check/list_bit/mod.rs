//! One wrong bit in the place of an inode's attribute block (`i_file_acl`), where inodes have no
//! checksum.
//!
//! The right block is one bit away from the stored one, holds attributes, is in use by the bitmap,
//! and has fewer inodes than it counts. If the stored block is none of attributes, the inode is
//! known. If it is that of other inodes, one of them all has the wrong bit: that is proved only
//! where the number of blocks that the inode counts says so, or where the inode cannot have the
//! attributes and all others can. Else a repair would give one file the attributes of another, so
//! that it asks first.

mod fits;

use std::collections::BTreeMap;

use cairn_base::{Ino, Pba};
use cairn_check::{Finding, Place};

use super::doubted_lists::DoubtedList;
use super::map::has_map;
use super::map_bit::Blocks;
use super::state::{Shared, State};
use super::visitor::{Fault, Run, Visitor};
use super::{attributes, kinds, map};
use crate::format::features::{Compat, Incompat, RoCompat};
use crate::format::inode::Inode as Record;
use crate::format::layout::inodes;
use crate::format::superblock::STATE_VALID;
use crate::format::xattr::{self, XattrLocation};
use fits::{Fit, fit};

/// Bits of the place, without and with the feature 64bit.
const BITS: u32 = 32;
const WIDE_BITS: u32 = 48;
/// Blocks of a map that are counted, at most.
const MOST_NODES: u64 = 1024;
/// Attribute blocks with too many inodes that are looked at, at most.
const MOST: usize = 64;

/// Looks for inodes with another attribute block than their own. What would be mended as a count is
/// a finding of its own, by which something may be lost.
pub(super) fn judge(state: &State) {
    let features = &state.layout.features;
    let is_sealed = features.ro_compat(RoCompat::METADATA_CSUM);
    let is_other = features.ro_compat(RoCompat::SHARED_BLOCKS) || state.layout.cluster_bits > 0;
    if is_sealed || is_other || !features.compat(Compat::EXT_ATTR) {
        return;
    }
    let shared = std::mem::take(&mut *state.shared.lock());
    let mut search = Search {
        state,
        shared: &shared,
        blocks: Blocks::new(state, Vec::new()),
        found: Vec::new(),
    };
    for ino in state.doubted_lists.suspects() {
        search.suspect(ino);
    }
    search.crowded();
    let mut found = std::mem::take(&mut search.found);
    let all: Vec<(Ino, u64)> = found.iter().map(|one| (one.ino, one.right)).collect();
    for one in &mut found {
        let of_inode = all.iter().filter(|(ino, _)| *ino == one.ino).count();
        let of_block = all.iter().filter(|(_, right)| *right == one.right).count();
        one.is_proved &= of_inode == 1 && (one.right == 0 || of_block == 1);
        // An attribute block that is none, or a file's block, was found as such.
        let is_own = search.is_list(one.stored) && !state.twice.contains(one.stored);
        if one.stored == 0 || is_own {
            let mut place = Place::inode(one.ino.get()).in_field("i_file_acl");
            if one.stored != 0 && !search.is_crowded(one.stored) {
                // The bitmap is what a repair would change.
                let group = state.layout.group_of(Pba(one.stored));
                place.group = group.map(Into::into);
            }
            let finding = Finding::new(&kinds::XATTR_DISPUTED, place);
            state.findings.add(finding.stored(one.stored).computed(one.right));
        }
    }
    drop(search);
    *state.shared.lock() = shared;
    state.doubted_lists.keep(found);
}

struct Search<'a> {
    state: &'a State,
    shared: &'a BTreeMap<u64, Shared>,
    blocks: Blocks<'a>,
    found: Vec<DoubtedList>,
}

/// An attribute block without an inode.
#[derive(Clone, Copy)]
struct Lost {
    pba: u64,
    /// It counts one inode more than it has.
    is_exact: bool,
    /// It has others.
    is_shared: bool,
}

impl Search<'_> {
    /// An inode whose attribute block is none, or which does not count it.
    fn suspect(&mut self, ino: Ino) {
        let Some(record) = self.state.record(ino) else { return };
        let stored = record.file_acl.get();
        let counts = self.counts_list(ino, &record);
        if stored == 0 && counts != Some(true) {
            return;
        }
        if counts == Some(false) {
            if stored.is_power_of_two() && (self.is_foreign(stored) || self.is_crowded(stored)) {
                self.add(ino, stored, 0, true);
            }
            return;
        }
        if stored != 0 && (self.is_list(stored) || !self.is_foreign(stored)) {
            return;
        }
        let users = self.shared.get(&stored).map_or(1, |of| of.found);
        for lost in self.lost_near(stored) {
            let is_proved = users <= 1 && lost.is_exact && self.is_settled();
            self.add(ino, stored, lost.pba, is_proved);
        }
    }

    /// Attribute blocks with more inodes than they count, that another file has, or that the bitmap
    /// calls free.
    fn crowded(&mut self) {
        let mut near: BTreeMap<u64, Vec<Lost>> = BTreeMap::new();
        for pba in self.shared.keys().copied() {
            if near.len() >= MOST {
                break;
            }
            let is_foreign = self.is_foreign(pba);
            if (self.is_crowded(pba) || is_foreign) && self.is_list(pba) {
                let lost = self.lost_near(pba);
                near.extend((!lost.is_empty()).then_some((pba, lost)));
            }
        }
        if near.is_empty() {
            return;
        }
        let mut users: BTreeMap<u64, Vec<Ino>> = BTreeMap::new();
        let state = self.state;
        let known = state.inodes.iter().filter(|(_, facts)| facts.is_in_use());
        for ino in known.map(|(number, _)| Ino(number)).take_while(|_| !state.is_cancelled()) {
            let stored = state.record(ino).map_or(0, |record| record.file_acl.get());
            if near.contains_key(&stored) {
                users.entry(stored).or_default().push(ino);
            }
        }
        for (pba, lost) in near {
            let users = users.remove(&pba).unwrap_or_default();
            // One that does not count the block explains it.
            if !users.iter().any(|user| self.found.iter().any(|one| one.ino == *user)) {
                match &*users {
                    [user] if self.is_foreign(pba) => {
                        let is_settled = self.is_settled();
                        for one in lost {
                            // A bitmap that alone says so may be an old one.
                            let is_proved = one.is_shared || state.twice.contains(pba);
                            self.add(*user, pba, one.pba, one.is_exact && is_settled && is_proved);
                        }
                    }
                    _ => self.one_of(pba, &users, &lost),
                }
            }
        }
    }

    /// One of the inodes that have the block may be the owner of another one.
    fn one_of(&mut self, pba: u64, users: &[Ino], lost: &[Lost]) {
        let state = self.state;
        let fits = |pba: u64, users: &[Ino]| -> Vec<Fit> {
            let block = state.source.block(Pba(pba)).ok();
            let bytes = block.as_deref().unwrap_or_default();
            let all = xattr::decode(bytes, XattrLocation::Block, Ino(0)).unwrap_or_default();
            users.iter().map(|user| fit(state, *user, &all)).collect()
        };
        let here = fits(pba, users);
        let mut possible = Vec::new();
        for one in lost {
            let there = fits(one.pba, users);
            for (at, user) in users.iter().enumerate() {
                let others = here.iter().enumerate().filter(|(other, _)| *other != at);
                let is_possible = there.get(at) == Some(&Fit::Fits)
                    && others.into_iter().all(|(_, fit)| *fit == Fit::Fits);
                if !is_possible {
                    continue;
                }
                let mut elsewhere = there.iter().enumerate().filter(|(other, _)| *other != at);
                let is_strange = here.get(at) != Some(&Fit::Fits);
                let is_proved = is_strange || elsewhere.all(|(_, fit)| *fit == Fit::Never);
                possible.push((*user, *one, is_proved));
            }
        }
        let is_one_more = self
            .shared
            .get(&pba)
            .is_some_and(|of| of.found == of.stored.saturating_add(1) && of.found > 1);
        let is_certain = possible.len() == 1
            && is_one_more
            && self.blocks.is_marked(pba)
            && !state.twice.contains(pba)
            && self.is_settled();
        if possible.is_empty() {
            let pairs = lost.iter().flat_map(|one| users.iter().map(move |user| (*user, *one)));
            possible = pairs.map(|(user, one)| (user, one, false)).collect();
        }
        for (user, one, is_proved) in possible {
            self.add(user, pba, one.pba, is_certain && is_proved && one.is_exact);
        }
    }

    fn add(&mut self, ino: Ino, stored: u64, right: u64, is_proved: bool) {
        self.found.push(DoubtedList { ino, stored, right, is_proved });
    }

    /// Has the block more inodes than it counts?
    fn is_crowded(&self, pba: u64) -> bool {
        self.shared.get(&pba).is_some_and(|of| of.stored > 0 && of.found > of.stored)
    }

    /// Was the volume left in order, or does a journal keep it so? Else what was deleted last may
    /// be what nobody has.
    fn is_settled(&self) -> bool {
        let has_log = self.state.layout.features.compat(Compat::HAS_JOURNAL);
        has_log || self.state.superblock.raw.s_state.get() & STATE_VALID != 0
    }

    /// Is the block no inode's attribute block, by what has it or by the bitmap?
    fn is_foreign(&mut self, pba: u64) -> bool {
        let state = self.state;
        !state.layout.contains(Pba(pba), 1)
            || state.system.contains(pba)
            || state.twice.contains(pba)
            || !self.blocks.is_marked(pba)
    }

    /// Does the block hold attributes whose hashes are right?
    fn is_list(&self, pba: u64) -> bool {
        let layout = &self.state.layout;
        if !layout.contains(Pba(pba), 1) || self.state.system.contains(pba) {
            return false;
        }
        let Ok(block) = self.state.source.block(Pba(pba)) else { return false };
        let all = xattr::decode(&block, XattrLocation::Block, Ino(0)).unwrap_or_default();
        let stored = xattr::header(&block).map_or(0, |header| header.h_hash.get());
        let computed = xattr::block_hash(all.iter().map(|attribute| attribute.hash));
        // 0 says nothing.
        !all.is_empty()
            && (stored == 0 || stored == computed)
            && attributes::is_hashed(&block, Ino(0))
    }

    /// Attribute blocks one bit away that have fewer inodes than they count.
    fn lost_near(&mut self, stored: u64) -> Vec<Lost> {
        let is_wide = self.state.layout.features.incompat(Incompat::BITS_64);
        let bits = if is_wide { WIDE_BITS } else { BITS };
        let near = (0..bits).map(|bit| stored ^ 1 << bit).filter(|pba| *pba != 0);
        let mut found = Vec::new();
        for pba in near {
            let has = match self.shared.get(&pba) {
                Some(of) if of.stored > of.found => of.found,
                Some(_) => continue,
                None if self.blocks.may_have(pba, 1) => 0,
                None => continue,
            };
            if self.is_list(pba) {
                let block = self.state.source.block(Pba(pba)).ok();
                let counted = block.map_or(0, |block| xattr::refcount(&block));
                let is_exact = counted == has.saturating_add(1) && self.blocks.is_marked(pba);
                found.push(Lost { pba, is_exact, is_shared: has > 0 });
            }
        }
        found
    }

    /// Does the inode count an attribute block besides its map? `None` if neither fits.
    fn counts_list(&self, ino: Ino, record: &Record) -> Option<bool> {
        let layout = &self.state.layout;
        let is_mere_map = matches!(ino, inodes::RESIZE | inodes::BAD);
        if is_mere_map || layout.features.incompat(Incompat::EA_INODE) {
            return None;
        }
        let mut count = Count::default();
        if has_map(record) {
            map::walk(self.state, ino, record, &mut count);
        }
        let blocks = count.blocks.saturating_add(record.translator(layout).is_some().into());
        let units = self.state.units();
        let with = blocks.saturating_add(1) << units;
        match record.blocks_512 {
            _ if count.is_faulty => None,
            counted if counted == blocks << units => Some(false),
            counted if counted == with => Some(true),
            _ => None,
        }
    }
}

/// Counts the blocks of a map.
#[derive(Default)]
struct Count {
    blocks: u64,
    nodes: u64,
    is_faulty: bool,
}

impl Visitor for Count {
    fn data(&mut self, run: Run) {
        self.blocks = self.blocks.saturating_add(run.len);
    }

    fn node(&mut self, _: u64, _: Pba) -> bool {
        self.blocks = self.blocks.saturating_add(1);
        self.nodes = self.nodes.saturating_add(1);
        let is_short = self.nodes <= MOST_NODES;
        self.is_faulty |= !is_short;
        is_short
    }

    fn fault(&mut self, _: Fault) {
        self.is_faulty = true;
    }
}
