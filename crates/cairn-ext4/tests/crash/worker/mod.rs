//! One thread of a workload: seeded operations, a model of its files, and the promises with their
//! moments.
//!
//! Each worker owns its names and files; all workers share directories, groups, inode tables and
//! the journal.

mod names;
mod persist;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use cairn_base::Ino;
use cairn_ext4::Ext4;
use cairn_testkit::crash::{Promises, Recording};
use cairn_testkit::transfer;
use cairn_vfs::{
    AllocateMode, Caller, Error, FileSystem, IoFlags, NewInode, RenameMode, Result, SetAttributes,
    XattrMode,
};

use crate::expect::{Expect, XATTR};
use crate::pattern::{self, MOVING, WORD};

/// Largest size of a file.
const SIZE_MAX: u64 = 48 << 10;
/// Most files at once.
const FILES_MAX: usize = 16;

/// The current state of a file.
struct File {
    ino: Ino,
    bytes: Vec<u8>,
    version: u16,
    xattr: Option<Vec<u8>>,
    names: BTreeSet<String>,
}

/// One thread of a workload.
pub struct Worker {
    fs: Arc<Ext4>,
    recording: Arc<Recording>,
    random: fastrand::Rng,
    number: u16,
    next_id: u16,
    next_name: u32,
    files: BTreeMap<u16, File>,
    /// Directories and links.
    others: BTreeMap<String, Expect>,
    /// Names removed since the last sync.
    gone: BTreeSet<String>,
    directories: BTreeMap<String, Ino>,
    /// Unlinked, but still referred to.
    unlinked: Vec<(u16, File)>,
    current: BTreeMap<String, Expect>,
    promises: Promises<String, Expect>,
}

impl Worker {
    /// The `number`-th worker (1 to 7) of a run. `directories` exist and are shared.
    pub fn new(
        fs: &Arc<Ext4>,
        recording: &Arc<Recording>,
        seed: u64,
        number: u16,
        shared: &[(String, Ino)],
    ) -> Self {
        Self {
            fs: fs.clone(),
            recording: recording.clone(),
            random: fastrand::Rng::with_seed(seed.wrapping_mul(31).wrapping_add(number.into())),
            number,
            next_id: 0,
            next_name: 0,
            files: BTreeMap::new(),
            others: BTreeMap::new(),
            gone: BTreeSet::new(),
            directories: shared.iter().cloned().collect(),
            unlinked: Vec::new(),
            current: BTreeMap::new(),
            promises: Promises::new(),
        }
    }

    /// The promises.
    pub fn finish(self) -> Promises<String, Expect> {
        for (_, file) in &self.unlinked {
            self.fs.forget(file.ino, 1);
        }
        self.promises
    }

    /// One seeded operation.
    pub fn step(&mut self) -> Result<()> {
        match self.random.u8(..48) {
            _ if self.files.is_empty() => self.create(),
            0..=3 => self.create(),
            4..=8 => self.append(),
            9..=13 => self.overwrite(),
            14 | 15 => self.truncate(),
            16..=18 => self.rename(),
            19 => self.link(),
            20 | 21 => self.unlink(),
            22 => self.write_unlinked(),
            23 => self.make_directory(),
            24 => self.remove_directory(),
            25 => self.symlink(),
            26 | 27 => self.attribute(),
            28 | 29 => self.preallocate(),
            30 => self.punch(),
            31 => self.shift(),
            32..=35 => self.fsync(false),
            36..=38 => self.fsync(true),
            39 | 40 => self.sync_directory(),
            41..=43 => self.write_direct(),
            44 => self.evict(),
            _ => self.sync(),
        }
    }

    // --- promises ---

    fn promise(&mut self, path: &str, expect: Option<Expect>) {
        let moment = self.recording.moment();
        match expect {
            Some(expect) => {
                self.current.insert(path.to_owned(), expect.clone());
                self.promises.kept(path.to_owned(), expect, moment);
            }
            None => {
                if self.current.remove(path).is_some() {
                    self.promises.changing(path.to_owned(), moment);
                }
            }
        }
    }

    fn mentioning(&self, id: u16) -> Vec<String> {
        self.current
            .iter()
            .filter(|(_, expect)| expect.mentions(id))
            .map(|(path, _)| path.clone())
            .collect()
    }

