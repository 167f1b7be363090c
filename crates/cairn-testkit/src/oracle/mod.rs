//! Seeded sequences of every operation, applied to a filesystem and to the model; answers and trees
//! must be the same.
//!
//! The filesystem is a [`Subject`]: each format can make, open and judge its volumes.

mod attributes;
mod data;
pub mod fsx;
mod listing;
mod names;
pub mod reserving_ahead;

use std::collections::VecDeque;
use std::fmt::Debug;
use std::sync::Arc;

use cairn_base::Ino;
use cairn_block::memory::MemoryDevice;
use cairn_vfs::{Attributes, Caller, Error, FileKind, FileSystem, NewInode};

use crate::durability::Opened;
use crate::model::Model;
use crate::tree::{SnapshotOptions, digest_volume};

/// A kind of volume, with mount options.
pub trait Subject {
    /// The name in failures.
    fn name(&self) -> String;

    /// A fresh volume.
    fn make(&self) -> Arc<MemoryDevice>;

    /// Opens a volume that must open.
    fn open(&self, device: &Arc<MemoryDevice>) -> Arc<dyn FileSystem>;

    /// Panics unless the format's own tools find an unmounted volume clean.
    fn judge(&self, device: &MemoryDevice);

    /// True if it supports all of `fallocate`, not only holes.
    fn allocates(&self) -> bool {
        true
    }
}

/// A [`Subject`] whose unused inodes can be evicted from memory.
pub trait Evictable: Subject {
    /// As [`Subject::open`].
    fn open_evictable(&self, device: &Arc<MemoryDevice>) -> Opened;
}

/// Applies `steps` operations chosen by `seed`, remounts and evicts inodes now and then, and judges
/// the volume in the end.
///
/// # Panics
/// An answer differs from the model's, or the volume is not clean.
pub fn run(subject: &dyn Evictable, seed: u64, steps: u32) {
    let mut duel = Duel::new(subject, seed);
    for _ in 0..steps {
        duel.step();
    }
    duel.remount();
    duel.fs.unmount().unwrap_or_else(|error| duel.fail(&error.to_string()));
    subject.judge(&duel.device);
}

/// One inode by both its numbers.
#[derive(Clone, Copy, Debug)]
struct Pair {
    real: Ino,
    model: Ino,
}

/// Both filesystems and the state of the comparison.
struct Duel<'a> {
    subject: &'a dyn Evictable,
    seed: u64,
    device: Arc<MemoryDevice>,
    fs: Arc<dyn FileSystem>,
    evict: Arc<dyn Fn() + Send + Sync>,
    model: Model,
    rng: fastrand::Rng,
    /// Directories alive.
    dirs: Vec<Pair>,
    /// Inodes with one reference held on each side; they may have lost their names.
    held: Vec<Pair>,
    log: VecDeque<String>,
}

impl<'a> Duel<'a> {
    fn new(subject: &'a dyn Evictable, seed: u64) -> Self {
        let device = subject.make();
        let Opened { fs, evict } = subject.open_evictable(&device);
        let model = Model::new();
        if let Ok(found) = fs.lookup(fs.root(), b"lost+found") {
            fs.forget(found.ino, 1);
            let permissions = found.permissions;
            let made = model.create(
                model.root(),
                b"lost+found",
                NewInode::Directory,
                permissions,
                &Caller::ROOT,
            );
            model.forget(made.expect("the model takes any name").ino, 1);
        }
        let root = Pair { real: fs.root(), model: model.root() };
        let rng = fastrand::Rng::with_seed(seed);
        Self {
            subject,
            seed,
            device,
            fs,
            evict,
            model,
            rng,
            dirs: vec![root],
            held: Vec::new(),
            log: VecDeque::new(),
        }
    }

    fn fail(&self, why: &str) -> ! {
        let log: Vec<_> = self.log.iter().map(String::as_str).collect();
        let (name, seed) = (self.subject.name(), self.seed);
        panic!("{name} seed {seed}: {why}; last operations:\n{}", log.join("\n"));
    }

    fn note(&mut self, what: String) {
        if self.log.len() == 30 {
            self.log.pop_front();
        }
        self.log.push_back(what);
    }

