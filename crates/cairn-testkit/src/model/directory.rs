//! A directory of the oracle: each name has a position that it keeps as long as it is there.

use std::collections::BTreeMap;

use cairn_base::Ino;

/// Positions 1 and 2 are after `.` and `..`.
const FIRST: u64 = 3;

/// Names and the inodes they lead to.
pub(super) struct Directory {
    pub(super) parent: Ino,
    positions: BTreeMap<Vec<u8>, u64>,
    slots: BTreeMap<u64, (Vec<u8>, Ino)>,
    next: u64,
}

impl Directory {
    pub(super) fn new(parent: Ino) -> Self {
        Self { parent, positions: BTreeMap::new(), slots: BTreeMap::new(), next: FIRST }
    }

    pub(super) fn get(&self, name: &[u8]) -> Option<Ino> {
        let position = self.positions.get(name)?;
        self.slots.get(position).map(|(_, ino)| *ino)
    }

    /// Adds a name, or points an existing one to another inode.
    pub(super) fn set(&mut self, name: &[u8], ino: Ino) {
        let position = *self.positions.entry(name.to_vec()).or_insert_with(|| {
            self.next += 1;
            self.next - 1
        });
        self.slots.insert(position, (name.to_vec(), ino));
    }

    pub(super) fn remove(&mut self, name: &[u8]) {
        let position = self.positions.remove(name).expect("removes a name that is there");
        self.slots.remove(&position);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    pub(super) fn entries(&self) -> impl Iterator<Item = (&[u8], Ino)> {
        self.slots.values().map(|(name, ino)| (name.as_slice(), *ino))
    }

    /// Entries after a position, `.` and `..` included: position after it, name, inode.
    pub(super) fn after(&self, position: u64, own: Ino) -> impl Iterator<Item = (u64, &[u8], Ino)> {
        let dots = [(1, &b"."[..], own), (2, &b".."[..], self.parent)];
        let named = self.slots.iter().map(|(at, (name, ino))| (*at, name.as_slice(), *ino));
        dots.into_iter().chain(named).filter(move |(at, ..)| *at > position)
    }
}
