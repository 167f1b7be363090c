//! [`Made`]: a tree in memory. The bytes of files follow from their place.

use std::ops::Range;

use cairn_ext4::mkfs::populate::{Kind, Node, ReadResult, Source};
use cairn_vfs::Timestamp;

/// What a test puts into a tree.
#[derive(Clone, Debug, Default)]
pub struct Made {
    nodes: Vec<MadeNode>,
    /// Reading this file fails.
    pub broken: Option<u32>,
}

/// What a node is.
#[derive(Clone, Debug)]
pub enum What {
    Directory(Vec<(Vec<u8>, u32)>),
    File(u64, Vec<Range<u64>>),
    Link(Vec<u8>),
}

#[derive(Clone, Debug)]
struct MadeNode {
    what: What,
    xattrs: Vec<(Vec<u8>, Vec<u8>)>,
}

impl Made {
    /// A root without entries.
    pub fn new() -> Self {
        let mut made = Self::default();
        made.push(What::Directory(Vec::new()));
        made
    }

    fn push(&mut self, what: What) -> u32 {
        self.nodes.push(MadeNode { what, xattrs: Vec::new() });
        u32::try_from(self.nodes.len() - 1).unwrap()
    }

    /// Adds a node.
    pub fn add(&mut self, directory: u32, name: impl AsRef<[u8]>, what: What) -> u32 {
        let id = self.push(what);
        self.link(directory, name, id);
        id
    }

    /// Adds a directory.
    pub fn directory(&mut self, directory: u32, name: impl AsRef<[u8]>) -> u32 {
        self.add(directory, name, What::Directory(Vec::new()))
    }

    /// Adds a file without holes.
    pub fn file(&mut self, directory: u32, name: impl AsRef<[u8]>, size: u64) -> u32 {
        let data = Some(0..size).filter(|range| !range.is_empty()).into_iter().collect();
        self.add(directory, name, What::File(size, data))
    }

    /// Adds a name.
    pub fn link(&mut self, directory: u32, name: impl AsRef<[u8]>, id: u32) {
        let What::Directory(entries) = &mut self.nodes[directory as usize].what else {
            panic!("{directory} is not a directory")
        };
        let name = name.as_ref().to_vec();
        let at = entries.partition_point(|(known, _)| *known < name);
        entries.insert(at, (name, id));
    }

    /// Adds an attribute.
    pub fn xattr(&mut self, id: u32, name: &str, value: &[u8]) {
        self.nodes[id as usize].xattrs.push((name.into(), value.into()));
    }
}

/// The byte of a file at a place.
pub fn byte(place: u64) -> u8 {
    (place.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8 | 1
}

const TIME: Timestamp = Timestamp { seconds: 1_600_000_000, nanoseconds: 5 };

impl Source for Made {
    fn count(&self) -> u32 {
        u32::try_from(self.nodes.len()).unwrap()
    }

    fn node(&self, id: u32) -> Node<'_> {
        let node = &self.nodes[id as usize];
        let kind = match &node.what {
            What::Directory(entries) => {
                Kind::Directory { entries: u32::try_from(entries.len()).unwrap() }
            }
            What::File(size, data) => Kind::Regular { size: *size, data },
            What::Link(target) => Kind::Symlink(target),
        };
        Node {
            permissions: 0o755,
            uid: 1,
            gid: 70_000,
            atime: TIME,
            mtime: TIME,
            ctime: TIME,
            crtime: TIME,
            xattrs: node.xattrs.iter().map(|(name, value)| (&name[..], &value[..])).collect(),
            kind,
        }
    }

    fn entry(&self, directory: u32, index: u32) -> (&[u8], u32) {
        let What::Directory(entries) = &self.nodes[directory as usize].what else {
            panic!("{directory} is not a directory")
        };
        let (name, id) = &entries[index as usize];
        (name, *id)
    }

    fn read(&self, file: u32, offset: u64, buffer: &mut [u8]) -> ReadResult {
        if self.broken == Some(file) {
            return Err("the disk is on fire".into());
        }
        buffer.iter_mut().zip(offset..).for_each(|(to, place)| *to = byte(place));
        Ok(())
    }

    fn path(&self, id: u32) -> String {
        format!("node {id}")
    }
}
