//! Steps for programs in other languages, and a listing that each of them can print.
//!
//! A script has a line for each [`Change`]: a word, then fields with blanks between them. Names and
//! values are in hexadecimal digits. Behind the line of a write come as many bytes as it says, and
//! a newline. A listing has a line for each [`Entry`], sorted by bytes.

use std::fmt::Write as _;

use cairn_base::Ino;
use cairn_vfs::{FileKind, FileSystem, IoFlags, Timestamp, walk};

use super::plan::{Content, Step};
use super::target::encode_device;

/// What a step does, in the calls that a library has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// `mkdir PATH`
    Directory(Vec<u8>),
    /// `file PATH SIZE`: made, or emptied, then as long as this.
    File(Vec<u8>, u64),
    /// `write PATH OFFSET LENGTH`, then the bytes.
    Write(Vec<u8>, u64, Vec<u8>),
    /// `symlink TARGET PATH`
    Symlink(Vec<u8>, Vec<u8>),
    /// `link ORIGINAL PATH`
    Link(Vec<u8>, Vec<u8>),
    /// `mknod PATH MODE MAJOR MINOR`, the mode in octal digits with the kind.
    Node(Vec<u8>, u32, u32, u32),
    /// `setxattr PATH NAME VALUE`; `-` for no bytes.
    Xattr(Vec<u8>, Vec<u8>, Vec<u8>),
    /// `chown PATH UID GID`
    Owner(Vec<u8>, u32, u32),
    /// `chmod PATH MODE`, in octal digits.
    Mode(Vec<u8>, u32),
    /// `utimes PATH SECONDS NANOSECONDS SECONDS NANOSECONDS`: access and modification.
    Times(Vec<u8>, Timestamp, Timestamp),
}

impl Change {
    /// The changes of a step that a plan begins with.
    ///
    /// # Panics
    /// The step changes what another one has made.
    #[must_use]
    pub fn of(step: &Step) -> Vec<Self> {
        let one = match step.clone() {
            Step::Directory(path) => Self::Directory(path),
            Step::File(path, content) => return of_file(&path, &content),
            Step::Symlink(path, target) => Self::Symlink(target, path),
            Step::HardLink(original, path) => Self::Link(original, path),
            Step::Fifo(path) => Self::Node(path, FileKind::Fifo.mode_bits() | 0o644, 0, 0),
            Step::Device(path, is_block, major, minor) => {
                let kind = if is_block { FileKind::BlockDevice } else { FileKind::CharDevice };
                Self::Node(path, kind.mode_bits() | 0o644, major, minor)
            }
            Step::Xattr(path, name, value) => Self::Xattr(path, name, value),
            Step::Owner(path, uid, gid) => Self::Owner(path, uid, gid),
            Step::Mode(path, mode) => Self::Mode(path, mode),
            Step::Times(path, accessed, modified) => Self::Times(path, accessed, modified),
            other => panic!("{other:?} makes nothing"),
        };
        vec![one]
    }

    fn write(&self, script: &mut Vec<u8>) {
        let line = match self {
            Self::Directory(path) => format!("mkdir {}", hex(path)),
            Self::File(path, size) => format!("file {} {size}", hex(path)),
            Self::Write(path, offset, bytes) => {
                format!("write {} {offset} {}", hex(path), bytes.len())
            }
            Self::Symlink(target, path) => format!("symlink {} {}", hex(target), hex(path)),
            Self::Link(original, path) => format!("link {} {}", hex(original), hex(path)),
            Self::Node(path, mode, major, minor) => {
                format!("mknod {} {mode:o} {major} {minor}", hex(path))
            }
            Self::Xattr(path, name, value) => {
                format!("setxattr {} {} {}", hex(path), hex(name), hex(value))
            }
            Self::Owner(path, uid, gid) => format!("chown {} {uid} {gid}", hex(path)),
            Self::Mode(path, mode) => format!("chmod {} {mode:o}", hex(path)),
            Self::Times(path, accessed, modified) => format!(
                "utimes {} {} {} {} {}",
                hex(path),
                accessed.seconds,
                accessed.nanoseconds,
                modified.seconds,
                modified.nanoseconds
            ),
        };
        script.extend_from_slice(line.as_bytes());
        script.push(b'\n');
        if let Self::Write(_, _, bytes) = self {
            script.extend_from_slice(bytes);
            script.push(b'\n');
        }
    }
}

