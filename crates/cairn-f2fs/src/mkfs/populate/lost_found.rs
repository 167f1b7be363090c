//! [`WithLostFound`]: a tree that gets a `lost+found`.

use std::sync::Arc;

use cairn_vfs::Timestamp;
use cairn_vfs::new_tree::{Kind, Node, ROOT, ReadResult, Source};

/// The name for which the feature `lost_found` is made.
pub(super) const LOST_FOUND: &[u8] = b"lost+found";

/// A tree with an empty directory `lost+found` in its root, which is its last node.
pub(super) struct WithLostFound {
    source: Arc<dyn Source>,
    /// Its place in the root.
    index: u32,
    created: Timestamp,
}

impl WithLostFound {
    /// A tree that has no such name.
    pub(super) fn new(source: Arc<dyn Source>, created: Timestamp) -> Self {
        let Kind::Directory { entries } = source.node(ROOT).kind else {
            return Self { source, index: 0, created };
        };
        let before = |index: &u32| source.entry(ROOT, *index).0 < LOST_FOUND;
        let index = (0..entries).take_while(before).count() as u32;
        Self { source, index, created }
    }
}

impl Source for WithLostFound {
    fn count(&self) -> u32 {
        self.source.count().saturating_add(1)
    }

    fn node(&self, id: u32) -> Node<'_> {
        if id == self.source.count() {
            let time = self.created;
            return Node {
                permissions: 0o700,
                uid: 0,
                gid: 0,
                atime: time,
                mtime: time,
                ctime: time,
                crtime: time,
                xattrs: Vec::new(),
                kind: Kind::Directory { entries: 0 },
            };
        }
        let mut node = self.source.node(id);
        if let (ROOT, Kind::Directory { entries }) = (id, &mut node.kind) {
            *entries += 1;
        }
        node
    }

    fn entry(&self, directory: u32, index: u32) -> (&[u8], u32) {
        if directory != ROOT || index < self.index {
            self.source.entry(directory, index)
        } else if index == self.index {
            (LOST_FOUND, self.source.count())
        } else {
            self.source.entry(directory, index - 1)
        }
    }

    fn read(&self, file: u32, offset: u64, buffer: &mut [u8]) -> ReadResult {
        self.source.read(file, offset, buffer)
    }

    fn path(&self, id: u32) -> String {
        if id == self.source.count() { "/lost+found".into() } else { self.source.path(id) }
    }
}
