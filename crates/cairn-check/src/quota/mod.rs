//! Quota files: what they say of users, groups and projects, and what the files of a volume say.
//!
//! ext4 and F2FS keep the same kind of file in hidden inodes ([`QuotaFile`]). A check counts the
//! files of each owner ([`Counted`]) and compares ([`differences`]).

mod file;
mod format;
mod owners;

use std::collections::BTreeMap;

pub use file::{Entry, QuotaFile};
pub use format::{BLOCK as QUOTA_BLOCK, has_quota_magic};
pub use owners::{Counted, OwnerKind, Usage};

/// An owner whose usage is not what the quota file says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Difference {
    /// The number of the user, group or project.
    pub id: u32,
    /// What the file says. None if it has no entry.
    pub stored: Option<Usage>,
    /// What the volume has.
    pub counted: Usage,
}

/// Compares a file with what was counted. Who has nothing needs no entry.
#[must_use]
pub fn differences(file: &QuotaFile, counted: &BTreeMap<u32, Usage>) -> Vec<Difference> {
    let stored = file.entries.iter().map(|(id, entry)| (*id, Some(entry.usage)));
    let missing = counted.keys().filter(|id| !file.entries.contains_key(id));
    let all: BTreeMap<u32, Option<Usage>> = stored.chain(missing.map(|id| (*id, None))).collect();
    let compared = all.into_iter().map(|(id, stored)| {
        let counted = counted.get(&id).copied().unwrap_or_default();
        Difference { id, stored, counted }
    });
    compared.filter(|one| one.stored.unwrap_or_default() != one.counted).collect()
}

#[cfg(test)]
mod tests;
