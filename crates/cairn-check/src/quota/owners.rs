//! Owners, and what they use.
//!
//! Locking: one lock for each kind of owner, a leaf.

use std::collections::BTreeMap;

use cairn_base::ranked_lock::{Mutex, Rank};

/// Whose usage a quota file counts, in the order of the formats' superblocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum OwnerKind {
    /// Users.
    User,
    /// Groups.
    Group,
    /// Projects.
    Project,
}

impl OwnerKind {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::User, Self::Group, Self::Project];

    /// The word for it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::User => "user",
            Self::Group => "group",
            Self::Project => "project",
        }
    }
}

/// What an owner uses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Number of inodes.
    pub inodes: u64,
    /// Bytes of blocks.
    pub space: u64,
}

impl std::fmt::Display for Usage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} inodes and {} bytes", self.inodes, self.space)
    }
}

/// The usage of each owner, as several threads count it.
#[derive(Debug)]
pub struct Counted([Mutex<BTreeMap<u32, Usage>>; 3]);

impl Default for Counted {
    fn default() -> Self {
        Self(OwnerKind::ALL.map(|_| Mutex::new(Rank::Leaf, BTreeMap::new())))
    }
}

impl Counted {
    fn of(&self, kind: OwnerKind) -> &Mutex<BTreeMap<u32, Usage>> {
        let [users, groups, projects] = &self.0;
        match kind {
            OwnerKind::User => users,
            OwnerKind::Group => groups,
            OwnerKind::Project => projects,
        }
    }

    /// Adds what an inode uses: `owners` are its user, group and project.
    pub fn add(&self, owners: [u32; 3], usage: Usage) {
        for (kind, owner) in OwnerKind::ALL.into_iter().zip(owners) {
            let mut owners = self.of(kind).lock();
            let sum = owners.entry(owner).or_default();
            sum.inodes = sum.inodes.saturating_add(usage.inodes);
            sum.space = sum.space.saturating_add(usage.space);
        }
    }

    /// The owners that have something.
    #[must_use]
    pub fn usage(&self, kind: OwnerKind) -> BTreeMap<u32, Usage> {
        self.of(kind).lock().clone()
    }
}
