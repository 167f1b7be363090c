//! Counts of links, and names for inodes that have none.
//!
//! A directory without a name gets one again. If it was deleted, numbers that its entries name may
//! have been given away since: such an inode has a name more than it counts. That name is dropped
//! before the directory is reached from the root, because it would give the file to others.

use std::collections::{BTreeMap, BTreeSet};

use cairn_base::units::as_index;
use cairn_check::{Finding, Kind, Report};
use cairn_vfs::FileKind;

use super::super::context::{Context, Totals};
use super::super::kinds;
use super::super::nodes::NodeState;
use super::super::owners;
use super::edit::{Edit, ino_of, is_one};
use crate::error::Result;
use crate::format::units::Nid;

/// Counts of what an inode has.
const COUNTS: [&Kind; 2] = [&kinds::INODE_BLOCKS, &kinds::INODE_LINKS];

/// What became of names that are too many, in directories without a way to the root.
enum Extra {
    /// There are none.
    None,
    Dropped,
    /// It is not clear which ones are too many.
    Kept,
}

/// The inodes without a name whose blocks the SIT calls free: they may be deleted ones, and the
/// numbers of their directories another user's now.
///
/// # Errors
/// The device's.
pub(super) fn freed(context: &Context, report: &Report) -> Result<Vec<Nid>> {
    let mut freed = Vec::new();
    let found = report.findings.iter().filter(|found| is_one(found, &[&kinds::INODE_UNREACHABLE]));
    for ino in found.filter_map(|found| ino_of(&found.place)) {
        let addr = context.nodes.inode(ino).map(NodeState::addr);
        if let Some(place) = addr.and_then(|addr| context.layout.segment_of(addr))
            && owners::is_free(context, place)?
        {
            freed.push(ino);
        }
    }
    Ok(freed)
}

impl Edit<'_> {
    /// Mends counts, and gives names to inodes that have none.
    pub(super) fn mend_counts(&mut self, found: &[Finding]) -> Result<bool> {
        match self.drop_names(found)? {
            Extra::None => {}
            Extra::Dropped => return Ok(true),
            Extra::Kept => return Ok(false),
        }
        if self.turn_back(found)? {
            return Ok(true);
        }
        for (ino, finding) in self.in_doubt(found) {
            if !self.may_lose() {
                return Ok(false);
            }
            let what = "that it has no further name, if the number of an entry is wrong";
            self.lost((finding.kind, finding.place.clone()), ino, what);
        }
        let mut changed = false;
        let is_lost = |found: &&Finding| {
            is_one(found, &[&kinds::INODE_UNREACHABLE, &kinds::DIRECTORY_CYCLE])
                && self.scope.allows(found.kind)
        };
        let lost: Vec<&Finding> = found.iter().filter(is_lost).collect();
        let cycles = lost.iter().filter(|found| is_one(found, &[&kinds::DIRECTORY_CYCLE]));
        let cycles: BTreeSet<_> = cycles.filter_map(|found| ino_of(&found.place)).collect();
        let names = self.find_names(&cycles)?;
        for finding in lost {
            changed |= self.reconnect(finding, &names)?;
        }
        if changed {
            return Ok(true);
        }
        for finding in found.iter().filter(|found| is_one(found, &COUNTS)) {
            changed |= self.restore_name(finding)? || self.mend_inode(finding)?;
        }
        let is_named = |found: &&Finding| is_one(found, &[&kinds::INODE_NAMES]);
        for finding in found.iter().filter(is_named) {
            changed |= self.scope.allows(finding.kind) && self.mend_names(finding)?;
        }
        Ok(changed)
    }

    /// Drops names that inodes do not count, in directories without a way to the root, if the
    /// volume has more inodes than the checkpoint counts: the directories were deleted.
    fn drop_names(&mut self, found: &[Finding]) -> Result<Extra> {
        let context = self.context.clone();
        let kind_of = |ino| context.nodes.inode(ino).and_then(NodeState::kind);
        let gone = found.iter().filter(|found| is_one(found, &[&kinds::INODE_UNREACHABLE]));
        let mut gone = gone.filter_map(|found| ino_of(&found.place));
        if !gone.any(|ino| kind_of(ino) == Some(FileKind::Directory)) {
            return Ok(Extra::None);
        }
        let mut excess = BTreeMap::new();
        for finding in found.iter().filter(|found| is_one(found, &[&kinds::INODE_LINKS])) {
            let Some(ino) = ino_of(&finding.place) else { continue };
            let Some(node) = context.nodes.inode(ino) else { continue };
            let count = node.links().saturating_sub(node.other());
            if node.kind() != Some(FileKind::Directory) && count > 0 {
                excess.insert(ino, (finding, count));
            }
        }
        let named = self.find_names(&excess.keys().copied().collect())?;
        let counted = context.volume.loaded.checkpoint.valid_inode_count;
        let is_back = Totals::get(&context.totals.inodes) > u64::from(counted);
        let (mut is_dropped, mut is_kept) = (false, false);
        for (ino, (finding, count)) in excess {
            let own = self.recorded(ino)?;
            let (mut recorded, mut others) = (Vec::new(), Vec::new());
            for entry in named.iter().filter(|entry| entry.ino == ino) {
                if !self.is_below_root(entry.dir, Nid::NONE) {
                    let is_own = own == Some((entry.dir, self.name_in(*entry)?));
                    if is_own { &mut recorded } else { &mut others }.push(*entry);
                }
            }
            let count = as_index(count);
            let all = others.len().saturating_add(recorded.len());
            // The name that the inode records is the last one that is dropped.
            let is_clear = others.len() == count || all == count;
            others.append(&mut recorded);
            match () {
                () if others.is_empty() || (self.may_lose() && !is_back) => continue,
                () if is_back && is_clear => self.mended(finding),
                () if is_back && self.may_lose() => {
                    let what = "a name in a directory that had none";
                    self.lost((finding.kind, finding.place.clone()), ino, what);
                }
                () => {
                    is_kept = true;
                    continue;
                }
            }
            for entry in others.into_iter().take(count) {
                self.remove(entry)?;
            }
            is_dropped = true;
        }
        Ok(match (is_dropped, is_kept) {
            (true, _) => Extra::Dropped,
            (false, true) => Extra::Kept,
            (false, false) => Extra::None,
        })
    }
}
