//! Turns a seed into the steps that make a tree.

use std::ops::Range;

use cairn_vfs::{AllocateMode, Timestamp};

/// What the tree should hold.
#[derive(Clone, Debug)]
pub struct TreeSpec {
    /// The seed of the tree.
    pub seed: u64,
    /// Directories (beside the root).
    pub directories: usize,
    /// Regular files.
    pub files: usize,
    /// Largest file in bytes (a few sparse ones reach this with little data).
    pub size_max: u64,
    /// Device nodes, foreign owners and trusted attributes: needs root on a host path.
    pub privileged: bool,
    /// Extended attributes.
    pub xattrs: bool,
}

impl TreeSpec {
    /// A small tree with files of all types.
    #[must_use]
    pub fn small(seed: u64) -> Self {
        Self { seed, directories: 8, files: 40, size_max: 300_000, privileged: true, xattrs: true }
    }
}

/// A file's bytes, derived from its own seed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Content {
    /// Generates the bytes.
    pub seed: u64,
    /// Total size.
    pub size: u64,
    /// Ranges that hold data; the rest are holes. Sorted, apart.
    pub data: Vec<Range<u64>>,
}

impl Content {
    /// The bytes of one data range.
    #[must_use]
    pub fn bytes(&self, range: &Range<u64>) -> Vec<u8> {
        let mut rng = fastrand::Rng::with_seed(self.seed ^ range.start);
        let mut bytes =
            vec![0; usize::try_from(range.end - range.start).expect("a range fits into memory")];
        rng.fill(&mut bytes);
        bytes
    }
}

/// One step. Paths are relative to the root, separated by slashes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Makes a directory.
    Directory(Vec<u8>),
    /// Makes and fills a file.
    File(Vec<u8>, Content),
    /// Makes a symbolic link to a target.
    Symlink(Vec<u8>, Vec<u8>),
    /// Links `.0` (existing) as `.1`.
    HardLink(Vec<u8>, Vec<u8>),
    /// Makes a FIFO.
    Fifo(Vec<u8>),
    /// Makes a device: path, block (else character), major, minor.
    Device(Vec<u8>, bool, u32, u32),
    /// Sets an extended attribute.
    Xattr(Vec<u8>, Vec<u8>, Vec<u8>),
    /// Sets the owner and group (not through a symbolic link).
    Owner(Vec<u8>, u32, u32),
    /// Sets the permissions.
    Mode(Vec<u8>, u32),
    /// Sets access and modification time.
    Times(Vec<u8>, Timestamp, Timestamp),
    /// Writes the ranges of a content into an existing file, without truncation.
    Write(Vec<u8>, Content),
    /// Sets the size of a file.
    Resize(Vec<u8>, u64),
    /// `fallocate`.
    Allocate(Vec<u8>, AllocateMode, Range<u64>),
    /// Renames `.0` to `.1`, which it replaces.
    Rename(Vec<u8>, Vec<u8>),
    /// Removes a name that is not a directory.
    Remove(Vec<u8>),
    /// Removes an extended attribute.
    RemoveXattr(Vec<u8>, Vec<u8>),
    /// `fsync` of a file or directory.
    Sync(Vec<u8>),
    /// `fdatasync` of a file.
    SyncData(Vec<u8>),
}

