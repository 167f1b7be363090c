//! [`Made`]: a tree in memory for a new volume. The bytes of files follow from their place.

use std::ops::Range;

use cairn_base::Ino;
use cairn_vfs::new_tree::{Kind, Node, ROOT, ReadResult, Source};
use cairn_vfs::{FileSystem, IoFlags, Timestamp};

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
    /// A directory with these entries.
    Directory(Vec<(Vec<u8>, u32)>),
    /// A file of this size with these ranges of data.
    File(u64, Vec<Range<u64>>),
    /// A symbolic link.
    Link(Vec<u8>),
    /// A character device.
    Device(u32, u32),
    /// A socket.
    Socket,
}

#[derive(Clone, Debug)]
struct MadeNode {
    what: What,
    xattrs: Vec<(Vec<u8>, Vec<u8>)>,
}

impl Made {
    /// A root without entries.
    #[must_use]
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
    ///
    /// # Panics
    /// There is no such directory.
    pub fn link(&mut self, directory: u32, name: impl AsRef<[u8]>, id: u32) {
        let What::Directory(entries) = &mut self.nodes[directory as usize].what else {
            panic!("{directory} is not a directory")
        };
        let name = name.as_ref().to_vec();
        let at = entries.partition_point(|(known, _)| *known < name);
        entries.insert(at, (name, id));
    }

    /// Adds an attribute.
    ///
    /// # Panics
    /// There is no such node.
    pub fn xattr(&mut self, id: u32, name: &str, value: &[u8]) {
        self.nodes[id as usize].xattrs.push((name.into(), value.into()));
    }
}

/// The byte of a file at a place. It is never 0.
#[must_use]
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
            What::Device(major, minor) => Kind::CharDevice(*major, *minor),
            What::Socket => Kind::Socket,
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

/// Bytes of a range of data that are compared at both of its ends.
const SAMPLE: u64 = 5000;
/// Ranges of a file that are compared.
const RANGES: usize = 40;

/// Asserts that a volume holds a tree: names, links, sizes, owners, times, attributes, targets,
/// devices, and contents with the holes beside them, of large files in samples.
///
/// # Panics
/// It does not.
#[track_caller]
pub fn assert_holds(fs: &dyn FileSystem, source: &dyn Source) {
    let mut known: Vec<Option<Ino>> = vec![None; source.count() as usize];
    known[0] = Some(fs.root());
    let mut links = vec![0; known.len()];
    for id in 0..source.count() {
        let ino = known[id as usize].unwrap_or_else(|| panic!("{} was found", source.path(id)));
        let Kind::Directory { entries } = source.node(id).kind else { continue };
        let mut names = Vec::new();
        fs.readdir(ino, 0, &mut |entry| {
            names.push(entry.name.into_bytes());
            true
        })
        .unwrap();
        names.retain(|name| !matches!(&name[..], b"." | b".."));
        if id == ROOT && cairn_vfs::new_tree::find(source, ROOT, b"lost+found").is_none() {
            names.retain(|name| name != b"lost+found");
        }
        names.sort();
        let expected: Vec<_> = (0..entries).map(|index| source.entry(id, index)).collect();
        assert!(names.iter().eq(expected.iter().map(|(name, _)| name)), "{}", source.path(id));
        for (name, child) in expected {
            let found = fs.lookup(ino, name).unwrap();
            fs.forget(found.ino, 1);
            let child = child as usize;
            links[child] += 1;
            assert_eq!(*known[child].get_or_insert(found.ino), found.ino);
        }
    }
    for (id, ino) in (0..).zip(known.into_iter().flatten()) {
        assert_node(fs, source, id, ino, links[id as usize]);
    }
}

#[track_caller]
fn assert_node(fs: &dyn FileSystem, source: &dyn Source, id: u32, ino: Ino, links: u32) {
    let (node, path) = (source.node(id), source.path(id));
    let found = fs.getattr(ino).unwrap();
    let attributes = (found.permissions, found.uid, found.gid, found.kind);
    let expected = (node.permissions, node.uid, node.gid, node.kind.file_kind());
    assert_eq!(attributes, expected, "{path}");
    assert_eq!((found.mtime, found.ctime), (node.mtime, node.ctime), "{path}");
    for (name, value) in &node.xattrs {
        assert_eq!(fs.getxattr(ino, name).unwrap(), *value, "{path}: {}", name.escape_ascii());
    }
    assert_eq!(fs.listxattr(ino).unwrap().len(), node.xattrs.len(), "{path}");
    if !matches!(node.kind, Kind::Directory { .. }) {
        assert_eq!(found.links, links, "{path}");
    }
    match node.kind {
        Kind::Regular { size, data } => {
            assert_eq!(found.size, size, "{path}");
            assert_contents(fs, ino, size, data, &path);
        }
        Kind::Symlink(target) => assert_eq!(fs.readlink(ino).unwrap(), target, "{path}"),
        Kind::CharDevice(major, minor) => {
            let number = (minor & 0xff) | major << 8 | (minor & !0xff) << 12;
            assert_eq!(found.device, number, "{path}");
        }
        _ => {}
    }
}

#[track_caller]
fn assert_contents(fs: &dyn FileSystem, ino: Ino, size: u64, data: &[Range<u64>], path: &str) {
    let step = data.len().div_ceil(RANGES).max(1);
    let mut places: Vec<u64> = data
        .iter()
        .step_by(step)
        .chain(data.last())
        .flat_map(|range| [range.start.saturating_sub(9), range.end.saturating_sub(SAMPLE)])
        .collect();
    places.extend([0, size.saturating_sub(SAMPLE)]);
    for place in places {
        let mut bytes = vec![0; (SAMPLE + 100) as usize];
        let read = fs.read(ino, place, &mut bytes, IoFlags::empty()).unwrap();
        assert_eq!(read as u64, size.saturating_sub(place).min(bytes.len() as u64), "{path}");
        for (found, at) in bytes[..read].iter().zip(place..) {
            let range = data.partition_point(|range| range.end <= at);
            let is_data = data.get(range).is_some_and(|range| range.start <= at);
            assert_eq!(*found, if is_data { byte(at) } else { 0 }, "{path}, byte {at}");
        }
    }
}
