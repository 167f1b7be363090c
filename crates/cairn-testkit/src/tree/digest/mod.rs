//! The contents of a tree, in a form that can be compared and printed.

use std::collections::{BTreeMap, HashMap};
use std::fmt::Write as _;
use std::fs;
use std::io::{Read, Seek as _, SeekFrom};
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use cairn_base::Ino;
use cairn_vfs::{FileKind, FileSystem, IoFlags};
use sha2::{Digest, Sha256};

use super::target::encode_device;

mod contents;

use contents::{data_of_file, data_of_inode, hash, hex};

/// No test makes more entries, so this limit ends a loop on disk.
const ENTRIES_MAX: usize = 2_000_000;

/// Which differences count.
#[derive(Clone, Copy, Debug)]
pub struct SnapshotOptions {
    /// Modification times.
    pub times: bool,
    /// Allocated 512-byte sectors, and where files have data between holes (equal only for two
    /// views of one image).
    pub sectors: bool,
    /// Link counts of directories.
    pub directory_links: bool,
}

impl Default for SnapshotOptions {
    fn default() -> Self {
        Self { times: true, sectors: false, directory_links: true }
    }
}

/// A tree: one line of facts per path. Paths are relative and sorted by bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Snapshot {
    entries: BTreeMap<Vec<u8>, String>,
}

impl Snapshot {
    /// Number of entries, the root included.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// True if nothing was found (a tree has at least its root).
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The facts of one path.
    #[must_use]
    pub fn get(&self, path: &[u8]) -> Option<&str> {
        self.entries.get(path).map(String::as_str)
    }

    /// Leaves out a path and everything below it. (The empty path is only the root itself.)
    #[must_use]
    pub fn without(mut self, path: &[u8]) -> Self {
        let below = [path, b"/"].concat();
        self.entries.retain(|entry, _| entry != path && !entry.starts_with(&below));
        self
    }

    /// Leaves out the modification times of directories and of everything below `path`.
    #[must_use]
    pub fn without_times_of_directories_and(self, path: &[u8]) -> Self {
        let below = [path, b"/"].concat();
        self.without_fact("mtime", |entry, facts| {
            facts.starts_with("Directory") || entry.starts_with(&below)
        })
    }

    /// Leaves out the facts of one name (`mtime`, `sectors`…) in the entries that `path` and facts
    /// select.
    #[must_use]
    pub fn without_fact(mut self, name: &str, of: impl Fn(&[u8], &str) -> bool) -> Self {
        let is_it = |fact: &&str| fact.split_once('=').is_some_and(|(key, _)| key == name);
        for (entry, facts) in &mut self.entries {
            if of(entry, facts) {
                let kept: Vec<_> = facts.split(' ').filter(|fact| !is_it(fact)).collect();
                *facts = kept.join(" ");
            }
        }
        self
    }

    /// One line per entry, for [`Snapshot::parse`].
    #[must_use]
    pub fn to_text(&self) -> String {
        self.entries.iter().map(|(path, facts)| format!("{}\t{facts}\n", hex(path))).collect()
    }

    /// Parses the text of [`Snapshot::to_text`]; `None` for any other text.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let entry = |line: &str| {
            let (path, facts) = line.split_once('\t')?;
            let digits: Option<Vec<u32>> = path.chars().map(|digit| digit.to_digit(16)).collect();
            let pairs = digits?;
            let path = pairs.chunks_exact(2).map(|pair| (pair[0] << 4 | pair[1]) as u8).collect();
            Some((path, facts.to_owned()))
        };
        let entries: Option<BTreeMap<Vec<u8>, String>> = text.lines().map(entry).collect();
        Some(Self { entries: entries? })
    }

    /// SHA-256 over everything.
    #[must_use]
    pub fn sha256(&self) -> String {
        let mut hash = Sha256::new();
        for (path, facts) in &self.entries {
            hash.update((path.len() as u64).to_le_bytes());
            hash.update(path);
            hash.update(facts);
        }
        hex(&hash.finalize())
    }

    /// Differences, one per line, at most 20.
    #[must_use]
    pub fn diff(&self, other: &Self) -> String {
        let paths: std::collections::BTreeSet<_> =
            self.entries.keys().chain(other.entries.keys()).collect();
        let mut text = String::new();
        let differing =
            paths.into_iter().filter(|path| self.entries.get(*path) != other.entries.get(*path));
        for path in differing.take(20) {
            let side = |snapshot: &Self| snapshot.get(path).unwrap_or("absent").to_owned();
            let _ =
                writeln!(text, "{}\n  - {}\n  + {}", path.escape_ascii(), side(self), side(other));
        }
        text
    }

    /// Asserts equality.
    ///
    /// # Panics
    /// They differ; the message lists the differences.
    #[track_caller]
    pub fn assert_same(&self, other: &Self) {
        assert!(
            self == other,
            "the trees differ ({} and {} entries):\n{}",
            self.len(),
            other.len(),
            self.diff(other)
        );
    }
}

