//! [`Tree`]: the sources put together, in the form that a sink writes.
//!
//! This is the interface between sources and sinks. A sink asks for nodes by id and for the bytes
//! of data ranges. The order of ids depends on names alone: the entries of a directory follow each
//! other in the order of their names' bytes, then come the entries of its first directory.

use cairn_vfs::Timestamp;
use sha2::{Digest, Sha256};
use uuid::Uuid;

use crate::error::Result;
use crate::holes;
use crate::node::{Kind, Node, NodeId, RegularFile};
use crate::store::Stores;

/// Bytes of a file that are looked at for zeros at a time.
const PIECE: u64 = 1 << 20;

/// Takes a name of a tree: its path, the id and the node.
pub type TakeName<'a> = dyn FnMut(&[u8], NodeId, &Node) -> Result<()> + 'a;

/// A finished tree.
pub struct Tree {
    pub(crate) nodes: Vec<Node>,
    pub(crate) stores: Stores,
    pub(crate) unended: Vec<String>,
    pub(crate) has_leftovers: bool,
    /// Labels of SELinux of some files are not known: they are files of the host.
    pub(crate) has_unlabelled: bool,
}

impl Tree {
    /// The archives that end without an end mark: they may have been cut off.
    #[must_use]
    pub fn unended(&self) -> &[String] {
        &self.unended
    }

    /// True if an image among the sources has what a killed run has left, which is not in the
    /// tree.
    #[must_use]
    pub fn has_leftovers(&self) -> bool {
        self.has_leftovers
    }

    /// All nodes; the index is the id.
    #[must_use]
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// All nodes, to change their attributes.
    pub(crate) fn nodes_mut(&mut self) -> &mut [Node] {
        &mut self.nodes
    }

    /// The node with this id.
    #[must_use]
    pub fn node(&self, id: NodeId) -> Option<&Node> {
        self.nodes.get(id.index())
    }

    /// Fills `buffer` with the bytes at `offset` of a file. All of them must be in one data range.
    ///
    /// # Errors
    /// The source cannot be read, or has become shorter.
    pub fn read(&self, file: &RegularFile, offset: u64, buffer: &mut [u8]) -> Result<()> {
        self.stores.read(file, offset, buffer)
    }

    /// Calls `take` with each name: its path, without slashes at its ends, and its node. A
    /// directory comes before what is in it, and that before the directory's next sibling.
    ///
    /// # Errors
    /// The first error of `take`.
    pub fn each_name(&self, take: &mut TakeName<'_>) -> Result<()> {
        let mut pending = vec![(NodeId::ROOT, Vec::new())];
        while let Some((id, path)) = pending.pop() {
            let Some(node) = self.node(id) else { continue };
            take(&path, id, node)?;
            let Kind::Directory(entries) = &node.kind else { continue };
            let slash: &[u8] = if path.is_empty() { b"" } else { b"/" };
            let below = entries.iter().rev();
            pending.extend(below.map(|(name, id)| (*id, [path.as_slice(), slash, name].concat())));
        }
        Ok(())
    }

    /// The node at a path; symbolic links in it are not followed.
    #[must_use]
    pub fn find(&self, path: &[u8]) -> Option<&Node> {
        let mut names = path.split(|byte| *byte == b'/').filter(|name| !name.is_empty());
        let id = names.try_fold(NodeId::ROOT, |at, name| match &self.node(at)?.kind {
            Kind::Directory(entries) => {
                let place = entries.binary_search_by(|(entry, _)| (**entry).cmp(name)).ok()?;
                entries.get(place).map(|(_, id)| *id)
            }
            _ => None,
        });
        self.node(id?)
    }

    /// Gives the root an owner.
    pub(crate) fn set_root_owner(&mut self, (uid, gid): (u32, u32)) {
        if let Some(root) = self.nodes.first_mut() {
            (root.metadata.uid, root.metadata.gid) = (uid, gid);
        }
    }

    /// Makes holes of the blocks of files that hold nothing but zeros.
    ///
    /// # Errors
    /// A source cannot be read.
    pub(crate) fn dig_holes(&mut self) -> Result<()> {
        let Self { nodes, stores, .. } = self;
        let mut buffer = Vec::new();
        for node in nodes {
            let Kind::Regular(file) = &mut node.kind else { continue };
            let mut kept = Vec::new();
            for range in &file.data {
                let mut at = range.start;
                while at < range.end {
                    let end = (at / PIECE + 1).saturating_mul(PIECE).min(range.end);
                    buffer.resize(usize::try_from(end - at).unwrap_or(0), 0);
                    stores.read(file, at, &mut buffer)?;
                    holes::keep(&buffer, at, &mut kept);
                    at = end;
                }
            }
            if kept != file.data {
                file.keep_only(kept);
            }
        }
        Ok(())
    }

    /// A path of the node, without a leading slash. It is searched for, for messages.
    #[must_use]
    pub fn path(&self, id: NodeId) -> Vec<u8> {
        let mut names: Vec<&[u8]> = Vec::new();
        let mut at = id;
        while at != NodeId::ROOT && names.len() <= self.nodes.len() {
            let parent = self.nodes.iter().zip(0..).find_map(|(node, parent)| match &node.kind {
                Kind::Directory(entries) => {
                    let (name, _) = entries.iter().find(|(_, entry)| *entry == at)?;
                    Some((&**name, NodeId(parent)))
                }
                _ => None,
            });
            let Some((name, parent)) = parent else { break };
            names.push(name);
            at = parent;
        }
        names.reverse();
        names.join(&b'/')
    }

    /// The newest modification time that is not later than `now`.
    #[must_use]
    pub fn newest(&self, now: Timestamp) -> Timestamp {
        let times = self.nodes.iter().map(|node| node.metadata.mtime);
        times.filter(|time| *time <= now).max().unwrap_or_default()
    }

    /// A UUID that follows from names, kinds, sizes and attributes, and from `parameters`. The
    /// contents of files do not count, so that they are read once.
    #[must_use]
    pub fn uuid(&self, parameters: &str) -> Uuid {
        let mut digest = Sha256::new();
        let mut add = |bytes: &[u8]| {
            digest.update((bytes.len() as u64).to_le_bytes());
            digest.update(bytes);
        };
        add(parameters.as_bytes());
        for node in &self.nodes {
            let of = &node.metadata;
            let kind = node.kind.file_kind().mode_bits() | of.permissions;
            add(&kind.to_le_bytes());
            add(&of.uid.to_le_bytes());
            add(&of.gid.to_le_bytes());
            add(&of.mtime.seconds.to_le_bytes());
            add(&of.mtime.nanoseconds.to_le_bytes());
            for xattr in &of.xattrs {
                add(&xattr.name);
                add(&xattr.value);
            }
            match &node.kind {
                Kind::Directory(entries) => entries.iter().for_each(|(name, id)| {
                    add(name);
                    add(&id.0.to_le_bytes());
                }),
                // Where the holes are does not count, either: a volume has them in whole blocks.
                Kind::Regular(file) => add(&file.size.to_le_bytes()),
                Kind::Symlink(target) => add(target),
                Kind::CharDevice(device) | Kind::BlockDevice(device) => {
                    add(&device.to_le_bytes());
                }
                Kind::Fifo | Kind::Socket => {}
            }
        }
        let mut bytes = [0; 16];
        bytes.iter_mut().zip(digest.finalize()).for_each(|(to, from)| *to = from);
        uuid::Builder::from_random_bytes(bytes).into_uuid()
    }
}