    /// The contents of a file are about to change.
    fn changing(&mut self, id: u16) {
        for path in self.mentioning(id) {
            self.promise(&path, None);
        }
    }

    /// A path changes to `new`. The old contents may still be durable.
    fn either(&mut self, path: &str, new: Option<Expect>) {
        let both = match (self.current.get(path).cloned(), new) {
            (Some(old), Some(new)) => Some(Expect::OneOf(vec![old, new])),
            _ => None,
        };
        self.promise(path, both);
    }

    // --- choices ---

    fn pick_file(&mut self) -> u16 {
        let at = self.random.usize(..self.files.len());
        *self.files.keys().nth(at).expect("within")
    }

    fn new_name(&mut self) -> (Ino, String, String) {
        let at = self.random.usize(..self.directories.len());
        let (dir, ino) =
            self.directories.iter().nth(at).map(|(dir, ino)| (dir.clone(), *ino)).expect("within");
        self.next_name += 1;
        // Long names fill blocks, so that directories grow.
        let name =
            format!("{}-{}-{}", self.number, self.next_name, "n".repeat(self.random.usize(..60)));
        let path = if dir.is_empty() { name.clone() } else { format!("{dir}/{name}") };
        (ino, name, path)
    }

    fn place(&self, path: &str) -> (Ino, String) {
        let (dir, name) = path.rsplit_once('/').unwrap_or(("", path));
        (self.directories[dir], name.to_owned())
    }

    fn words(&mut self, most: u64) -> u64 {
        self.random.u64(1..=(most / WORD).max(1)) * WORD
    }

    // --- operations ---

    fn create(&mut self) -> Result<()> {
        if self.files.len() >= FILES_MAX {
            return self.unlink();
        }
        let (dir, name, path) = self.new_name();
        self.next_id += 1;
        let moving = if self.random.u8(..6) == 0 { MOVING } else { 0 };
        let id = moving | self.number << 12 | self.next_id;
        let ino =
            self.fs.create(dir, name.as_bytes(), NewInode::Regular, 0o644, &Caller::ROOT)?.ino;
        let names = BTreeSet::from([path]);
        self.files.insert(id, File { ino, bytes: Vec::new(), version: 0, xattr: None, names });
        Ok(())
    }

    fn write(&mut self, id: u16, offset: u64, len: u64, flags: IoFlags) -> Result<()> {
        let file = self.files.get_mut(&id).expect("a file");
        file.version += 1;
        let data = pattern::fill(id, file.version, offset, len);
        let flags = flags
            | match self.random.u8(..16) {
                0..2 => IoFlags::DSYNC,
                2..5 => IoFlags::DONTCACHE,
                _ => IoFlags::empty(),
            };
        let mut done = 0;
        while done < data.len() {
            let at = offset + done as u64;
            done += transfer::write(&*self.fs, file.ino, at, &data[done..], flags)?;
        }
        let at = usize::try_from(offset).expect("small");
        let size = file.bytes.len().max(at + data.len());
        file.bytes.resize(size, 0);
        file.bytes[at..at + data.len()].copy_from_slice(&data);
        if flags.contains(IoFlags::DSYNC) {
            self.promise_file(id);
        }
        Ok(())
    }

    fn append(&mut self) -> Result<()> {
        let id = self.pick_file();
        let size = self.files[&id].bytes.len() as u64;
        if size >= SIZE_MAX {
            return self.truncate();
        }
        for path in self.mentioning(id) {
            let left = self.current[&path].appended(id);
            self.promise(&path, Some(left));
        }
        let len = self.words(12 << 10);
        self.write(id, size, len, IoFlags::empty())
    }

    fn overwrite(&mut self) -> Result<()> {
        let id = self.pick_file();
        let size = self.files[&id].bytes.len() as u64;
        self.changing(id);
        // Sometimes far behind the end.
        let reach = if self.random.u8(..5) == 0 { SIZE_MAX } else { size.max(WORD) };
        let offset = self.words(reach) - WORD;
        let len = self.words(10 << 10);
        self.write(id, offset, len, IoFlags::empty())
    }

