//! [`Plan`]: what has to be removed, made and changed.

use std::collections::{BTreeMap, BTreeSet};

use cairn_build::{Change, CompareOptions, Kind, NodeId, Tree, compare};

use crate::commands::build::failure;
use crate::failure::{Failure, Outcome};
use crate::print;

/// What is done with a path that stays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// It is made; if another file has the name, in its place.
    Make,
    /// It gets other contents and attributes.
    Contents,
    /// It gets other attributes.
    Attributes,
}

/// Paths have no leading slash; that of the root is empty.
pub(super) struct Plan {
    /// What is removed; a directory stands after what is in it.
    pub(super) removed: Vec<Vec<u8>>,
    /// What is made or changed, a directory before what is in it.
    pub(super) changed: BTreeMap<Vec<u8>, (NodeId, Step)>,
    /// Paths that need nothing.
    same: u64,
    /// A killed run has left something on the image, which belongs to neither side.
    has_leftovers: bool,
}

/// Numbers of names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    pub(super) made: u64,
    pub(super) changed: u64,
    pub(super) removed: u64,
    pub(super) same: u64,
    /// Nothing was done.
    pub(super) dry_run: bool,
}

impl Plan {
    /// What turns `present` into `wanted`, but for directories that hold what is `left_alone`. With
    /// `keep` nothing is removed but single files and empty directories that are in the way.
    ///
    /// # Errors
    /// A file cannot be read. A directory with entries that are kept or left alone is in the way.
    pub(super) fn new(
        present: &Tree,
        wanted: &Tree,
        options: CompareOptions,
        keep: bool,
        left_alone: &LeftAlone,
    ) -> Outcome<Self> {
        let mut differing = BTreeMap::new();
        let compared = compare(present, wanted, options, &mut |difference| {
            differing.insert(difference.path.clone(), difference.what.clone());
        });
        compared.map_err(failure)?;
        let mut plan = Self { has_leftovers: present.has_leftovers(), ..Self::nothing() };
        plan.remove(present, &differing, keep, left_alone)?;
        plan.change(wanted, &differing)?;
        Ok(plan)
    }

    fn nothing() -> Self {
        Self { removed: Vec::new(), changed: BTreeMap::new(), same: 0, has_leftovers: false }
    }

    /// Takes what is only on the image, and directories in whose place something else comes.
    fn remove(
        &mut self,
        present: &Tree,
        differing: &BTreeMap<Vec<u8>, Vec<Change>>,
        keep: bool,
        left_alone: &LeftAlone,
    ) -> Outcome {
        let mut below: Option<Vec<u8>> = None;
        let mut in_the_way = None;
        let walked = present.each_name(&mut |path, _, node| {
            let is_directory = matches!(node.kind, Kind::Directory(_));
            let is_full = matches!(&node.kind, Kind::Directory(entries) if !entries.is_empty());
            let above = below.as_ref().is_some_and(|above| path.starts_with(above));
            let what = differing.get(path).map(Vec::as_slice).unwrap_or_default();
            let is_replaced = what.contains(&Change::Kind) && is_directory;
            // fsck needs it, whatever its attributes are.
            let is_lost_and_found = path == b"lost+found" && is_directory && !is_full;
            let is_surplus = what.contains(&Change::OnlyInFirst) && !is_lost_and_found;
            let goes = above || is_replaced || is_surplus && !keep;
            let is_needed = left_alone.are_in(path);
            if (goes && keep && is_full || is_replaced && is_needed) && in_the_way.is_none() {
                in_the_way = Some(print::escaped(path));
            }
            if goes && !is_needed {
                self.removed.push(path.to_vec());
                if !above && is_directory {
                    below = Some([path, b"/"].concat());
                }
            }
            Ok(())
        });
        walked.map_err(failure)?;
        if let Some(path) = in_the_way {
            return Err(Failure::usage(format!(
                "/{path}: a directory with entries, which --keep or --exclude keeps, is in the way \
                 of a file of the sources: remove it from the image, or leave that option out"
            )));
        }
        self.removed.reverse();
        Ok(())
    }