fn of_file(path: &[u8], content: &Content) -> Vec<Change> {
    let mut changes = vec![Change::File(path.to_vec(), content.size)];
    changes.extend(
        content
            .data
            .iter()
            .map(|range| Change::Write(path.to_vec(), range.start, content.bytes(range))),
    );
    changes
}

/// The script of these steps.
///
/// # Panics
/// As [`Change::of`].
#[must_use]
pub fn script(steps: &[Step]) -> Vec<u8> {
    let mut script = Vec::new();
    steps.iter().flat_map(Change::of).for_each(|change| change.write(&mut script));
    script
}

/// `-` for no bytes.
fn hex(bytes: &[u8]) -> String {
    if bytes.is_empty() {
        return "-".into();
    }
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// A line of a listing: `PATH MODE LINKS UID GID SIZE MTIME MAJOR:MINOR CRC [NAME=VALUE…]`.
///
/// The mode is octal, with the kind. Directories have the links and size 0, because formats count
/// both in their own ways. The modification time is `SECONDS.NANOSECONDS`. The CRC-32 is that of a
/// file's contents or a symbolic link's target. The attributes are sorted by name.
#[derive(Clone, Debug, Default)]
pub struct Entry {
    /// Below the root.
    pub path: Vec<u8>,
    /// Kind and permissions.
    pub mode: u32,
    /// Names.
    pub links: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Bytes.
    pub size: u64,
    /// Last change of the contents.
    pub mtime: Timestamp,
    /// Number of a device.
    pub device: u32,
    /// Contents, or the target of a link.
    pub contents: Vec<u8>,
    /// Attributes.
    pub xattrs: Vec<(Vec<u8>, Vec<u8>)>,
}

impl Entry {
    /// Its line.
    #[must_use]
    pub fn line(mut self) -> String {
        let is_directory = FileKind::from_mode(self.mode) == Some(FileKind::Directory);
        let (links, size) = if is_directory { (0, 0) } else { (self.links, self.size) };
        let (major, minor) =
            (self.device >> 8 & 0xfff, self.device & 0xff | self.device >> 12 & 0xf_ff00);
        debug_assert_eq!(encode_device(major, minor), self.device);
        let mut line = format!(
            "{} {:o} {links} {} {} {size} {}.{:09} {major}:{minor} {:08x}",
            hex(&self.path),
            self.mode,
            self.uid,
            self.gid,
            self.mtime.seconds,
            self.mtime.nanoseconds,
            crc32fast::hash(&self.contents)
        );
        self.xattrs.sort();
        for (name, value) in &self.xattrs {
            let _ = write!(line, " {}={}", hex(name), hex(value));
        }
        line
    }
}

/// The listing of a volume, without its root and `lost+found`.
///
/// # Panics
/// The volume cannot be read.
#[must_use]
pub fn listing(fs: &dyn FileSystem) -> String {
    let mut lines = Vec::new();
    walk::walk(fs, fs.root(), &mut |met| {
        if met.depth > 0 && met.path != b"lost+found" {
            lines.push(entry(fs, met.path, met.attributes).line());
        }
        Ok(walk::Next::Continue)
    })
    .unwrap();
    lines.sort();
    lines.iter().map(|line| format!("{line}\n")).collect()
}

fn entry(fs: &dyn FileSystem, path: &[u8], found: &cairn_vfs::Attributes) -> Entry {
    let contents = match found.kind {
        FileKind::Regular => read(fs, found.ino, found.size),
        FileKind::Symlink => fs.readlink(found.ino).unwrap(),
        _ => Vec::new(),
    };
    let names = fs.listxattr(found.ino).unwrap();
    Entry {
        path: path.to_vec(),
        mode: found.kind.mode_bits() | found.permissions,
        links: found.links,
        uid: found.uid,
        gid: found.gid,
        size: found.size,
        mtime: found.mtime,
        device: found.device,
        contents,
        xattrs: names
            .into_iter()
            .map(|name| (name.clone(), fs.getxattr(found.ino, &name).unwrap()))
            .collect(),
    }
}

fn read(fs: &dyn FileSystem, ino: Ino, size: u64) -> Vec<u8> {
    let mut contents = vec![0; usize::try_from(size).expect("a test's file fits into memory")];
    let read = fs.read(ino, 0, &mut contents, IoFlags::empty()).unwrap();
    assert_eq!(read, contents.len());
    contents
}