    /// Whole blocks with direct I/O, behind the end or before it.
    fn write_direct(&mut self) -> Result<()> {
        const BLOCK: u64 = 4096;
        let id = self.pick_file();
        let size = self.files[&id].bytes.len() as u64;
        self.changing(id);
        let extends = size < SIZE_MAX && self.random.bool();
        let block = if extends { size.div_ceil(BLOCK) } else { self.random.u64(..=size / BLOCK) };
        let len = self.random.u64(1..4) * BLOCK;
        self.write(id, block * BLOCK, len, IoFlags::DIRECT)
    }

    fn truncate(&mut self) -> Result<()> {
        let id = self.pick_file();
        self.changing(id);
        let size = self.words(SIZE_MAX) - WORD;
        let file = self.files.get_mut(&id).expect("a file");
        self.fs
            .setattr(file.ino, &SetAttributes { size: Some(size), ..SetAttributes::default() })?;
        file.bytes.resize(usize::try_from(size).expect("small"), 0);
        Ok(())
    }

    fn attribute(&mut self) -> Result<()> {
        let id = self.pick_file();
        self.changing(id);
        let value = vec![self.random.u8(..); self.random.usize(1..300)];
        let file = self.files.get_mut(&id).expect("a file");
        if file.xattr.is_some() && self.random.bool() {
            file.xattr = None;
            return self.fs.removexattr(file.ino, XATTR);
        }
        self.fs.setxattr(file.ino, XATTR, &value, XattrMode::Set)?;
        file.xattr = Some(value);
        Ok(())
    }

    fn preallocate(&mut self) -> Result<()> {
        let id = self.pick_file();
        self.changing(id);
        let (offset, len) = (self.words(SIZE_MAX) - WORD, self.words(16 << 10));
        let mode = if self.random.bool() { AllocateMode::Extend } else { AllocateMode::KeepSize };
        let file = self.files.get_mut(&id).expect("a file");
        match self.fs.allocate(file.ino, mode, offset, len) {
            // Files of ext3 cannot hold preallocated space.
            Err(Error::Unsupported(_)) => return Ok(()),
            other => other?,
        }
        let end = usize::try_from(offset + len).expect("small");
        if mode == AllocateMode::Extend && end > file.bytes.len() {
            file.bytes.resize(end, 0);
        }
        Ok(())
    }

    fn punch(&mut self) -> Result<()> {
        let id = self.pick_file();
        self.changing(id);
        let (offset, len) = (self.words(SIZE_MAX) - WORD, self.words(16 << 10));
        let file = self.files.get_mut(&id).expect("a file");
        let mode = if self.random.bool() {
            AllocateMode::PunchHole
        } else {
            AllocateMode::ZeroRange { keep_size: true }
        };
        match self.fs.allocate(file.ino, mode, offset, len) {
            Err(Error::Unsupported(_)) => return Ok(()),
            other => other?,
        }
        let size = file.bytes.len();
        let range = |at: u64| usize::try_from(at).expect("small").min(size);
        file.bytes[range(offset)..range(offset + len)].fill(0);
        Ok(())
    }

    /// Collapses or inserts a range of a file whose contents may move.
    fn shift(&mut self) -> Result<()> {
        const BLOCK: usize = 4096;
        let Some(id) = self.files.keys().copied().find(|id| *id >= MOVING) else {
            return self.punch();
        };
        self.changing(id);
        let file = self.files.get_mut(&id).expect("a file");
        let blocks = file.bytes.len() / BLOCK;
        if blocks < 2 {
            return self.append();
        }
        let at = self.random.usize(..blocks - 1) * BLOCK;
        let insert = self.random.bool() && (file.bytes.len() as u64) < SIZE_MAX;
        let mode = if insert { AllocateMode::InsertRange } else { AllocateMode::CollapseRange };
        match self.fs.allocate(file.ino, mode, at as u64, BLOCK as u64) {
            Err(Error::Unsupported(_)) => return Ok(()),
            other => other?,
        }
        if insert {
            file.bytes.splice(at..at, vec![0; BLOCK]);
        } else {
            file.bytes.drain(at..at + BLOCK);
        }
        Ok(())
    }
}