/// The steps for a tree: first inodes are made, then attributes are set, bottom-up.
#[must_use]
pub fn plan(spec: &TreeSpec) -> Vec<Step> {
    let mut planner = Planner {
        rng: fastrand::Rng::with_seed(spec.seed),
        directories: vec![Vec::new()],
        made: Vec::new(),
        steps: Vec::new(),
        serial: 0,
    };
    for _ in 0..spec.directories {
        planner.directory();
    }
    for index in 0..spec.files {
        planner.file(index, spec.size_max);
        if index % 7 == 3 {
            planner.link();
        }
        if index % 9 == 4 {
            planner.special(spec.privileged);
        }
    }
    planner.attributes(spec);
    planner.steps
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Made {
    Directory,
    File,
    Symlink,
    Special,
}

struct Planner {
    rng: fastrand::Rng,
    directories: Vec<Vec<u8>>,
    made: Vec<(Vec<u8>, Made)>,
    steps: Vec<Step>,
    serial: u32,
}

impl Planner {
    /// A fresh name in a random directory: mostly short, sometimes 255 bytes, sometimes not ASCII.
    fn path(&mut self) -> Vec<u8> {
        self.serial += 1;
        let mut path = self.rng.choice(&self.directories).expect("there is a root").clone();
        if !path.is_empty() {
            path.push(b'/');
        }
        let stem = match self.rng.u32(0..20) {
            0 => "n".repeat(245),
            1 => "größe-名".into(),
            2 => "with space\tand tab".into(),
            _ => "f".into(),
        };
        path.extend_from_slice(format!("{stem}{}", self.serial).as_bytes());
        path
    }

    fn directory(&mut self) {
        let path = self.path();
        self.directories.push(path.clone());
        self.made.push((path.clone(), Made::Directory));
        self.steps.push(Step::Directory(path));
    }

    fn file(&mut self, index: usize, size_max: u64) {
        let path = self.path();
        let size = match index % 5 {
            0 => self.rng.u64(0..=60),
            1 => self.rng.u64(0..=4096),
            2 => 4096 * self.rng.u64(0..=4),
            _ => self.rng.u64(0..=size_max),
        }
        .min(size_max);
        let content = Content { seed: self.rng.u64(..), size, data: self.ranges(index, size) };
        self.made.push((path.clone(), Made::File));
        self.steps.push(Step::File(path, content));
    }

    /// Every sixth file is sparse: islands of data, perhaps a hole at the end.
    fn ranges(&mut self, index: usize, size: u64) -> Vec<Range<u64>> {
        if size == 0 {
            return Vec::new();
        }
        if index % 6 != 5 {
            return std::iter::once(0..size).collect();
        }
        let mut ranges = Vec::new();
        let mut at = self.rng.u64(0..=size / 2);
        while at < size && ranges.len() < 8 {
            let end = (at + self.rng.u64(1..=20_000)).min(size);
            ranges.push(at..end);
            at = end.saturating_add(self.rng.u64(1..=100_000));
        }
        ranges
    }

    fn link(&mut self) {
        let path = self.path();
        if self.rng.bool() {
            let length =
                if self.rng.bool() { self.rng.usize(1..60) } else { self.rng.usize(60..1000) };
            self.made.push((path.clone(), Made::Symlink));
            self.steps.push(Step::Symlink(path, vec![b'x'; length]));
            return;
        }
        let files: Vec<_> = self.made.iter().filter(|(_, made)| *made == Made::File).collect();
        if let Some((existing, _)) = self.rng.choice(files) {
            self.steps.push(Step::HardLink(existing.clone(), path));
        }
    }

    fn special(&mut self, privileged: bool) {
        let path = self.path();
        self.made.push((path.clone(), Made::Special));
        let step = match self.rng.u32(0..3) {
            0 if privileged => {
                Step::Device(path, true, self.rng.u32(0..300), self.rng.u32(0..70_000))
            }
            1 if privileged => {
                Step::Device(path, false, self.rng.u32(0..255), self.rng.u32(0..255))
            }
            _ => Step::Fifo(path),
        };
        self.steps.push(step);
    }

    /// Deepest first, so that setting a directory's times is not undone by work below it.
    fn attributes(&mut self, spec: &TreeSpec) {
        let made = std::mem::take(&mut self.made);
        for (path, kind) in made.into_iter().rev() {
            if spec.xattrs {
                self.xattrs(&path, kind, spec.privileged);
            }
            if spec.privileged {
                let step =
                    Step::Owner(path.clone(), self.rng.u32(0..100_000), self.rng.u32(0..70_000));
                self.steps.push(step);
            }
            if kind != Made::Symlink {
                let mode = if kind == Made::Directory { 0o1700 } else { 0o6600 };
                let mode = (self.rng.u32(0..0o10_000) & (mode | 0o077))
                    | if spec.privileged { 0 } else { 0o700 };
                self.steps.push(Step::Mode(path.clone(), mode));
            }
            let atime = self.time();
            let mtime = self.time();
            self.steps.push(Step::Times(path, atime, mtime));
        }
    }

    fn xattrs(&mut self, path: &[u8], kind: Made, privileged: bool) {
        let prefix = match kind {
            Made::File | Made::Directory => "user",
            // The kernel allows user attributes on files and directories only.
            Made::Symlink | Made::Special if privileged => "trusted",
            Made::Symlink | Made::Special => return,
        };
        for number in 0..self.rng.u32(0..4) {
            let mut value = vec![0; self.rng.usize(0..if number == 0 { 600 } else { 40 })];
            self.rng.fill(&mut value);
            let name = format!("{prefix}.name{number}").into_bytes();
            self.steps.push(Step::Xattr(path.to_vec(), name, value));
        }
    }

    /// From 1902 to 2242, which 256-byte inodes hold.
    fn time(&mut self) -> Timestamp {
        let seconds = match self.rng.u32(0..4) {
            0 => self.rng.i64(-2_000_000_000..0),
            1 => self.rng.i64(2_147_483_648..8_589_934_592),
            _ => self.rng.i64(0..2_147_483_648),
        };
        Timestamp { seconds, nanoseconds: self.rng.u32(0..1_000_000_000) }
    }
}
