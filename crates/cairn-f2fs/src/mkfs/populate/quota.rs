//! [`WithQuota`]: a tree that gets quota files.

use std::ops::Range;
use std::sync::Arc;

use cairn_vfs::Timestamp;
use cairn_vfs::new_tree::{Kind, Node, ROOT, ReadResult, Source};

use super::super::identity::Identity;
use super::super::quota::PERMISSIONS;

/// A tree with files behind its last node that have no names. They belong to the owner of the root.
pub(super) struct WithQuota {
    source: Arc<dyn Source>,
    files: Vec<(Vec<u8>, [Range<u64>; 1])>,
    created: Timestamp,
    owner: (u32, u32),
}

impl WithQuota {
    /// A tree and the contents of the files.
    pub(super) fn new(source: Arc<dyn Source>, files: Vec<Vec<u8>>, identity: &Identity) -> Self {
        let root = source.node(ROOT);
        let owner = (root.uid, root.gid);
        let with_range = |bytes: Vec<u8>| {
            let all = 0..bytes.len() as u64;
            (bytes, [all])
        };
        let files = files.into_iter().map(with_range).collect();
        drop(root);
        Self { source, files, created: identity.now, owner }
    }

    fn file(&self, id: u32) -> Option<&(Vec<u8>, [Range<u64>; 1])> {
        self.files.get(id.checked_sub(self.source.count())? as usize)
    }
}

impl Source for WithQuota {
    fn count(&self) -> u32 {
        self.source.count().saturating_add(self.files.len() as u32)
    }

    fn node(&self, id: u32) -> Node<'_> {
        let Some((bytes, data)) = self.file(id) else { return self.source.node(id) };
        let time = self.created;
        Node {
            permissions: PERMISSIONS.into(),
            uid: self.owner.0,
            gid: self.owner.1,
            atime: time,
            mtime: time,
            ctime: time,
            crtime: time,
            xattrs: Vec::new(),
            kind: Kind::Regular { size: bytes.len() as u64, data },
        }
    }

    fn entry(&self, directory: u32, index: u32) -> (&[u8], u32) {
        self.source.entry(directory, index)
    }

    fn read(&self, file: u32, offset: u64, buffer: &mut [u8]) -> ReadResult {
        let Some((bytes, _)) = self.file(file) else {
            return self.source.read(file, offset, buffer);
        };
        let part = bytes.get(offset as usize..).unwrap_or_default();
        buffer.iter_mut().zip(part).for_each(|(to, byte)| *to = *byte);
        Ok(())
    }

    fn path(&self, id: u32) -> String {
        if self.file(id).is_some() { "a quota file".into() } else { self.source.path(id) }
    }
}
