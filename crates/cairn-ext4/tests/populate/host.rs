//! [`HostTree`]: a directory of the host as a source.

use std::collections::HashMap;
use std::ffi::{CString, OsStr};
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use cairn_ext4::mkfs::populate::{Kind, Node, ReadResult, Source};
use cairn_vfs::{FileKind, Timestamp};
use rustix::fs::SeekFrom;

/// A scanned directory.
#[derive(Debug)]
pub struct HostTree {
    nodes: Vec<HostNode>,
}

#[derive(Debug)]
struct HostNode {
    path: PathBuf,
    metadata: std::fs::Metadata,
    xattrs: Vec<(Vec<u8>, Vec<u8>)>,
    entries: Vec<(Vec<u8>, u32)>,
    data: Vec<Range<u64>>,
    target: Vec<u8>,
}

impl HostTree {
    /// Scans a directory and everything below it.
    ///
    /// # Errors
    /// Something cannot be read.
    pub fn scan(root: &Path) -> io::Result<Self> {
        let mut tree = Self { nodes: vec![HostNode::new(root.to_owned())?] };
        let mut linked = HashMap::new();
        let mut at = 0;
        while at < tree.nodes.len() {
            if tree.nodes[at].metadata.is_dir() {
                tree.list(at, &mut linked)?;
            }
            at += 1;
        }
        Ok(tree)
    }

    fn list(&mut self, at: usize, linked: &mut HashMap<(u64, u64), u32>) -> io::Result<()> {
        let directory = self.nodes[at].path.clone();
        let mut names = std::fs::read_dir(&directory)?
            .map(|entry| Ok(entry?.file_name().into_vec()))
            .collect::<io::Result<Vec<_>>>()?;
        names.sort_unstable();
        let mut entries = Vec::with_capacity(names.len());
        for name in names {
            let node = HostNode::new(directory.join(OsStr::from_bytes(&name)))?;
            let next = u32::try_from(self.nodes.len()).unwrap();
            let shared = !node.metadata.is_dir() && node.metadata.nlink() > 1;
            let id = match shared {
                true => *linked.entry((node.metadata.dev(), node.metadata.ino())).or_insert(next),
                false => next,
            };
            if id == next {
                self.nodes.push(node);
            }
            entries.push((name, id));
        }
        self.nodes[at].entries = entries;
        Ok(())
    }
}

impl HostNode {
    fn new(path: PathBuf) -> io::Result<Self> {
        let metadata = std::fs::symlink_metadata(&path)?;
        let target = match metadata.is_symlink() {
            true => std::fs::read_link(&path)?.into_os_string().into_vec(),
            false => Vec::new(),
        };
        let data = if metadata.is_file() { data_ranges(&path, &metadata)? } else { Vec::new() };
        let xattrs = xattrs(&path)?;
        Ok(Self { path, metadata, xattrs, entries: Vec::new(), data, target })
    }
}

fn data_ranges(path: &Path, metadata: &std::fs::Metadata) -> io::Result<Vec<Range<u64>>> {
    let size = metadata.len();
    if size == 0 {
        return Ok(Vec::new());
    }
    if metadata.blocks() * 512 >= size {
        return Ok(std::iter::once(0..size).collect());
    }
    let file = File::open(path)?;
    let mut ranges = Vec::new();
    let mut at = 0;
    while let Ok(start) = rustix::fs::seek(&file, SeekFrom::Data(at)) {
        let end = rustix::fs::seek(&file, SeekFrom::Hole(start))?.min(size);
        ranges.push(start..end);
        at = end;
    }
    Ok(ranges)
}

fn xattrs(path: &Path) -> io::Result<Vec<(Vec<u8>, Vec<u8>)>> {
    let mut names = [0_u8; 8192];
    let len = match rustix::fs::llistxattr(path, &mut names[..]) {
        Ok(len) => len,
        Err(rustix::io::Errno::OPNOTSUPP) => 0,
        Err(error) => return Err(error.into()),
    };
    let mut all = Vec::new();
    for name in names[..len].split(|byte| *byte == 0).filter(|name| !name.is_empty()) {
        let mut value = vec![0; 65_536];
        let c_name = CString::new(name).unwrap();
        let len = rustix::fs::lgetxattr(path, &c_name, &mut value[..])?;
        value.truncate(len);
        all.push((name.to_vec(), value));
    }
    all.sort();
    Ok(all)
}

fn time(seconds: i64, nanoseconds: i64) -> Timestamp {
    Timestamp { seconds, nanoseconds: u32::try_from(nanoseconds).unwrap() }
}

impl Source for HostTree {
    fn count(&self) -> u32 {
        u32::try_from(self.nodes.len()).unwrap()
    }

    fn node(&self, id: u32) -> Node<'_> {
        let node = &self.nodes[id as usize];
        let of = &node.metadata;
        let device = (rustix::fs::major(of.rdev()), rustix::fs::minor(of.rdev()));
        let kind = match FileKind::from_mode(of.mode()).unwrap() {
            FileKind::Directory => {
                Kind::Directory { entries: u32::try_from(node.entries.len()).unwrap() }
            }
            FileKind::Regular => Kind::Regular { size: of.len(), data: &node.data },
            FileKind::Symlink => Kind::Symlink(&node.target),
            FileKind::CharDevice => Kind::CharDevice(device.0, device.1),
            FileKind::BlockDevice => Kind::BlockDevice(device.0, device.1),
            FileKind::Fifo => Kind::Fifo,
            FileKind::Socket => Kind::Socket,
        };
        let mtime = time(of.mtime(), of.mtime_nsec());
        Node {
            permissions: of.mode() & 0o7777,
            uid: of.uid(),
            gid: of.gid(),
            atime: time(of.atime(), of.atime_nsec()),
            mtime,
            ctime: mtime,
            crtime: mtime,
            xattrs: node.xattrs.iter().map(|(name, value)| (&name[..], &value[..])).collect(),
            kind,
        }
    }

    fn entry(&self, directory: u32, index: u32) -> (&[u8], u32) {
        let (name, id) = &self.nodes[directory as usize].entries[index as usize];
        (name, *id)
    }

    fn read(&self, file: u32, offset: u64, buffer: &mut [u8]) -> ReadResult {
        Ok(File::open(&self.nodes[file as usize].path)?.read_exact_at(buffer, offset)?)
    }

    fn path(&self, id: u32) -> String {
        self.nodes[id as usize].path.display().to_string()
    }
}
