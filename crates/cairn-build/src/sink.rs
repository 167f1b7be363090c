//! Writes a [`Tree`] through [`FileSystem`]: a sink for every format.
//!
//! A directory is made before its entries, and its times are set when all of them are there. The
//! calls follow from the tree alone, so equal trees give equal volumes.

use cairn_base::Ino;
use cairn_vfs::{
    Caller, Error as VolumeError, FileKind, FileSystem, IoFlags, NewInode, OpenMode, SetAttributes,
    SetTime, XattrMode,
};

use crate::error::{Error, Result};
use crate::node::{Kind, Node, NodeId, RegularFile};
use crate::tree::Tree;

/// Bytes written at a time.
const CHUNK: u64 = 1 << 20;

/// Why a volume could not be filled.
#[derive(Debug)]
pub(crate) enum FillError {
    /// The volume has no room for all of it.
    Full,
    /// Anything else.
    Other(Error),
}

impl From<Error> for FillError {
    fn from(error: Error) -> Self {
        Self::Other(error)
    }
}

type Filled<T = ()> = Result<T, FillError>;

/// Fills an empty volume.
///
/// # Errors
/// The volume is full or refuses a node, or a source cannot be read.
pub(crate) fn fill(fs: &dyn FileSystem, tree: &Tree) -> Filled {
    let mut fill = Fill { fs, tree, made: vec![None; tree.nodes().len()], buffer: Vec::new() };
    fill.set_made(NodeId::ROOT, fs.root());
    for (index, node) in tree.nodes().iter().enumerate() {
        let Kind::Directory(entries) = &node.kind else { continue };
        let Some(parent) = fill.made.get(index).copied().flatten() else { continue };
        for (name, id) in entries {
            fill.entry(parent, name, *id)?;
        }
    }
    for (index, node) in tree.nodes().iter().enumerate().rev() {
        if let (Kind::Directory(_), Some(Some(ino))) = (&node.kind, fill.made.get(index)) {
            let id = NodeId(u32::try_from(index).unwrap_or(u32::MAX));
            fill.attributes(*ino, node).map_err(|error| fill.failed(id, error))?;
        }
    }
    Ok(())
}

struct Fill<'a> {
    fs: &'a dyn FileSystem,
    tree: &'a Tree,
    /// The inode of each node that is made.
    made: Vec<Option<Ino>>,
    buffer: Vec<u8>,
}

impl Fill<'_> {
    fn set_made(&mut self, id: NodeId, ino: Ino) {
        if let Some(made) = self.made.get_mut(id.index()) {
            *made = Some(ino);
        }
    }

    fn failed(&self, id: NodeId, error: VolumeError) -> FillError {
        match error {
            VolumeError::NoSpace => FillError::Full,
            error => {
                let path = self.tree.path(id).escape_ascii().to_string();
                FillError::Other(Error::volume(format!("/{path}"), error))
            }
        }
    }

    fn entry(&mut self, parent: Ino, name: &[u8], id: NodeId) -> Filled {
        let Some(node) = self.tree.node(id) else { return Ok(()) };
        if let Some(existing) = self.made.get(id.index()).copied().flatten() {
            let linked = self.fs.link(existing, parent, name);
            let linked = linked.map_err(|error| self.failed(id, error))?;
            self.fs.forget(linked.ino, 1);
            // A new name is a change of the inode.
            let set = SetAttributes { ctime: Some(node.metadata.ctime), ..Default::default() };
            let set = self.fs.setattr(existing, &set);
            return set.map(drop).map_err(|error| self.failed(id, error));
        }
        let ino = self.create(parent, name, node).map_err(|error| self.failed(id, error))?;
        self.set_made(id, ino);
        match &node.kind {
            Kind::Directory(_) => return Ok(()),
            Kind::Regular(file) if file.size > 0 => self.contents(id, ino, file)?,
            _ => {}
        }
        self.attributes(ino, node).map_err(|error| self.failed(id, error))
    }

    fn create(&self, parent: Ino, name: &[u8], node: &Node) -> cairn_vfs::Result<Ino> {
        let new = match &node.kind {
            Kind::Directory(_) => NewInode::Directory,
            Kind::Regular(_) => NewInode::Regular,
            Kind::Symlink(target) => NewInode::Symlink(target),
            Kind::CharDevice(device) => NewInode::CharDevice(*device),
            Kind::BlockDevice(device) => NewInode::BlockDevice(*device),
            Kind::Fifo => NewInode::Fifo,
            Kind::Socket => NewInode::Socket,
        };
        match self.fs.create(parent, name, new, 0o600, &Caller::ROOT) {
            Ok(made) => {
                self.fs.forget(made.ino, 1);
                Ok(made.ino)
            }
            // mkfs makes `lost+found`.
            Err(VolumeError::Exists) if matches!(node.kind, Kind::Directory(_)) => {
                let found = cairn_vfs::walk::lookup(self.fs, parent, name)?;
                found.kind.check_directory().map(|()| found.ino)
            }
            Err(error) => Err(error),
        }
    }

    fn contents(&mut self, id: NodeId, ino: Ino, file: &RegularFile) -> Filled {
        let handle = self.fs.open(ino, OpenMode { write: true, direct: false });
        let handle = handle.map_err(|error| self.failed(id, error))?;
        let written = self.data(id, ino, file);
        self.fs.release(ino, handle);
        written
    }

    fn data(&mut self, id: NodeId, ino: Ino, file: &RegularFile) -> Filled {
        let mut buffer = std::mem::take(&mut self.buffer);
        for range in &file.data {
            let mut at = range.start;
            while at < range.end {
                let len = usize::try_from((range.end - at).min(CHUNK)).unwrap_or(0);
                buffer.resize(len, 0);
                self.tree.read(file, at, &mut buffer)?;
                let mut done = 0;
                while let Some(rest) = buffer.get(done..).filter(|rest| !rest.is_empty()) {
                    let written = self.fs.write(ino, at, rest, IoFlags::empty());
                    match written.map_err(|error| self.failed(id, error))? {
                        0 => return Err(FillError::Full),
                        count => {
                            done += count;
                            at += count as u64;
                        }
                    }
                }
            }
        }
        self.buffer = buffer;
        if file.data.last().is_none_or(|range| range.end < file.size) {
            let set = SetAttributes { size: Some(file.size), ..Default::default() };
            self.fs.setattr(ino, &set).map_err(|error| self.failed(id, error))?;
        }
        Ok(())
    }

    /// Sets the owner before the mode (a change of owner removes set-id bits), the access list
    /// before the mode, and the times last.
    fn attributes(&self, ino: Ino, node: &Node) -> cairn_vfs::Result<()> {
        let of = &node.metadata;
        let owner = SetAttributes { uid: Some(of.uid), gid: Some(of.gid), ..Default::default() };
        self.fs.setattr(ino, &owner)?;
        for xattr in &of.xattrs {
            self.fs.setxattr(ino, &xattr.name, &xattr.value, XattrMode::Set)?;
        }
        let symlink = node.kind.file_kind() == FileKind::Symlink;
        let rest = SetAttributes {
            permissions: (!symlink).then_some(of.permissions),
            atime: Some(SetTime::To(of.atime)),
            mtime: Some(SetTime::To(of.mtime)),
            ctime: Some(of.ctime),
            ..Default::default()
        };
        self.fs.setattr(ino, &rest).map(drop)
    }
}
