//! Writes a [`Tree`] through [`FileSystem`]: a sink for every format.
//!
//! A directory is made before its entries, and its times are set when all of them are there. The
//! calls follow from the tree alone, so equal trees give equal volumes.

use cairn_base::Ino;
use cairn_base::names::Escaped;
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

/// Why a node could not be written.
#[derive(Debug)]
pub enum WriteError {
    /// The volume refuses it.
    Volume(VolumeError),
    /// The source cannot be read.
    Source(Error),
}

impl From<VolumeError> for WriteError {
    fn from(error: VolumeError) -> Self {
        Self::Volume(error)
    }
}

/// Writes single nodes of a tree.
pub struct Writer<'a> {
    fs: &'a dyn FileSystem,
    tree: &'a Tree,
    buffer: Vec<u8>,
}

impl<'a> Writer<'a> {
    /// From a tree to a volume.
    #[must_use]
    pub fn new(fs: &'a dyn FileSystem, tree: &'a Tree) -> Self {
        Self { fs, tree, buffer: Vec::new() }
    }

    /// Makes a node; a regular file is empty, and attributes are still to be set. A directory may
    /// be there already.
    ///
    /// # Errors
    /// The volume refuses it.
    pub fn create(&self, parent: Ino, name: &[u8], node: &Node) -> cairn_vfs::Result<Ino> {
        let new = match &node.kind {
            Kind::Directory(_) => NewInode::Directory,
            Kind::Regular(_) => NewInode::Regular,
            Kind::Symlink(target) => NewInode::Symlink(target),
            Kind::CharDevice(device) => NewInode::CharDevice(*device),
            Kind::BlockDevice(device) => NewInode::BlockDevice(*device),
            Kind::Fifo => NewInode::Fifo,
            Kind::Socket => NewInode::Socket,
        };
        match self.fs.create(parent, name, new, 0o600, &Caller::COPIER) {
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

    /// Writes the contents of a file that is empty, or has nothing but zeros.
    ///
    /// # Errors
    /// The volume refuses them, or they cannot be read.
    pub fn contents(&mut self, ino: Ino, file: &RegularFile) -> Result<(), WriteError> {
        if file.size == 0 {
            return Ok(());
        }
        let handle = self.fs.open(ino, OpenMode { write: true, direct: false })?;
        let written = self.data(ino, file);
        self.fs.release(ino, handle);
        written
    }

    fn data(&mut self, ino: Ino, file: &RegularFile) -> Result<(), WriteError> {
        for range in &file.data {
            let mut at = range.start;
            while at < range.end {
                let len = usize::try_from((range.end - at).min(CHUNK)).unwrap_or(0);
                self.buffer.resize(len, 0);
                self.tree.read(file, at, &mut self.buffer).map_err(WriteError::Source)?;
                let mut done = 0;
                while let Some(rest) = self.buffer.get(done..).filter(|rest| !rest.is_empty()) {
                    match self.fs.write(ino, at, rest, IoFlags::empty())? {
                        0 => return Err(VolumeError::NoSpace.into()),
                        count => {
                            done += count;
                            at += count as u64;
                        }
                    }
                }
            }
        }
        if file.data.last().is_none_or(|range| range.end < file.size) {
            let set = SetAttributes { size: Some(file.size), ..Default::default() };
            self.fs.setattr(ino, &set)?;
        }
        Ok(())
    }

    /// Sets the owner before the mode (a change of owner removes set-id bits), the access list
    /// before the mode, and the times last.
    ///
    /// # Errors
    /// The volume refuses one of them.
    pub fn attributes(&self, ino: Ino, node: &Node) -> cairn_vfs::Result<()> {
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

    /// Removes the attributes that a file has and the node has not.
    ///
    /// # Errors
    /// The volume refuses it.
    pub fn remove_attributes(&self, ino: Ino, node: &Node) -> cairn_vfs::Result<()> {
        for name in self.fs.listxattr(ino)? {
            if !node.metadata.xattrs.iter().any(|xattr| *xattr.name == *name) {
                self.fs.removexattr(ino, &name)?;
            }
        }
        Ok(())
    }
}

type Filled<T = ()> = Result<T, FillError>;

/// Fills an empty volume.
///
/// # Errors
/// The volume is full or refuses a node, or a source cannot be read.
pub(crate) fn fill(fs: &dyn FileSystem, tree: &Tree) -> Filled {
    let writer = Writer::new(fs, tree);
    let mut fill = Fill { fs, tree, writer, made: vec![None; tree.nodes().len()] };
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
            fill.writer.attributes(*ino, node).map_err(|error| fill.failed(id, error))?;
        }
    }
    Ok(())
}

struct Fill<'a> {
    fs: &'a dyn FileSystem,
    tree: &'a Tree,
    writer: Writer<'a>,
    /// The inode of each node that is made.
    made: Vec<Option<Ino>>,
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
                let path = self.tree.path(id).escaped();
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
        let made = self.writer.create(parent, name, node);
        let ino = made.map_err(|error| self.failed(id, error))?;
        self.set_made(id, ino);
        match &node.kind {
            Kind::Directory(_) => return Ok(()),
            Kind::Regular(file) => {
                self.writer.contents(ino, file).map_err(|error| match error {
                    WriteError::Volume(error) => self.failed(id, error),
                    WriteError::Source(error) => error.into(),
                })?
            }
            _ => {}
        }
        self.writer.attributes(ino, node).map_err(|error| self.failed(id, error))
    }
}
