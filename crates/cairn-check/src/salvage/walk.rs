//! [`Walk`]: the tree of a volume, as a rescue hands it out. The format knows inodes and
//! directories ([`Tree`]); what was found, and how deep a walk goes, is the same for all.

use std::collections::HashMap;

use super::{Contents, Found, Loss, Receiver, join};
use crate::BlockSet;

/// Most directories on the way from the root to another. Deeper ones count as without a name.
pub const DEEPEST: usize = 1000;
/// Most files with several names whose first name is kept.
const MOST_LINKED: usize = 1 << 20;
/// Where inodes go of which no path is known.
pub const LOST: &[u8] = b"lost";

/// A name in a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its bytes.
    pub name: Vec<u8>,
    /// The inode that it leads to.
    pub ino: u64,
    /// The code of the file type beside it; 0 if there is none.
    pub code: u8,
}

/// The directories of a volume.
pub trait Tree {
    /// A directory that is to be walked.
    type Directory;

    /// Its names. What cannot be read is lost.
    fn list(&self, walk: &mut Walk<'_>, directory: &Self::Directory, path: &[u8]) -> Vec<Entry>;

    /// Hands out what a name with this path leads to. Returns a directory that is to be walked,
    /// unless the name is too deep.
    fn named(
        &self,
        walk: &mut Walk<'_>,
        entry: &Entry,
        path: &[u8],
        is_deep: bool,
    ) -> Option<Self::Directory>;
}

/// A directory that is being walked.
struct Level {
    path: Vec<u8>,
    names: std::vec::IntoIter<Entry>,
}

/// What was found so far.
pub struct Walk<'a> {
    receiver: &'a mut dyn Receiver,
    seen: BlockSet,
    /// The first path of files with several names.
    first: HashMap<u64, Vec<u8>>,
    done: u64,
    /// Inodes that there are, as far as that is known.
    total: u64,
    goes_on: bool,
}

impl<'a> Walk<'a> {
    /// Begins. `end`: no inode number reaches it. Without memory everything is lost.
    pub fn new(receiver: &'a mut dyn Receiver, end: u64, total: u64) -> Option<Self> {
        let Ok(seen) = BlockSet::new(end) else {
            let what = "there is no memory for a set of its inodes".into();
            receiver.lost(Loss { path: b"/".to_vec(), ino: 0, what });
            return None;
        };
        Some(Self { receiver, seen, first: HashMap::new(), done: 0, total, goes_on: true })
    }

    /// False if the receiver has ended the rescue.
    #[must_use]
    pub fn goes_on(&self) -> bool {
        self.goes_on
    }

    /// Reports a loss.
    pub fn lost(&mut self, path: &[u8], ino: u64, what: impl Into<String>) {
        let path = if path.is_empty() { b"/" } else { path }.to_vec();
        self.goes_on &= self.receiver.lost(Loss { path, ino, what: what.into() });
    }

    /// Was the inode found?
    #[must_use]
    pub fn has_seen(&self, ino: u64) -> bool {
        self.seen.contains(ino)
    }

    /// Notes that an inode was found. False if it was before.
    pub fn see(&self, ino: u64) -> bool {
        self.seen.insert(ino)
    }

    /// Keeps the first path of a file that has several.
    pub fn remember(&mut self, ino: u64, path: &[u8]) {
        if self.first.len() < MOST_LINKED {
            self.first.entry(ino).or_insert_with(|| path.to_vec());
        }
    }

    /// Hands out one more name of a file, if its first one is kept.
    pub fn link(&mut self, ino: u64, path: &[u8]) -> bool {
        let Some(first) = self.first.get(&ino) else { return false };
        self.goes_on &= self.receiver.linked(path, ino, first);
        true
    }

    /// Hands out a file: `attributes` adds what it has to it, and `contents` finds the rest.
    pub fn found(
        &mut self,
        mut found: Found,
        attributes: impl FnOnce(&mut Found, &mut dyn Receiver) -> bool,
        contents: impl FnOnce() -> Box<dyn Contents>,
    ) {
        self.done = self.done.saturating_add(1);
        self.goes_on &= self.receiver.progress("inodes", self.done, self.total);
        self.goes_on &= attributes(&mut found, self.receiver);
        self.goes_on &= self.receiver.found(&found, &mut *contents());
    }

    /// Hands out everything below a directory.
    pub fn below<T: Tree>(&mut self, tree: &T, directory: &T::Directory, path: Vec<u8>) {
        let names = tree.list(self, directory, &path).into_iter();
        let mut levels = vec![Level { path, names }];
        while self.goes_on {
            let Some(level) = levels.last_mut() else { break };
            let Some(entry) = level.names.next() else {
                levels.pop();
                continue;
            };
            let Some(path) = join(&level.path, &entry.name) else {
                let path = level.path.clone();
                self.lost(&path, entry.ino, "a path below it is too long: it is in lost/");
                continue;
            };
            let is_deep = levels.len() >= DEEPEST;
            if let Some(directory) = tree.named(self, &entry, &path, is_deep) {
                let names = tree.list(self, &directory, &path).into_iter();
                levels.push(Level { path, names });
            }
        }
    }
}