    /// Asserts that both succeeded or failed with the same errno; returns both values.
    fn agree<T, U>(
        &mut self,
        what: String,
        real: Result<T, Error>,
        model: Result<U, Error>,
    ) -> Option<(T, U)> {
        let errno = |error: &Error| format!("errno {} ({error})", error.errno());
        let told = model.as_ref().map_or_else(&errno, |_| "ok".to_owned());
        self.note(format!("{what}: {told}"));
        match (real, model) {
            (Ok(real), Ok(model)) => Some((real, model)),
            (Err(real), Err(model)) if real.errno() == model.errno() => None,
            (Err(real), _) => self.fail(&format!("got {}", errno(&real))),
            (Ok(_), Err(_)) => self.fail("succeeded"),
        }
    }

    /// The same, and the values are equal.
    fn same<T: PartialEq + Debug>(
        &mut self,
        what: String,
        real: Result<T, Error>,
        model: Result<T, Error>,
    ) {
        if let Some((real, model)) = self.agree(what, real, model)
            && real != model
        {
            self.fail(&format!("{real:?} is not {model:?}"));
        }
    }

    /// Attributes that both must agree on (sizes of directories and times differ by nature).
    fn same_attributes(&self, real: &Attributes, model: &Attributes) {
        let facts = |a: &Attributes| {
            let size = if a.kind == FileKind::Directory { 0 } else { a.size };
            (a.kind, a.permissions, a.links, a.uid, a.gid, size, a.device)
        };
        if facts(real) != facts(model) {
            self.fail(&format!("{real:?} is not {model:?}"));
        }
    }

    fn forget(&self, pair: Pair) {
        self.fs.forget(pair.real, 1);
        self.model.forget(pair.model, 1);
    }

    fn dir(&mut self) -> Pair {
        let number = self.rng.usize(0..self.dirs.len());
        self.dirs[number]
    }

    /// A small set of names, so that they collide often; some are long, some very long.
    fn name(&mut self) -> Vec<u8> {
        let number = self.rng.u32(0..14);
        match self.rng.u32(0..41) {
            40 => [b".".to_vec(), b"..".to_vec(), b"..".to_vec(), Vec::new()][self.rng.usize(0..4)]
                .clone(),
            0 => vec![b'L'; 200 + number as usize * 4],
            1 => vec![b'x'; 256],
            2..8 => format!("a somewhat longer name {number}").into_bytes(),
            _ => format!("n{number}").into_bytes(),
        }
    }

    /// An inode to work on: mostly one that is held.
    fn target(&mut self) -> Pair {
        if self.held.is_empty() || self.rng.u8(0..10) == 0 {
            return self.dir();
        }
        let number = self.rng.usize(0..self.held.len());
        self.held[number]
    }

    /// Directories that were removed are no longer used.
    fn prune(&mut self) {
        let model = &self.model;
        let held = &self.held;
        self.dirs.retain(|dir| model.getattr(dir.model).is_ok_and(|found| found.links > 0));
        debug_assert!(held.len() < 64);
    }

    fn compare(&mut self) {
        let options = SnapshotOptions { times: false, sectors: false, directory_links: true };
        let real =
            digest_volume(&*self.fs, options).unwrap_or_else(|error| self.fail(&error.to_string()));
        let model = digest_volume(&self.model, options).expect("the model can be read");
        let differences = model.diff(&real);
        if !differences.is_empty() {
            self.fail(&differences);
        }
        self.model.check();
    }

    fn remount(&mut self) {
        self.note("remount".to_owned());
        for pair in std::mem::take(&mut self.held) {
            self.forget(pair);
        }
        self.prune();
        self.compare();
        self.fs.unmount().unwrap_or_else(|error| self.fail(&error.to_string()));
        Opened { fs: self.fs, evict: self.evict } = self.subject.open_evictable(&self.device);
        self.compare();
    }

    fn step(&mut self) {
        match self.rng.u32(0..1000) {
            0..400 => self.names_step(),
            400..720 => self.data_step(),
            720..900 => self.attributes_step(),
            900..960 => self.list(),
            960..970 => self.list_while_changing(),
            970..990 => self.sync_step(),
            990..999 => self.evict_step(),
            _ => self.remount(),
        }
    }

    /// Inodes that are referred to leave memory as well, if they have names and no changes.
    fn evict_step(&mut self) {
        self.note("sync, evict".to_owned());
        self.fs.sync().unwrap_or_else(|error| self.fail(&error.to_string()));
        (self.evict)();
        self.compare();
    }

    fn sync_step(&mut self) {
        let pair = self.target();
        match self.rng.u8(0..4) {
            0 => self.same("sync".to_owned(), self.fs.sync(), self.model.sync()),
            _ => self.same(
                format!("fsync {pair:?}"),
                self.fs.fsync(pair.real, 0, false),
                self.model.fsync(pair.model, 0, false),
            ),
        }
    }
}