    /// Takes what the sources have and the image has not, or not so.
    fn change(&mut self, wanted: &Tree, differing: &BTreeMap<Vec<u8>, Vec<Change>>) -> Outcome {
        let mut below: Option<Vec<u8>> = None;
        let walked = wanted.each_name(&mut |path, id, node| {
            let is_new = below.as_ref().is_some_and(|above| path.starts_with(above));
            let what = differing.get(path).map(Vec::as_slice).unwrap_or_default();
            let replaced = |change: &Change| {
                matches!(change, Change::OnlyInSecond | Change::Kind | Change::Links)
            };
            let other_contents = what.contains(&Change::Contents);
            let step = match &node.kind {
                _ if is_new || what.iter().any(replaced) => Some(Step::Make),
                Kind::Regular(_) if other_contents => Some(Step::Contents),
                // A symbolic link or a device cannot be changed.
                _ if other_contents => Some(Step::Make),
                _ if !what.is_empty() => Some(Step::Attributes),
                _ => None,
            };
            if step == Some(Step::Make) && !is_new && matches!(node.kind, Kind::Directory(_)) {
                below = Some([path, b"/"].concat());
            }
            match step {
                Some(step) => drop(self.changed.insert(path.to_vec(), (id, step))),
                None => self.same += 1,
            }
            Ok(())
        });
        walked.map_err(failure)
    }

    /// True if nothing differs.
    pub(super) fn is_empty(&self) -> bool {
        self.removed.is_empty() && self.changed.is_empty() && !self.has_leftovers
    }

    /// The words for the steps, and their paths, in order.
    pub(super) fn steps(&self) -> impl Iterator<Item = (&'static str, &[u8])> {
        let removed = self.removed.iter().map(|path| (REMOVED, path.as_slice()));
        removed.chain(self.changed.iter().map(|(path, (_, step))| (step.word(), path.as_slice())))
    }

    pub(super) fn counts(&self) -> Counts {
        self.counts_without(&Self::nothing())
    }

    /// What of this plan is done, if `left` is still to be done.
    pub(super) fn counts_without(&self, left: &Self) -> Counts {
        let still_there: BTreeSet<&[u8]> = left.removed.iter().map(Vec::as_slice).collect();
        let is_done = |path: &[u8]| !left.changed.contains_key(path);
        let done = || self.changed.iter().filter(|(path, _)| is_done(path));
        let made = done().filter(|(_, (_, step))| *step == Step::Make).count() as u64;
        let removed = self.removed.iter().filter(|path| !still_there.contains(path.as_slice()));
        // A directory that got an entry, and not yet its own times again.
        let touched = left.changed.keys().filter(|path| !self.changed.contains_key(*path));
        Counts {
            made,
            changed: done().count() as u64 - made,
            removed: removed.count() as u64,
            same: self.same.saturating_sub(touched.count() as u64),
            dry_run: false,
        }
    }
}

/// The directories of an image that hold something that is left alone, at any depth.
#[derive(Debug, Default)]
pub(super) struct LeftAlone(BTreeSet<Vec<u8>>);

impl LeftAlone {
    /// What `all` has and `present` has not.
    ///
    /// # Errors
    /// A directory cannot be read.
    pub(super) fn new(all: &Tree, present: &Tree) -> Outcome<Self> {
        let mut seen = BTreeSet::new();
        let walked = present.each_name(&mut |path, _, _| {
            seen.insert(path.to_vec());
            Ok(())
        });
        walked.map_err(failure)?;
        let mut directories = BTreeSet::new();
        let walked = all.each_name(&mut |path, _, _| {
            if !seen.contains(path) {
                let slashes = path.iter().enumerate().filter(|(_, byte)| **byte == b'/');
                directories.extend(slashes.map(|(at, _)| path[..at].to_vec()));
            }
            Ok(())
        });
        walked.map_err(failure)?;
        Ok(Self(directories))
    }

    fn are_in(&self, path: &[u8]) -> bool {
        self.0.contains(path)
    }
}

/// The word for a path that is removed.
pub(super) const REMOVED: &str = "removed";

impl Step {
    /// The word for it.
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Make => "made",
            Self::Contents => "contents",
            Self::Attributes => "attributes",
        }
    }
}
