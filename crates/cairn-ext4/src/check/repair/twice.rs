//! Blocks that several files have: one file keeps them, the others get copies. It is one that
//! proves to have them, if there is one; then the others' blocks of maps are none. Blocks of a file
//! that were never written are given up, because they have no contents.

use std::collections::{HashMap, HashSet};

use cairn_base::{Ino, Pba};
use cairn_check::{BlockSet, Finding};

use super::super::map::has_map;
use super::super::visitor::Run;
use super::mender::{Mender, WHOSE};
use super::policy::{Fate, Policy};
use super::rewrite;
use crate::error::Result;
use crate::format::indirect;
use crate::format::layout::inodes;

/// Gives each file blocks of its own.
pub(super) fn mend(mender: &mut Mender<'_>, findings: &[&Finding]) -> Result<()> {
    let state = mender.state;
    let owned = BlockSet::new(state.twice.blocks())?;
    let mut share = Share { owned: &owned, ino: Ino(0), last: None };
    let mut places = Places::default();
    let (mut seen, mut changed) = (HashSet::new(), HashSet::new());
    let all = || {
        let others = state.inodes.iter().map(|(ino, _)| Ino(ino));
        state.system_inodes().into_iter().chain(others).filter(|ino| ino.get() != 0)
    };
    let proved = all().filter(|ino| !mender.proved.doubts(*ino));
    let doubted = all().filter(|ino| mender.proved.doubts(*ino));
    for ino in proved.chain(doubted) {
        let known = state.inodes.get(ino.get());
        if seen.insert(ino)
            && known.is_some_and(|facts| facts.is_in_use() && !facts.is_broken())
            && one(mender, ino, &mut share, &mut places)?
        {
            changed.insert(ino);
        }
    }
    for finding in findings.iter().filter(|_| !changed.is_empty()) {
        let ino = Ino(finding.place.inode.unwrap_or(0));
        match changed.contains(&ino) || mender.proved.doubts(ino) {
            true => mender.lose(finding, ino, WHOSE),
            false => mender.step(finding),
        }
    }
    Ok(())
}

/// Attribute blocks that were looked at: several inodes may have the same.
#[derive(Default)]
struct Places {
    of: HashMap<u64, Pba>,
}

fn one(mender: &Mender<'_>, ino: Ino, share: &mut Share<'_>, places: &mut Places) -> Result<bool> {
    let state = mender.state;
    let Some(mut record) = state.record(ino) else { return Ok(false) };
    if ino == inodes::RESIZE {
        let slots = indirect::decode_inode(&record.block);
        for pointer in slots.into_iter().filter(|pointer| *pointer != 0) {
            share.owned.insert(state.cluster(pointer.into()));
        }
        return Ok(false);
    }
    let mut is_changed = false;
    let acl = record.file_acl;
    if acl != Pba(0) && state.twice.contains(state.cluster(acl.get())) {
        let place = match places.of.get(&acl.get()) {
            Some(place) => *place,
            None => match share.block(mender, acl) {
                Fate::Move(place) => {
                    mender.write(place, mender.read(acl)?)?;
                    place
                }
                Fate::Drop => Pba(0),
                Fate::Keep | Fate::Part { .. } | Fate::Copied(_) => acl,
            },
        };
        places.of.insert(acl.get(), place);
        is_changed = place != acl;
        record.file_acl = place;
    }
    (share.ino, share.last) = (ino, None);
    if has_map(&record) {
        is_changed |= rewrite::rewrite(mender, ino, &mut record, share)?;
    }
    if is_changed {
        mender.edit(ino, |stored| {
            (stored.block, stored.file_acl) = (record.block, record.file_acl);
        })?;
    }
    Ok(is_changed)
}

struct Share<'a> {
    /// Clusters of the set `twice` that have an owner now.
    owned: &'a BlockSet,
    /// Whose map it is.
    ino: Ino,
    /// The last cluster of the run before: the next run may lie in it, too.
    last: Option<(u64, u64)>,
}

impl Share<'_> {
    /// Takes clusters. False if another file has one of them.
    fn take(&self, mender: &Mender<'_>, first: u64, count: u64) -> bool {
        let twice = &mender.state.twice;
        let mut at = first;
        let end = first.saturating_add(count);
        let mut shared = Vec::new();
        while let Some(cluster) = twice.next(at).filter(|cluster| *cluster < end) {
            if self.owned.contains(cluster) {
                return false;
            }
            shared.push(cluster);
            at = cluster.saturating_add(1);
        }
        shared.into_iter().for_each(|cluster| {
            self.owned.insert(cluster);
        });
        true
    }

    /// Of a block that is not one of the file's contents.
    fn block(&self, mender: &Mender<'_>, pba: Pba) -> Fate {
        if self.take(mender, mender.state.cluster(pba.get()), 1) {
            return Fate::Keep;
        }
        mender.allocate_block().map_or(Fate::Drop, Fate::Move)
    }
}

impl Policy for Share<'_> {
    fn data(&mut self, mender: &Mender<'_>, run: Run) -> Result<Fate> {
        let state = mender.state;
        let end = run.pba.get().saturating_add(run.len).saturating_sub(1);
        let (whole, last) = (state.cluster(run.pba.get()), state.cluster(end));
        let here = run.start >> state.layout.cluster_bits;
        let first = whole.saturating_add(u64::from(self.last == Some((here, whole))));
        let count = last.saturating_add(1).saturating_sub(first);
        // What was never written has no contents: whoever else has the blocks keeps them.
        let yields = run.unwritten && state.twice.count_range(first, count) > 0;
        if !yields && self.take(mender, first, count) {
            let there = run.end().saturating_sub(1) >> state.layout.cluster_bits;
            self.last = Some((there, last));
            return Ok(Fate::Keep);
        }
        self.last = None;
        if run.unwritten {
            // There is nothing to be copied.
            return Ok(Fate::Drop);
        }
        let place = mender.copy(run.pba, run.len)?;
        Ok(place.map_or(Fate::Drop, Fate::Move))
    }

    fn node(&mut self, mender: &Mender<'_>, pba: Pba) -> Result<Fate> {
        let is_others = mender.proved.is_others(mender.state, self.ino, pba);
        Ok(if is_others { Fate::Drop } else { self.block(mender, pba) })
    }
}
