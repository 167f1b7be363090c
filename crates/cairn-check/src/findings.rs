//! [`Findings`]: the list that a walk fills, from several threads.
//!
//! It counts all findings, and keeps the first ones of each kind, by place: 200 for a reader. So it
//! is bounded, and does not depend on the order in which threads find.
//!
//! Locking: one lock, a leaf.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};

use cairn_base::ranked_lock::{Mutex, Rank};

use crate::finding::Finding;
use crate::kind::{Kind, Severity};

/// Findings of each kind that are kept.
const KEPT: usize = 200;

/// A finding in the order of its kind's list.
#[derive(Clone, Debug)]
struct Ordered(Finding);

impl Ord for Ordered {
    fn cmp(&self, other: &Self) -> Ordering {
        self.0.key().cmp(&other.0.key())
    }
}

impl PartialOrd for Ordered {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Ordered {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Ordered {}

#[derive(Clone, Debug)]
struct OfKind {
    kind: &'static Kind,
    count: u64,
    kept: BTreeSet<Ordered>,
}

/// The defects that a walk has found.
#[derive(Debug)]
pub struct Findings {
    kept: usize,
    kinds: Mutex<BTreeMap<&'static str, OfKind>>,
}

impl Default for Findings {
    fn default() -> Self {
        Self::keeping(KEPT)
    }
}

impl Findings {
    /// An empty list.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// An empty list that keeps so many findings of each kind, for who mends them.
    #[must_use]
    pub fn keeping(kept: usize) -> Self {
        Self { kept, kinds: Mutex::new(Rank::Leaf, BTreeMap::new()) }
    }

    /// Adds a finding.
    pub fn add(&self, finding: Finding) {
        let mut kinds = self.kinds.lock();
        let kind = finding.kind;
        let list = kinds.entry(kind.code).or_insert_with(|| OfKind {
            kind,
            count: 0,
            kept: BTreeSet::new(),
        });
        list.count = list.count.saturating_add(1);
        list.kept.insert(Ordered(finding));
        if list.kept.len() > self.kept {
            list.kept.pop_last();
        }
    }

    /// Number of findings so far.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.kinds.lock().values().fold(0, |all, list| all.saturating_add(list.count))
    }

    /// Number of findings of a kind so far.
    #[must_use]
    pub fn count_of(&self, kind: &Kind) -> u64 {
        self.kinds.lock().get(kind.code).map_or(0, |list| list.count)
    }

    /// Number of findings so far whose code this is true for.
    pub fn count_where(&self, mut is_one: impl FnMut(&str) -> bool) -> u64 {
        let kinds = self.kinds.lock();
        let counts = kinds.iter().filter(|(code, _)| is_one(code)).map(|(_, list)| list.count);
        counts.fold(0, u64::saturating_add)
    }

    /// Makes all findings of one kind such of another kind.
    pub fn rename(&self, from: &Kind, to: &'static Kind) {
        let mut kinds = self.kinds.lock();
        let Some(OfKind { count, kept, .. }) = kinds.remove(from.code) else { return };
        let empty = || OfKind { kind: to, count: 0, kept: BTreeSet::new() };
        let list = kinds.entry(to.code).or_insert_with(empty);
        list.count = list.count.saturating_add(count);
        let kept = kept.into_iter().map(|Ordered(found)| Ordered(Finding { kind: to, ..found }));
        list.kept.extend(kept);
        while list.kept.len() > self.kept {
            list.kept.pop_last();
        }
    }

    /// The worst severity so far.
    #[must_use]
    pub fn worst(&self) -> Option<Severity> {
        self.kinds.lock().values().map(|list| list.kind.severity).max()
    }

    /// The same findings once more.
    #[must_use]
    pub fn copy(&self) -> Self {
        let kinds = self.kinds.lock().clone();
        Self { kept: self.kept, kinds: Mutex::new(Rank::Leaf, kinds) }
    }

    /// Takes all findings out of a list that others still refer to.
    #[must_use]
    pub fn take(&self) -> Self {
        let kinds = std::mem::take(&mut *self.kinds.lock());
        Self { kept: self.kept, kinds: Mutex::new(Rank::Leaf, kinds) }
    }

    /// The kept findings by code and place, and the number of all findings of each kind by code.
    #[must_use]
    pub fn into_lists(self) -> (Vec<Finding>, Vec<(&'static Kind, u64)>) {
        let lists = self.kinds.into_inner();
        let counts = lists.values().map(|list| (list.kind, list.count)).collect();
        let kept = lists.into_values().flat_map(|list| list.kept).map(|kept| kept.0).collect();
        (kept, counts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::place::Place;

    static A: Kind =
        Kind { code: "test.a", severity: Severity::Accounting, meaning: "A.", repair: "A." };
    static B: Kind =
        Kind { code: "test.b", severity: Severity::Losing, meaning: "B.", repair: "B." };

    #[test]
    fn any_number_is_counted_and_the_first_places_are_kept() {
        let findings = Findings::new();
        assert_eq!(findings.worst(), None);
        for number in (0..100_000_u64).rev() {
            findings.add(Finding::new(&A, Place::inode(number)));
        }
        assert_eq!(findings.worst(), Some(Severity::Accounting));
        findings.add(Finding::new(&B, Place::volume()));
        assert_eq!(findings.count(), 100_001);
        assert_eq!(findings.count_of(&A), 100_000);
        assert_eq!(findings.worst(), Some(Severity::Losing));
        let (kept, counts) = findings.take().into_lists();
        assert_eq!(findings.count(), 0);
        assert_eq!(kept.len(), KEPT + 1);
        let inodes: Vec<_> = kept.iter().filter_map(|finding| finding.place.inode).collect();
        assert_eq!(inodes, Vec::from_iter(0..KEPT as u64));
        let counts: Vec<_> = counts.iter().map(|(kind, count)| (kind.code, *count)).collect();
        assert_eq!(counts, [("test.a", 100_000), ("test.b", 1)]);
    }
}
