//! One thread of a workload: seeded operations, a model of its files, and the promises with their
//! moments.
//!
//! Each worker owns its names and files; all workers share directories, groups, inode tables and
//! the log. An operation is [chosen](Worker::choose) from the seed and the model, or given, and
//! [applied](Worker::apply) to both the volume and the model. What has no object any more, because
//! an earlier operation was left out, does nothing.

mod choose;
mod data;
mod names;
mod persist;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use cairn_base::Ino;
use cairn_vfs::{FileSystem, Result};

use super::expect::{Expect, Tail};
use super::op::Op;
use crate::opened::Evict;
use crate::states::{Promises, Recording};

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
    fs: Arc<dyn FileSystem>,
    evict: Evict,
    recording: Arc<Recording>,
    random: fastrand::Rng,
    number: u16,
    tail: Tail,
    next_id: u16,
    next_name: u32,
    last_picked: Option<u16>,
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
    /// The `number`-th worker (1 to 7) of a run. `shared` directories exist.
    #[must_use]
    pub fn new(
        (fs, evict): (Arc<dyn FileSystem>, Evict),
        recording: &Arc<Recording>,
        seed: u64,
        number: u16,
        shared: &[(String, Ino)],
    ) -> Self {
        Self {
            fs,
            evict,
            recording: recording.clone(),
            random: fastrand::Rng::with_seed(seed.wrapping_mul(31).wrapping_add(number.into())),
            number,
            tail: Tail::Own,
            next_id: 0,
            next_name: 0,
            last_picked: None,
            files: BTreeMap::new(),
            others: BTreeMap::new(),
            gone: BTreeSet::new(),
            directories: shared.iter().cloned().collect(),
            unlinked: Vec::new(),
            current: BTreeMap::new(),
            promises: Promises::new(),
        }
    }

    /// The same for a format whose files may grow by other bytes.
    #[must_use]
    pub fn with_tail(self, tail: Tail) -> Self {
        Self { tail, ..self }
    }

    /// The promises.
    #[must_use]
    pub fn finish(self) -> Promises<String, Expect> {
        for (_, file) in &self.unlinked {
            self.fs.forget(file.ino, 1);
        }
        self.promises
    }

    /// One seeded operation.
    ///
    /// # Errors
    /// The volume's.
    pub fn step(&mut self) -> Result<()> {
        let op = self.choose();
        self.apply(&op)
    }

    /// Carries an operation out, if what it works on is there.
    ///
    /// # Errors
    /// The volume's.
    pub fn apply(&mut self, op: &Op) -> Result<()> {
        if !self.has_objects(op) {
            return Ok(());
        }
        match op {
            Op::Create { id, path } => self.create(*id, path),
            Op::Write { id, offset, len, flags } => self.write(*id, *offset, *len, *flags),
            Op::Truncate { id, size } => self.truncate(*id, *size),
            Op::SetXattr { id, byte, len } => self.attribute(*id, Some(vec![*byte; *len])),
            Op::RemoveXattr { id } => self.attribute(*id, None),
            Op::Allocate { id, mode, offset, len } => self.allocate(*id, *mode, *offset, *len),
            Op::Rename { from, to, held } => self.rename(from, to, *held),
            Op::Link { id, path } => self.link(*id, path),
            Op::Unlink { path, held } => self.unlink(path, *held),
            Op::WriteUnlinked => self.write_unlinked(),
            Op::MakeDirectory { path } => self.make_directory(path),
            Op::RemoveDirectory { path } => self.remove_directory(path),
            Op::Symlink { path, len } => self.symlink(path, *len),
            Op::Fsync { id, data_only } => self.fsync(*id, *data_only),
            Op::SyncDirectory { path, data_only } => self.sync_directory(path, *data_only),
            Op::Evict { id } => self.evict(*id),
            Op::Sync => self.sync(),
        }
    }

    /// True if files, names and directories of an operation exist, and new names do not.
    fn has_objects(&self, op: &Op) -> bool {
        let directory = |path: &str| self.directories.contains_key(parent(path));
        let named = |path: &str| directory(path) && self.owner(path).is_some();
        let is_new = |path: &str| {
            let taken = self.others.contains_key(path) || self.directories.contains_key(path);
            directory(path) && !taken && self.owner(path).is_none()
        };
        let file = |id: &u16| self.files.contains_key(id);
        match op {
            Op::Create { id, path } => {
                let known = self.unlinked.iter().any(|(other, _)| other == id);
                !file(id) && !known && is_new(path)
            }
            Op::Write { id, .. } | Op::Truncate { id, .. } | Op::Allocate { id, .. } => file(id),
            Op::SetXattr { id, .. } | Op::Fsync { id, .. } => file(id),
            Op::RemoveXattr { id } => self.files.get(id).is_some_and(|file| file.xattr.is_some()),
            Op::Evict { id } => self.files.get(id).is_some_and(|file| !file.names.is_empty()),
            Op::Rename { from, to, .. } => {
                let other = named(to) && self.owner(from) != self.owner(to);
                named(from) && (is_new(to) || other)
            }
            Op::Link { id, path } => file(id) && is_new(path),
            Op::Unlink { path, .. } => named(path),
            Op::WriteUnlinked => !self.unlinked.is_empty(),
            Op::MakeDirectory { path } | Op::Symlink { path, .. } => is_new(path),
            Op::RemoveDirectory { path } => {
                !path.is_empty() && self.others.contains_key(path) && self.is_directory(path)
            }
            Op::SyncDirectory { path, .. } => self.is_directory(path),
            Op::Sync => true,
        }
    }

    fn is_directory(&self, path: &str) -> bool {
        self.directories.contains_key(path)
    }

    /// The file with this name.
    fn owner(&self, path: &str) -> Option<u16> {
        self.files.iter().find(|(_, file)| file.names.contains(path)).map(|(id, _)| *id)
    }

    fn file(&mut self, id: u16) -> &mut File {
        self.files.get_mut(&id).expect("a file")
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

    fn place(&self, path: &str) -> (Ino, String) {
        let name = path.rsplit_once('/').map_or(path, |(_, name)| name);
        (self.directories[parent(path)], name.to_owned())
    }
}

/// The directory of a path.
fn parent(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(parent, _)| parent)
}