/// The facts of one inode before they become a line.
struct Facts {
    ino: u64,
    kind: FileKind,
    permissions: u32,
    uid: u32,
    gid: u32,
    links: u64,
    size: u64,
    sectors: u64,
    mtime: (i64, u32),
    device: u32,
    content: String,
    /// Byte ranges with data, of regular files.
    data: Vec<Range<u64>>,
    xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
}

impl Facts {
    fn line(&self, options: &SnapshotOptions, first: Option<&[u8]>) -> String {
        let mut line =
            format!("{:?} {:04o} {}:{}", self.kind, self.permissions, self.uid, self.gid);
        let directory = self.kind == FileKind::Directory;
        if !directory || options.directory_links {
            let _ = write!(line, " links={}", self.links);
        }
        if !directory {
            let _ = write!(line, " size={}", self.size);
        }
        if options.sectors {
            let _ = write!(line, " sectors={}", self.sectors);
            for range in &self.data {
                let _ = write!(line, " data={}..{}", range.start, range.end);
            }
        }
        if options.times {
            let _ = write!(line, " mtime={}.{:09}", self.mtime.0, self.mtime.1);
        }
        if matches!(self.kind, FileKind::BlockDevice | FileKind::CharDevice) {
            let _ = write!(line, " device={:#x}", self.device);
        }
        if !self.content.is_empty() {
            let _ = write!(line, " {}", self.content);
        }
        for (name, value) in &self.xattrs {
            // Long values are replaced by their hash, so that the line is readable.
            let value = if value.len() > 32 { hex(&Sha256::digest(value)) } else { hex(value) };
            let _ = write!(line, " {}={value}", name.escape_ascii());
        }
        if let Some(first) = first {
            let _ = write!(line, " same-as={}", first.escape_ascii());
        }
        line
    }
}

/// Collects lines; a second path of one inode names the first.
struct Collector {
    options: SnapshotOptions,
    facts: BTreeMap<Vec<u8>, Facts>,
}

impl Collector {
    fn new(options: SnapshotOptions) -> Self {
        Self { options, facts: BTreeMap::new() }
    }

    fn add(&mut self, path: Vec<u8>, facts: Facts) {
        assert!(self.facts.len() < ENTRIES_MAX, "more than {ENTRIES_MAX} entries: a loop?");
        self.facts.insert(path, facts);
    }

    fn finish(self) -> Snapshot {
        let mut first: HashMap<u64, Vec<u8>> = HashMap::new();
        let mut entries = BTreeMap::new();
        for (path, facts) in self.facts {
            let same = (facts.kind != FileKind::Directory)
                .then(|| first.get(&facts.ino).cloned())
                .flatten();
            entries.insert(path.clone(), facts.line(&self.options, same.as_deref()));
            first.entry(facts.ino).or_insert(path);
        }
        Snapshot { entries }
    }
}

/// Walks a directory of the host (its root included), not following symbolic links.
///
/// # Errors
/// Anything below cannot be read.
pub fn digest_path(root: &Path, options: SnapshotOptions) -> std::io::Result<Snapshot> {
    let mut collector = Collector::new(options);
    let mut pending = vec![(Vec::new(), root.to_owned())];
    while let Some((relative, path)) = pending.pop() {
        let facts = path_facts(&path)?;
        if facts.kind == FileKind::Directory {
            for entry in fs::read_dir(&path)? {
                let entry = entry?;
                pending.push((join(&relative, entry.file_name().as_bytes()), entry.path()));
            }
        }
        collector.add(relative, facts);
    }
    Ok(collector.finish())
}

