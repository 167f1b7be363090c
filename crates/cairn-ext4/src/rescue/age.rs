//! [`Age`]: how new a copy of a directory block is.
//!
//! A number of an inode is used again. So a name is that of a deleted inode only if it was logged
//! behind the last copy of the inode that had the number before, and before the first one of the
//! next.

use std::ops::Range;

use cairn_base::Tid;

/// The age of a name. Names in free space have none, and count less than all that were logged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Age(u64);

impl Age {
    /// In free space.
    pub(super) const SLACK: Self = Self(0);

    /// In a copy of this transaction.
    pub(super) fn of(tid: Tid) -> Self {
        Self(u64::from(tid.0).saturating_add(1))
    }

    /// The ages of names that one inode had: behind the inode before it, and before the next.
    pub(super) fn between(before: Option<Tid>, next: Option<Tid>) -> Range<Self> {
        let first = before.map_or(1, |tid| Self::of(tid).0.saturating_add(1));
        Self(first)..next.map_or(Self(u64::MAX), Self::of)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_other_inodes_with_the_number_do_not_count() {
        let own = Age::between(Some(Tid(3)), Some(Tid(7)));
        let logged = |tid| own.contains(&Age::of(Tid(tid)));
        assert!(!logged(3) && logged(4) && logged(6) && !logged(7));
        let alone = Age::between(None, None);
        assert!(alone.contains(&Age::of(Tid(0))) && alone.contains(&Age::of(Tid(u32::MAX))));
        assert!(!alone.contains(&Age::SLACK));
    }
}
