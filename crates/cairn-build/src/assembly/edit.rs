//! Changes of the nodes of an [`Assembly`] after its sources are there: owners by rule, and what
//! manifests ask for.

use cairn_vfs::{FileKind, Timestamp};

use super::{Assembly, Draft, NewKind, Shape};
use crate::node::{Metadata, RegularFile};
use crate::path::MemberPath;

impl Assembly {
    /// Gives all nodes the owners that the rules ask for.
    pub(crate) fn change_owners(&mut self) {
        let Self { drafts, rules, .. } = self;
        drafts.iter_mut().for_each(|draft| rules.own(&mut draft.metadata));
    }

    /// The attributes of a node.
    pub(crate) fn metadata_mut(&mut self, node: usize) -> Option<&mut Metadata> {
        self.drafts.get_mut(node).map(|draft| &mut draft.metadata)
    }

    /// What a node is.
    pub(crate) fn kind(&self, node: usize) -> Option<FileKind> {
        Some(match &self.drafts.get(node)?.shape {
            Shape::Directory(_) | Shape::Other(NewKind::Directory) => FileKind::Directory,
            Shape::Other(NewKind::Regular(_)) => FileKind::Regular,
            Shape::Other(NewKind::Symlink(_)) => FileKind::Symlink,
            Shape::Other(NewKind::CharDevice(_)) => FileKind::CharDevice,
            Shape::Other(NewKind::BlockDevice(_)) => FileKind::BlockDevice,
            Shape::Other(NewKind::Fifo) => FileKind::Fifo,
            Shape::Other(NewKind::Socket) => FileKind::Socket,
        })
    }

    /// Replaces what a node is; a directory stays.
    pub(crate) fn set_kind(&mut self, node: usize, new: NewKind) {
        if let Some(Draft { shape: Shape::Other(kind), .. }) = self.drafts.get_mut(node) {
            *kind = new;
        }
    }

    /// The time of the lowest directory that is there on the way to a path.
    pub(crate) fn time_near(&self, path: &MemberPath) -> Timestamp {
        let (mut at, mut time) = (0, self.rules.beginning());
        for name in path.components() {
            if let Some(draft) = self.drafts.get(at) {
                time = draft.metadata.mtime;
            }
            match self.entry(at, name) {
                Some(next) => at = next,
                None => break,
            }
        }
        time
    }

    /// Calls `visit` with the path and the number of each name in the tree, directories before what
    /// is in them, names in order. `from` is the path of a node and its number.
    pub(crate) fn walk(&self, from: (Vec<u8>, usize), visit: &mut dyn FnMut(&[u8], usize)) {
        let mut pending = vec![from];
        while let Some((path, at)) = pending.pop() {
            visit(&path, at);
            if let Some(Draft { shape: Shape::Directory(entries), .. }) = self.drafts.get(at) {
                let slash: &[u8] = if path.is_empty() { b"" } else { b"/" };
                pending.extend(
                    entries.iter().rev().map(|(name, at)| ([&path, slash, name].concat(), *at)),
                );
            }
        }
    }

    /// The place of each file that is stored in one piece, by its path.
    pub(crate) fn stored_files(&self) -> std::collections::BTreeMap<Vec<u8>, (u32, u64, u64)> {
        let mut files = std::collections::BTreeMap::new();
        self.walk((Vec::new(), 0), &mut |path, at| {
            if let Some(Draft { shape: Shape::Other(NewKind::Regular(file)), .. }) =
                self.drafts.get(at)
            {
                files.extend(file.place().map(|place| (path.to_vec(), place)));
            }
        });
        files
    }

    /// The regular file at a path.
    pub(crate) fn regular(&self, path: &MemberPath) -> Option<&RegularFile> {
        match &self.drafts.get(self.find(path)?)?.shape {
            Shape::Other(NewKind::Regular(file)) => Some(file),
            _ => None,
        }
    }
}
