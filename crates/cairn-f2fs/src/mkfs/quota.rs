//! The hidden files that count what users, groups and projects have: on a new volume they count
//! right.

use cairn_check::quota::{Counted, OwnerKind, QuotaFile};

use crate::format::Nid;

/// Permissions of a quota file.
pub(super) const PERMISSIONS: u16 = 0o600;

/// The contents of the files for these kinds of owners, in their order.
pub(super) fn contents(owners: &[OwnerKind], counted: &Counted) -> Vec<Vec<u8>> {
    let file =
        |kind: &OwnerKind| QuotaFile::default().with_usage(&counted.usage(*kind)).encode(*kind);
    owners.iter().map(file).collect()
}

/// The superblock's numbers of these files, which follow each other from the first one on.
pub(super) fn inodes(owners: &[OwnerKind], first: Nid) -> [Nid; 3] {
    let numbers = (first.get()..).map(Nid);
    let named: Vec<(OwnerKind, Nid)> = owners.iter().copied().zip(numbers).collect();
    OwnerKind::ALL.map(|kind| {
        let found = named.iter().find(|(known, _)| *known == kind);
        found.map_or(Nid::NONE, |(_, ino)| *ino)
    })
}
