//! A [`Tree`] as the source of a new volume, which is written without a mount.

use std::sync::Arc;

use cairn::populate::{
    Kind as NewKind, Node as NewNode, PopulateError, ReadResult, Source, TreeError,
};
use cairn_base::names::Escaped;
use cairn_vfs::Timestamp;

use crate::error::Error;
use crate::node::{Kind, NodeId};
use crate::tree::Tree;

/// A tree whose inodes are created at one time.
pub(crate) struct Inodes {
    pub(crate) tree: Arc<Tree>,
    pub(crate) created: Timestamp,
}

impl Source for Inodes {
    fn count(&self) -> u32 {
        u32::try_from(self.tree.nodes().len()).unwrap_or(u32::MAX)
    }

    fn node(&self, id: u32) -> NewNode<'_> {
        let node = self.tree.node(NodeId(id)).expect("the writer asks for ids below the count");
        let of = &node.metadata;
        let kind = match &node.kind {
            Kind::Directory(entries) => {
                NewKind::Directory { entries: u32::try_from(entries.len()).unwrap_or(u32::MAX) }
            }
            Kind::Regular(file) => NewKind::Regular { size: file.size, data: &file.data },
            Kind::Symlink(target) => NewKind::Symlink(target),
            Kind::CharDevice(device) => {
                let (major, minor) = cairn_vfs::decode_device(*device);
                NewKind::CharDevice(major, minor)
            }
            Kind::BlockDevice(device) => {
                let (major, minor) = cairn_vfs::decode_device(*device);
                NewKind::BlockDevice(major, minor)
            }
            Kind::Fifo => NewKind::Fifo,
            Kind::Socket => NewKind::Socket,
        };
        NewNode {
            permissions: of.permissions,
            uid: of.uid,
            gid: of.gid,
            atime: of.atime,
            mtime: of.mtime,
            ctime: of.ctime,
            crtime: self.created,
            xattrs: of.xattrs.iter().map(|xattr| (&*xattr.name, &*xattr.value)).collect(),
            kind,
        }
    }

    fn entry(&self, directory: u32, index: u32) -> (&[u8], u32) {
        let node = self.tree.node(NodeId(directory));
        let entries = match node.map(|node| &node.kind) {
            Some(Kind::Directory(entries)) => entries.as_slice(),
            _ => &[],
        };
        let (name, id) = entries.get(index as usize).expect("the writer asks for its entries");
        (name, id.0)
    }

    fn read(&self, file: u32, offset: u64, buffer: &mut [u8]) -> ReadResult {
        match self.tree.node(NodeId(file)).map(|node| &node.kind) {
            Some(Kind::Regular(file)) => Ok(self.tree.read(file, offset, buffer)?),
            _ => Err("this is no regular file".into()),
        }
    }

    fn path(&self, id: u32) -> String {
        format!("/{}", self.tree.path(NodeId(id)).escaped())
    }
}

/// The error of a build of `size` bytes, if the size was given.
pub(crate) fn failed(
    error: PopulateError,
    size: Option<u64>,
    renamed: impl FnOnce(cairn::Error) -> Error,
) -> Error {
    match (error, size) {
        (PopulateError::Image(error), _) => renamed(error),
        (
            PopulateError::Tree(TreeError::NoSpace { .. } | TreeError::NoNodes { .. }),
            Some(size),
        ) => Error::TooSmall { size, need: None },
        (PopulateError::Tree(TreeError::Node { path, why }), _) => Error::source(path, why),
        (PopulateError::Tree(TreeError::Read { path, source }), _) => {
            match source.downcast::<Error>() {
                Ok(error) => *error,
                Err(source) => Error::source(path, source),
            }
        }
        (error, _) => Error::Usage(error.to_string()),
    }
}
