//! After all names are known: which inodes nobody can reach, and whose link count is wrong.

use std::sync::atomic::Ordering::Relaxed;

use cairn_base::Ino;
use cairn_check::{BlockSet, Finding, Place, Report, Value};

use super::facts::Facts;
use super::kinds;
use super::state::State;
use crate::error::Result;
use crate::format::features::RoCompat;
use crate::format::inode::{Inode as Record, LINK_MAX};
use crate::format::layout::inodes;

/// Checks the tree of directories, and the links of all inodes.
///
/// # Errors
/// There is no memory for the sets.
pub(super) fn check(state: &State) -> Result<()> {
    let tree = Tree {
        state,
        reached: BlockSet::new(state.inodes.len())?,
        lost: BlockSet::new(state.inodes.len())?,
    };
    for (number, facts) in state.inodes.iter() {
        if !facts.is_in_use() || number == 0 {
            continue;
        }
        let ino = Ino(number);
        if facts.is_directory() && !facts.is_system() && !facts.is_deleted() {
            tree.directory(ino, facts);
        }
        links(state, ino, facts);
        if state.is_cancelled() {
            break;
        }
    }
    Ok(())
}

struct Tree<'a> {
    state: &'a State,
    /// Directories from which the root can be reached.
    reached: BlockSet,
    /// Directories from which it cannot.
    lost: BlockSet,
}

impl Tree<'_> {
    fn parent(&self, ino: u64) -> u64 {
        self.state.inodes.get(ino).map_or(0, Facts::parent).into()
    }

    /// Follows the parents to the root, or to a directory whose way is known.
    fn directory(&self, ino: Ino, facts: &Facts) {
        let place = || Place::inode(ino.get());
        if ino == inodes::ROOT {
            if facts.dotdot() != 0 && u64::from(facts.dotdot()) != ino.get() {
                let place = place().named(b"..");
                let (stored, computed) = (facts.dotdot().into(), ino.get());
                self.state.differ(&kinds::DIRECTORY_PARENT, place, stored, computed);
            }
            return;
        }
        let parent = facts.parent();
        if parent == 0 {
            self.state.find(&kinds::INODE_UNREACHABLE, place());
        } else if facts.dotdot() != 0 && facts.dotdot() != parent {
            let place = place().named(b"..");
            let (stored, computed) = (facts.dotdot().into(), parent.into());
            self.state.differ(&kinds::DIRECTORY_PARENT, place, stored, computed);
        }
        let mut way = Vec::new();
        let mut at = ino.get();
        let reached = loop {
            if at == inodes::ROOT.get() || self.reached.contains(at) {
                break true;
            }
            if at == 0 || self.lost.contains(at) {
                break false;
            }
            // Until its way is known, a directory counts as lost, so that a circle ends.
            self.lost.insert(at);
            way.push(at);
            at = self.parent(at);
        };
        if reached {
            for ino in &way {
                self.reached.insert(*ino);
                self.lost.remove_range(*ino, 1);
            }
        } else if way.contains(&at) {
            // Each is in another of them.
            self.state.find(&kinds::INODE_UNREACHABLE, Place::inode(at));
        }
    }
}

/// Compares the link count with the names.
fn links(state: &State, ino: Ino, facts: &Facts) {
    let place = Place::inode(ino.get());
    if facts.is_system() && !state.is_reserved(ino) && facts.links() == 0 {
        // Without a link it would count as deleted.
        return state.differ(&kinds::INODE_LINKS, place, 0, 1);
    }
    let is_hidden = facts.is_system() && !state.is_visible_journal(ino);
    let is_exempt = is_hidden || facts.is_orphan() || facts.is_broken();
    if ino != inodes::ROOT && (is_exempt || state.is_reserved(ino)) {
        return;
    }
    if facts.is_value() {
        if facts.references() == 0 {
            state.find(&kinds::VALUE_UNREACHABLE, place);
        } else if facts.links() != 1 {
            // Attributes are no names.
            state.differ(&kinds::INODE_LINKS, place, facts.links().into(), 1);
        }
        return;
    }
    let (stored, found) = (facts.links(), facts.names());
    if facts.is_directory() {
        let uncounted = state.layout.features.ro_compat(RoCompat::DIR_NLINK);
        // Too many to count, once. Linux does not count again when there are fewer.
        if uncounted && stored == 1 && found > 2 && ino != inodes::ROOT {
            return;
        }
        if found >= LINK_MAX && stored == 1 {
            state.totals.many_links.fetch_add(1, Relaxed);
            return;
        }
    } else if found == 0 {
        return state.find(&kinds::INODE_UNREACHABLE, place);
    }
    if stored != found {
        state.differ(&kinds::INODE_LINKS, place, stored.into(), found.into());
    }
}

/// Inodes with more names, or attributes of more inodes, than they count, although checksums say
/// that the counts are what was written: a name, or one of the inodes, may be an old one.
pub(super) fn owners(state: &State, report: &Report) -> Vec<Finding> {
    let counts = [kinds::INODE_LINKS.code, kinds::XATTR_REFERENCES.code];
    let is_more = |finding: &&Finding| {
        let number = |value: &Option<Value>| value.as_ref().and_then(Value::number);
        let (stored, found) = (number(&finding.stored), number(&finding.computed));
        counts.contains(&finding.kind.code) && stored.is_some_and(|n| n > 0) && stored < found
    };
    let is_sealed = |finding: &&Finding| {
        let ino = finding.place.inode.map(Ino);
        let facts = ino.and_then(|ino| state.facts(ino));
        // What a directory counts are others' names.
        let is_file = !facts.is_some_and(Facts::is_directory);
        let bytes = ino.and_then(|ino| state.record_bytes(ino).map(|bytes| (ino, bytes)));
        let sums = bytes.and_then(|(ino, bytes)| Record::checksums(&bytes, ino, &state.layout));
        let is_links = finding.kind.code == kinds::INODE_LINKS.code;
        sums.is_some_and(|(stored, computed)| stored == computed) && (is_file || !is_links)
    };
    let found = report.findings.iter().filter(is_more).filter(is_sealed);
    let doubt = |finding: &Finding| Finding { kind: &kinds::INODE_OWNERS, ..finding.clone() };
    found.map(doubt).collect()
}