fn path_facts(path: &Path) -> std::io::Result<Facts> {
    let metadata = fs::symlink_metadata(path)?;
    let kind = FileKind::from_mode(metadata.mode()).expect("the host knows its file types");
    let mut data = Vec::new();
    let content = match kind {
        FileKind::Regular => {
            let mut file = fs::File::open(path)?;
            data = data_of_file(&file, metadata.size())?;
            hash(&data, metadata.size(), |offset, buffer| {
                file.seek(SeekFrom::Start(offset))?;
                file.read(buffer)
            })?
        }
        FileKind::Symlink => {
            format!("-> {}", fs::read_link(path)?.as_os_str().as_bytes().escape_ascii())
        }
        _ => String::new(),
    };
    let mut xattrs = BTreeMap::new();
    for name in xattr::list(path)? {
        if let Some(value) = xattr::get(path, &name)?.filter(|_| name != "security.selinux") {
            xattrs.insert(name.as_bytes().to_vec(), value);
        }
    }
    let device =
        encode_device(rustix::fs::major(metadata.rdev()), rustix::fs::minor(metadata.rdev()));
    Ok(Facts {
        ino: metadata.ino(),
        kind,
        permissions: metadata.mode() & 0o7777,
        uid: metadata.uid(),
        gid: metadata.gid(),
        links: metadata.nlink(),
        size: metadata.size(),
        sectors: metadata.blocks(),
        mtime: (metadata.mtime(), u32::try_from(metadata.mtime_nsec()).expect("below a billion")),
        device,
        content,
        data,
        xattrs,
    })
}

/// Walks a volume (its root included).
///
/// # Errors
/// The volume's error.
pub fn digest_volume(
    volume: &dyn FileSystem,
    options: SnapshotOptions,
) -> cairn_vfs::Result<Snapshot> {
    let mut collector = Collector::new(options);
    let mut pending = vec![(Vec::new(), volume.root())];
    while let Some((relative, ino)) = pending.pop() {
        let facts = volume_facts(volume, ino)?;
        if facts.kind == FileKind::Directory {
            for name in names(volume, ino)? {
                let found = volume.lookup(ino, &name)?;
                volume.forget(found.ino, 1);
                pending.push((join(&relative, &name), found.ino));
            }
        }
        collector.add(relative, facts);
    }
    Ok(collector.finish())
}

/// Names in a directory, without `.` and `..`.
fn names(volume: &dyn FileSystem, ino: Ino) -> cairn_vfs::Result<Vec<Vec<u8>>> {
    let mut names = Vec::new();
    volume.readdir(ino, 0, &mut |entry| {
        if entry.name != b"." && entry.name != b".." {
            names.push(entry.name.into_bytes());
        }
        names.len() < ENTRIES_MAX
    })?;
    Ok(names)
}

fn volume_facts(volume: &dyn FileSystem, ino: Ino) -> cairn_vfs::Result<Facts> {
    let attributes = volume.getattr(ino)?;
    let mut data = Vec::new();
    let content = match attributes.kind {
        FileKind::Regular => {
            data = data_of_inode(volume, ino, attributes.size)?;
            hash(&data, attributes.size, |offset, buffer| {
                volume.read(ino, offset, buffer, IoFlags::empty())
            })?
        }
        FileKind::Symlink => format!("-> {}", volume.readlink(ino)?.escape_ascii()),
        _ => String::new(),
    };
    let mut xattrs = BTreeMap::new();
    for name in volume.listxattr(ino)? {
        let value = volume.getxattr(ino, &name)?;
        xattrs.insert(name, value);
    }
    Ok(Facts {
        ino: ino.get(),
        kind: attributes.kind,
        permissions: attributes.permissions,
        uid: attributes.uid,
        gid: attributes.gid,
        links: attributes.links.into(),
        size: attributes.size,
        sectors: attributes.sectors,
        mtime: (attributes.mtime.seconds, attributes.mtime.nanoseconds),
        device: attributes.device,
        content,
        data,
        xattrs,
    })
}

fn join(directory: &[u8], name: &[u8]) -> Vec<u8> {
    if directory.is_empty() { name.to_vec() } else { [directory, b"/", name].concat() }
}
